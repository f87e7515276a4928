{{- define "forebay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "forebay" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-forebay" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end }}

{{- define "forebay.selectorLabels" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "forebay.account" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: set serviceAccount.name to the ServiceAccount of the operator" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "forebay.fullname" .) -}}
{{- end }}

{{- define "forebay.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- /* A value in the syntax of an environment variable. Helm reads large integers as floats. */ -}}
{{- define "forebay.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- . | int64 -}}
{{- else if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- else if kindIs "slice" . -}}
{{- $taints := list -}}
{{- range . -}}
{{- $taints = append $taints (printf "%s%s:%s" .key (empty .value | ternary "" (printf "=%s" .value)) .effect) -}}
{{- end -}}
{{- join "," $taints -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end }}

{{- /* Machines and settings as environment variables, in a YAML map. Duplicate names are refused. */ -}}
{{- define "forebay.env" -}}
{{- $env := dict "FOREBAY_HEALTH_SERVER_ADDRESS" (printf ":%s" (include "forebay.port" .)) -}}
{{- $_ := set $env "FOREBAY_METRICS_BIND_ADDRESS" (printf ":%d" (int .Values.metrics.port)) -}}
{{- if not .Values.metrics.secure -}}
{{- $_ := set $env "FOREBAY_METRICS_SECURE" "false" -}}
{{- end -}}
{{- if .Values.metrics.certSecret -}}
{{- $_ := set $env "FOREBAY_METRICS_CERT_PATH" "/etc/forebay/certificate" -}}
{{- end -}}
{{- if .Values.web.enabled -}}
{{- $_ := set $env "FOREBAY_WEB_ADDRESS" (printf ":%d" (int .Values.web.port)) -}}
{{- end -}}
{{- if not .Values.budgets.enabled -}}
{{- $_ := set $env "FOREBAY_BUDGETS" "off" -}}
{{- end -}}
{{- range $key, $value := .Values.settings -}}
{{- /* YAML reads an unquoted `on` as true. */ -}}
{{- if kindIs "bool" $value -}}{{- $value = ternary "on" "off" $value -}}{{- end -}}
{{- $_ := set $env (printf "FOREBAY_%s" ($key | snakecase | upper)) (include "forebay.text" $value) -}}
{{- end -}}
{{- $owners := dict -}}
{{- range $group := .Values.nodeGroups -}}
{{- if eq $group.scaleUpEndpoint $group.scaleDownEndpoint -}}
{{- fail (printf "nodeGroups: %s: scaleUpEndpoint and scaleDownEndpoint are the same URL: one must power the machine on, the other off" $group.name) -}}
{{- end -}}
{{- $prefix := $group.name | upper | replace "-" "_" | replace "." "_" -}}
{{- /* Older Kubernetes refuses a variable that begins with a digit. */ -}}
{{- if regexMatch "^[0-9]" $prefix -}}{{- $prefix = printf "GPU_NODE_%s" $prefix -}}{{- end -}}
{{- range $key, $value := $group -}}
{{- $name := printf "%s_%s" $prefix ($key | snakecase | upper) -}}
{{- if hasKey $owners $name -}}
{{- fail (printf "nodeGroups: %s and %s would share the variable %s: rename one of them" (get $owners $name) $group.name $name) -}}
{{- else if hasKey $env $name -}}
{{- fail (printf "nodeGroups: %s would take the variable %s, which is a setting of the operator: rename it" $group.name $name) -}}
{{- end -}}
{{- $_ := set $owners $name $group.name -}}
{{- $_ := set $env $name (include "forebay.text" $value) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $env .name -}}
{{- fail (printf "extraEnv: the chart already sets %s, from %s" .name (hasKey $owners .name | ternary (printf "nodeGroups: %s" (get $owners .name)) "settings or port")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $env -}}
{{- end }}

{{- /* Names of the Secrets that the operator may read, one per line. */ -}}
{{- define "forebay.secretNames" -}}
{{- $names := .Values.secrets -}}
{{- range .Values.nodeGroups -}}
{{- range $key, $value := . -}}
{{- if hasSuffix "Secret" $key -}}{{- $names = append $names (splitList "/" $value | first) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | join "\n" -}}
{{- end }}

{{- define "forebay.affinity" -}}
{{- $own := dict -}}
{{- $given := .Values.affinity | default dict -}}
{{- if not $given.nodeAffinity -}}
{{- $term := dict "matchExpressions" (include "forebay.notOnManagedNodes" . | fromYamlArray) -}}
{{- /* By the node's name, not by a label. A matchFields expression takes exactly one value. */ -}}
{{- range .Values.nodeGroups -}}
{{- $field := dict "key" "metadata.name" "operator" "NotIn" "values" (list .name) -}}
{{- $_ := set $term "matchFields" (append ($term.matchFields | default list) $field) -}}
{{- end -}}
{{- $required := dict "nodeSelectorTerms" (list $term) -}}
{{- $own = dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $required) -}}
{{- end -}}
{{- merge (deepCopy $given) $own | toYaml -}}
{{- end }}

{{- /* Annotations of objects that exist only during uninstallation. A failed Job stays, so that its log can be read. */ -}}
{{- define "forebay.beforeDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "forebay.port" -}}
{{- (.Values.healthProbe | default dict).port | default .Values.port -}}
{{- end }}

{{- /* Port of the virtual node; empty where it has none. */ -}}
{{- define "forebay.kubeletPort" -}}
{{- $address := (.Values.settings | default dict).logServerAddress | default ":10250" | toString -}}
{{- if and .Values.offload.enabled (ne $address "0") -}}{{- splitList ":" $address | last -}}{{- end -}}
{{- end }}

{{- /* Two listeners of one pod need two ports. */ -}}
{{- define "forebay.portsDiffer" -}}
{{- $owners := dict -}}
{{- $ports := list (list "port" (include "forebay.port" .)) -}}
{{- /* Plain metrics may be served at the port of the probes. */ -}}
{{- if or .Values.metrics.secure (ne (include "forebay.port" .) (.Values.metrics.port | toString)) -}}
{{- $ports = append $ports (list "metrics.port" (.Values.metrics.port | toString)) -}}
{{- end -}}
{{- if .Values.web.enabled -}}{{- $ports = append $ports (list "web.port" (.Values.web.port | toString)) -}}{{- end -}}
{{- with include "forebay.kubeletPort" . -}}{{- $ports = append $ports (list "settings.logServerAddress" .) -}}{{- end -}}
{{- range $ports -}}
{{- if hasKey $owners (last .) -}}
{{- fail (printf "%s and %s are both %s: choose another port for one of them" (get $owners (last .)) (first .) (last .)) -}}
{{- end -}}
{{- $_ := set $owners (last .) (first .) -}}
{{- end -}}
{{- end }}

{{- /* A duration as Prometheus writes it, such as 1m30s, in milliseconds. */ -}}
{{- define "forebay.milliseconds" -}}
{{- $text := . -}}
{{- $sum := 0 -}}
{{- range $unit, $each := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $found := regexFind (printf "[0-9]+%s([0-9]|$)" $unit) $text -}}
{{- $sum = add $sum (mul $each (regexFind "^[0-9]+" $found | default "0" | atoi)) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{- /* serviceMonitor, with what metrics.serviceMonitor says otherwise. */ -}}
{{- define "forebay.serviceMonitor" -}}
{{- $monitor := mergeOverwrite (deepCopy .Values.serviceMonitor) (deepCopy (.Values.metrics.serviceMonitor | default dict)) -}}
{{- if $monitor.enabled -}}
{{- $scheme := ternary "https" "http" .Values.metrics.secure -}}
{{- if and $monitor.scheme (ne $monitor.scheme $scheme) -}}
{{- fail (printf "serviceMonitor: scheme is %s, but metrics are served by %s: change metrics.secure or scheme" $monitor.scheme $scheme) -}}
{{- end -}}
{{- if not .Values.metrics.service.enabled -}}
{{- fail "serviceMonitor: it needs the Service: set metrics.service.enabled to true" -}}
{{- end -}}
{{- $interval := include "forebay.milliseconds" $monitor.interval | atoi -}}
{{- $timeout := include "forebay.milliseconds" $monitor.scrapeTimeout | atoi -}}
{{- if not (and $interval $timeout) -}}
{{- fail (printf "serviceMonitor: interval is %s and scrapeTimeout %s: both must be longer than 0" $monitor.interval $monitor.scrapeTimeout) -}}
{{- end -}}
{{- if gt $timeout $interval -}}
{{- fail (printf "serviceMonitor: scrapeTimeout is %s, longer than the interval of %s, which Prometheus refuses: lower scrapeTimeout or raise interval" $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- end -}}
{{- toYaml $monitor -}}
{{- end }}
