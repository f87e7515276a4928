"""Objects that the API server refuses, with the field and the message."""

from typing import Any, NamedTuple

from tests.unit.api.examples import example


class Refusal(NamedTuple):
    story: str
    example: str
    #: A JSON merge patch on the example.
    change: dict[str, Any]
    field: str
    message: str


def _spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


_KEY = {"name": "forebay-providers", "key": "API_KEY"}
_RUNPOD = {"name": "runpod", "credentialsRef": _KEY}
_LAMBDA = {"name": "lambdalabs", "credentialsRef": _KEY}
_K3S = example("gpunodeclass-k3s-tailscale")["spec"]["k3sConfig"]
_TALOS = example("gpunodeclass-gcp-talos")["spec"]["talosConfig"]
_TEMPLATE = _TALOS["machineConfigTemplate"]
_MACHINE = example("gpunodeclass-owned-machines")["spec"]["providers"][0]["machines"][0]


def _talos(template: str) -> dict[str, Any]:
    return _spec(talosConfig={"machineConfigTemplate": template})


def _machine(**fields: Any) -> dict[str, Any]:
    return _spec(providers=[{"name": "webhook", "machines": [_MACHINE | fields]}])


_CLASS = "gpunodeclass-k3s-tailscale"
_GCP = "gpunodeclass-gcp-talos"
_OWNED = "gpunodeclass-owned-machines"
_POOL = "gpunodepool"
_GROUP = "nodeprovisioner"
_BUDGET = "gpuworkloadbudget"
_MACHINES = "spec.providers[0].machines[0]"
_TALOS_TEXT = "spec.talosConfig.machineConfigTemplate"
_DOLLARS = "must be US dollars as a plain decimal number"
_DURATION = "must be a duration such as 30s, 5m or 1h30m"
_POSITIVE = "must be a quantity greater than 0"

REFUSALS = [
    # providers
    Refusal("no provider", _CLASS, _spec(providers=[]), "spec.providers", "should have at least 1 items"),
    Refusal("a provider that is no name", _CLASS, _spec(providers=[_LAMBDA | {"name": "Lambda Labs"}]),
            "spec.providers[0].name", "should match '^[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*$'"),
    Refusal("the same provider twice", _CLASS, _spec(providers=[_LAMBDA, _LAMBDA]),
            "spec.providers[1]", "Duplicate value"),
    Refusal("every provider disabled", _CLASS, _spec(providers=[_LAMBDA | {"enabled": False}], k3sConfig=None),
            "spec.providers", "at least one provider must be enabled"),
    Refusal("a cloud without its key", _CLASS, _spec(providers=[{"name": "lambdalabs"}]),
            "spec.providers[0].credentialsRef", "set credentialsRef to the Secret and the key that hold it"),
    Refusal("a Secret without the name of the key", _CLASS,
            _spec(providers=[_LAMBDA | {"credentialsRef": {"name": "s"}}]),
            "spec.providers[0].credentialsRef.key", "Required value"),
    Refusal("a negative priority", _CLASS, _spec(providers=[_LAMBDA | {"priority": -1}]),
            "spec.providers[0].priority", "should be greater than or equal to 0"),
    Refusal("an endpoint that is no URL", _CLASS, _spec(providers=[_LAMBDA | {"endpoint": "ftp://x"}]),
            "spec.providers[0].endpoint", "must be a URL that starts with http:// or https://"),
    # how machines join
    Refusal("two ways to join", _CLASS, _spec(cloudInit={"template": "#cloud-config"}),
            "spec", "a machine joins in one way only: set one of talosConfig, k3sConfig, kubeadmConfig or cloudInit"),
    *(
        Refusal(f"machines of {name} that never join", _CLASS,
                _spec(providers=[{"name": name, "credentialsRef": _KEY}], k3sConfig=None),
                "spec", f"{name} rents machines that must be told how to join the cluster")
        for name in ("aws", "crusoe", "gcp", "lambdalabs", "nebius", "paperspace")
    ),
    Refusal("Talos at RunPod, as in the predecessor's own README", _GCP, _spec(providers=[_RUNPOD]),
            "spec.talosConfig", "runpod cannot boot Talos: it runs containers, so move it to a GPUNodeClass"),
    *(
        Refusal(f"Talos at {name} beside a cloud that can", _GCP,
                _spec(providers=[{"name": "gcp"}, {"name": name, "credentialsRef": _KEY}]),
                "spec.talosConfig", f"{name} cannot boot Talos")
        for name in ("crusoe", "lambdalabs", "nebius", "paperspace", "runpod", "vast")
    ),
    Refusal("k3s for containers only", "gpunodeclass-runpod", _spec(k3sConfig=_K3S),
            "spec.k3sConfig", "no enabled provider can use k3sConfig: it is for aws, crusoe"),
    Refusal("kubeadm for containers only", "gpunodeclass-runpod",
            _spec(kubeadmConfig={"controlPlaneEndpoint": "10.0.0.1:6443"}),
            "spec.kubeadmConfig", "no enabled provider can use kubeadmConfig"),
    Refusal("cloud-init for containers only", "gpunodeclass-runpod", _spec(cloudInit={"template": "#cloud-config"}),
            "spec.cloudInit", "no enabled provider can use cloudInit"),
    *(
        Refusal(f"cloud-init's own format at {name}, whose machines run a script", _CLASS,
                _spec(providers=[{"name": name, "credentialsRef": _KEY}], k3sConfig=None,
                      cloudInit={"template": "#cloud-config"}),
                "spec.cloudInit", "begin the template with #!/bin/sh")
        for name in ("crusoe", "paperspace")
    ),
    Refusal("Talos for machines that are installed already", _OWNED, _spec(talosConfig=_TALOS),
            "spec.talosConfig", "no enabled provider can use talosConfig: it is for aws, gcp, simulated"),
    Refusal("kubeadm without a port", _CLASS,
            _spec(k3sConfig=None, kubeadmConfig={"controlPlaneEndpoint": "10.0.0.1"}),
            "spec.kubeadmConfig.controlPlaneEndpoint", "should match"),
    # Talos templates
    Refusal("neither template nor secrets", _GCP,
            _spec(talosConfig={"machineConfigTemplate": None, "secretsRef": None}),
            _TALOS_TEXT, "set machineConfigTemplate, or secretsRef"),
    Refusal("machine secrets from nowhere", _GCP, _spec(talosConfig={"secretsRef": None}),
            "spec.talosConfig.secretsRef", "set secretsRef to the Secret they come from"),
    Refusal("an empty template", _GCP, _talos(""), _TALOS_TEXT, "should be at least 1 chars long"),
    Refusal("a template without version", _GCP, _talos(_TEMPLATE.replace("version: v1alpha1\n", "")),
            _TALOS_TEXT, "the line version: v1alpha1 is missing"),
    Refusal("a template without machine", _GCP, _talos(_TEMPLATE.replace("machine:", "machin:")),
            _TALOS_TEXT, "the section machine is missing"),
    Refusal("a template without token", _GCP, _talos(_TEMPLATE.replace("token:", "tokn:")),
            _TALOS_TEXT, "machine.token is missing"),
    Refusal("a template without cluster", _GCP, _talos(_TEMPLATE.replace("cluster:", "clustr:")),
            _TALOS_TEXT, "the section cluster is missing"),
    Refusal("a template without cluster.id", _GCP, _talos(_TEMPLATE.replace(" id:", " idd:")),
            _TALOS_TEXT, "cluster.id is missing"),
    Refusal("a template without cluster.secret", _GCP, _talos(_TEMPLATE.replace("secret:", "secrt:")),
            _TALOS_TEXT, "cluster.secret is missing"),
    Refusal("a template without control plane", _GCP, _talos(_TEMPLATE.replace("controlPlane:", "control:")),
            _TALOS_TEXT, "cluster.controlPlane is missing"),
    Refusal("a template without a name for the node", _GCP, _talos(_TEMPLATE.replace("{{.NodeName}}", "gpu")),
            _TALOS_TEXT, "must set the hostname to {{.NodeName}}"),
    Refusal("systemd units in Talos", _GCP, _talos(_TEMPLATE.replace("  token:", "  systemd: {}\n  token:")),
            _TALOS_TEXT, "Talos has no systemd"),
    Refusal("a Tailscale key that nobody makes", _GCP,
            _spec(tailscaleConfig=None, talosConfig={"machineConfigTemplate": _TEMPLATE + "# {{.TailscaleAuthKey}}\n"}),
            "spec.tailscaleConfig", "the template uses TailscaleAuthKey: set tailscaleConfig"),
    # Tailscale
    Refusal("a tag without its prefix", _GCP, _spec(tailscaleConfig={"tags": ["k8s"]}),
            "spec.tailscaleConfig.tags[0]", "should match"),
    Refusal("a route that is no subnet", _GCP, _spec(tailscaleConfig={"advertiseRoutes": ["10.1.0.0"]}),
            "spec.tailscaleConfig.advertiseRoutes[0]", "cidr"),
    Refusal("Tailscale without a client", _GCP, _spec(tailscaleConfig={"oauthCredentialsSecretRef": None}),
            "spec.tailscaleConfig.oauthCredentialsSecretRef", "Required value"),
    # owned machines
    Refusal("a machine that cannot be powered off", _OWNED, _machine(scaleDownEndpoint=None),
            "spec.providers[0].machines", "every machine needs two URLs"),
    Refusal("endpoints beside those of the environment", _OWNED,
            _spec(providers=[{"name": "webhook", "endpointsFrom": "Environment", "machines": [_MACHINE]}]),
            "spec.providers[0].machines", "the operator's environment variables hold the URLs: remove them here"),
    Refusal("webhook without machines", _OWNED, _spec(providers=[{"name": "webhook"}]),
            "spec.providers[0].machines", "list at least one there"),
    Refusal("machines under another provider", _OWNED, _spec(providers=[_RUNPOD | {"machines": [_MACHINE]}]),
            "spec.providers[0].machines", "machines belong to the provider webhook"),
    Refusal("a machine without GPUs", _OWNED, _machine(gpuCount=0),
            f"{_MACHINES}.gpuCount", "should be greater than or equal to 1"),
    Refusal("one URL for on and off", _OWNED, _machine(scaleDownEndpoint=_MACHINE["scaleUpEndpoint"]),
            f"{_MACHINES}.scaleDownEndpoint", "are the same URL"),
    Refusal("a URL without scheme", _OWNED, _machine(scaleUpEndpoint="power-api/start"),
            f"{_MACHINES}.scaleUpEndpoint", "must be a URL that starts with http:// or https://"),
    Refusal("a timeout without unit", _OWNED, _machine(timeout="5"), f"{_MACHINES}.timeout", _DURATION),
    Refusal("no CPU at all", _OWNED, _machine(cpu="0"), f"{_MACHINES}.cpu", _POSITIVE),
    Refusal("a price below nothing", _OWNED, _machine(hourlyPrice="-1"), f"{_MACHINES}.hourlyPrice", _DOLLARS),
    Refusal("a CA that is never used", _OWNED,
            _machine(tls={"insecureSkipVerify": True, "caSecretRef": {"name": "ca", "key": "ca.crt"}}),
            f"{_MACHINES}.tls.insecureSkipVerify", "caSecretRef has no effect with insecureSkipVerify"),
    Refusal("a label that is Forebay's", _OWNED, _machine(labels={"forebay.dev/gpu-type": "A100"}),
            f"{_MACHINES}.labels", "labels under forebay.dev/ and kubernetes.io/hostname are set by Forebay"),
    # limits
    Refusal("a limit of no nodes", _CLASS, _spec(limits={"maxNodes": 0}),
            "spec.limits.maxNodes", "should be greater than or equal to 1"),
    Refusal("an empty cost", _CLASS, _spec(limits={"maxHourlyCost": ""}), "spec.limits.maxHourlyCost", _DOLLARS),
    Refusal("a cost in words", _CLASS, _spec(limits={"maxHourlyCost": "fifty"}), "spec.limits.maxHourlyCost", _DOLLARS),
    Refusal("a cost as a quantity", _CLASS, _spec(limits={"maxHourlyCost": "5k"}),
            "spec.limits.maxHourlyCost", _DOLLARS),
    Refusal("a negative resource", _CLASS, _spec(limits={"resources": {"cpu": "-1"}}),
            "spec.limits.resources[cpu]", "must be a Kubernetes quantity that is not negative"),
    # pools
    Refusal("a pool without class", _POOL, _spec(nodeClassRef=None), "spec.nodeClassRef", "Required value"),
    Refusal("a class of another kind", _POOL, _spec(nodeClassRef={"kind": "EC2NodeClass"}),
            "spec.nodeClassRef.kind", 'Unsupported value: "EC2NodeClass"'),
    Refusal("a price in words", _POOL, _spec(maxHourlyPrice="two"), "spec.maxHourlyPrice", _DOLLARS),
    Refusal("a negative price", _POOL, _spec(maxHourlyPrice=-2), "spec.maxHourlyPrice", _DOLLARS),
    Refusal("a weight beyond 100", _POOL, _spec(weight=101), "spec.weight", "should be less than or equal to 100"),
    Refusal("a misspelt policy", _POOL, _spec(disruption={"consolidationPolicy": "WhenEmpty"}),
            "spec.disruption.consolidationPolicy", 'Unsupported value: "WhenEmpty"'),
    Refusal("days", _POOL, _spec(disruption={"expireAfter": "7d"}),
            "spec.disruption.expireAfter", "must be a duration such as 30s, 5m or 1h30m, or Never"),
    Refusal("never in small letters", _POOL, _spec(disruption={"consolidateAfter": "never"}),
            "spec.disruption.consolidateAfter", "or Never"),
    Refusal("a share above all", _POOL, _spec(disruption={"budgets": [{"nodes": "101%"}]}),
            "spec.disruption.budgets[0].nodes", "must be a number of nodes, such as 2, or a share of them"),
    Refusal("a schedule that never ends", _POOL, _spec(disruption={"budgets": [{"schedule": "@daily"}]}),
            "spec.disruption.budgets[0]", "schedule and duration belong together"),
    Refusal("a schedule of four fields", _POOL,
            _spec(disruption={"budgets": [{"schedule": "0 9 * *", "duration": "8h"}]}),
            "spec.disruption.budgets[0].schedule", "must be a cron schedule in UTC"),
    Refusal("In without values", _POOL,
            _spec(template={"spec": {"requirements": [{"key": "a", "operator": "In"}]}}),
            "spec.template.spec.requirements[0]", "values must be set for In and NotIn"),
    Refusal("Exists with values", _POOL,
            _spec(template={"spec": {"requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}),
            "spec.template.spec.requirements[0]", "left out for Exists and DoesNotExist"),
    Refusal("Gt with a word", _POOL,
            _spec(template={"spec": {"requirements": [{"key": "a", "operator": "Gt", "values": ["many"]}]}}),
            "spec.template.spec.requirements[0]", "Gt and Lt take exactly one value, a whole number"),
    Refusal("a taint without effect", _POOL, _spec(template={"spec": {"taints": [{"key": "a"}]}}),
            "spec.template.spec.taints[0].effect", "Required value"),
    Refusal("a label key with spaces", _POOL, _spec(template={"metadata": {"labels": {"my team": "a"}}}),
            "spec.template.metadata.labels", "keys must be label keys"),
    Refusal("a label that makes a control plane", _POOL,
            _spec(template={"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            "spec.template.metadata.labels", "belong to the cluster: choose another key"),
    Refusal("a label of the cluster's own domain", _POOL, _spec(template={"metadata": {"labels": {"k8s.io/a": "b"}}}),
            "spec.template.metadata.labels", "belong to the cluster: choose another key"),
    Refusal("a label of the cluster's own domain", _POOL,
            _spec(template={"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}),
            "spec.template.metadata.labels", "belong to the cluster: choose another key"),
    Refusal("an annotation key with spaces", _POOL, _spec(template={"metadata": {"annotations": {"my team": "a"}}}),
            "spec.template.metadata.annotations", "keys must be those of annotations"),
    Refusal("an annotation of the cluster's own domain", _POOL,
            _spec(template={"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "0"}}}),
            "spec.template.metadata.annotations", "have a meaning for Forebay and the cluster: choose another key"),
    Refusal("an annotation of Forebay's", _POOL,
            _spec(template={"metadata": {"annotations": {"forebay.dev/maintenance": "x"}}}),
            "spec.template.metadata.annotations", "have a meaning for Forebay and the cluster: choose another key"),
    Refusal("a taint that evicts", _POOL,
            _spec(template={"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
            "spec.template.spec.taints", "use the effect NoSchedule"),
    # provisioners
    Refusal("no group", _GROUP, _spec(existingInstanceGroupNames=[]),
            "spec.existingInstanceGroupNames", "should have at least 1 items"),
    Refusal("no target", _GROUP, _spec(minGPUUtilizationPercent=None, minUnutilizedGPUNodes=None),
            "spec.minGPUUtilizationPercent", "set minGPUUtilizationPercent, minUnutilizedGPUNodes or both"),
    Refusal("more than all in use", _GROUP, _spec(minGPUUtilizationPercent=101),
            "spec.minGPUUtilizationPercent", "should be less than or equal to 100"),
    Refusal("more spare nodes than nodes", _GROUP, _spec(maxNodes=1),
            "spec.minUnutilizedGPUNodes", "must not be larger than maxNodes"),
    Refusal("minimum above the maximum", _GROUP, _spec(minGPUUtilizationPercent=90, maxGPUUtilizationPercent=80),
            "spec.maxGPUUtilizationPercent", "must not be larger than maxGPUUtilizationPercent"),
    Refusal("a delay in words", _GROUP, _spec(scaleDownDelay="a while"), "spec.scaleDownDelay", _DURATION),
    Refusal("a group in no zone", _GROUP, _spec(provider={"location": None}),
            "spec.provider.location", "gcp needs the zone or region of the instance groups"),
    Refusal("a cloud without instance groups", _GROUP, _spec(provider={"name": "runpod"}),
            "spec.provider.name", "this provider has no instance groups: name one that has, such as gcp or simulated"),
    Refusal("neither groups nor a class", _GROUP, _spec(existingInstanceGroupNames=None),
            "spec.existingInstanceGroupNames", "or nodeClassRef, by which Forebay rents machines"),
    Refusal("groups and a class", _GROUP, _spec(nodeClassRef={"name": "a"}, provider={"instanceType": "a"}),
            "spec.existingInstanceGroupNames", "or nodeClassRef, by which Forebay rents machines"),
    Refusal("a class without a machine type", _GROUP,
            _spec(existingInstanceGroupNames=None, nodeClassRef={"name": "a"}, provider={"credentialsRef": None}),
            "spec.provider.instanceType", "nodeClassRef and provider.instanceType belong together"),
    Refusal("a key beside a class", _GROUP,
            _spec(existingInstanceGroupNames=None, nodeClassRef={"name": "a"},
                  provider={"instanceType": "a", "credentialsRef": _KEY}),
            "spec.provider", "with nodeClassRef, the GPUNodeClass says how machines are rented"),
    Refusal("taints without a class", _GROUP, _spec(taints=[{"key": "a", "effect": "NoSchedule"}]),
            "spec.labels", "labels and taints need nodeClassRef"),
    Refusal("a group of containers", _GROUP,
            _spec(existingInstanceGroupNames=None, nodeClassRef={"name": "a"},
                  provider={"name": "runpod", "instanceType": "a", "credentialsRef": None}),
            "spec.provider.name", "rents no machines that could be kept as a group"),
    Refusal("a name too long for a label", _GROUP, {"metadata": {"name": "a" * 64}},
            "", "the name is also the value of a node label: use at most 63 characters"),
    # budgets
    Refusal("a budget for everything", _BUDGET, _spec(selector={"matchLabels": {"team": None}}),
            "spec.selector", "must not be empty, as that would match every pod of the namespace"),
    Refusal("a misspelt operator", _BUDGET, _spec(selector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            "spec.selector.matchExpressions[0].operator", 'Unsupported value: "Is"'),
    Refusal("no hours", _BUDGET, _spec(quota={"gpuHours": 0}), "spec.quota.gpuHours", _POSITIVE),
    Refusal("no hours as text", _BUDGET, _spec(quota={"gpuHours": "0"}), "spec.quota.gpuHours", _POSITIVE),
    Refusal("negative hours", _BUDGET, _spec(quota={"gpuHours": "-3"}), "spec.quota.gpuHours", _POSITIVE),
    Refusal("hours in words", _BUDGET, _spec(quota={"gpuHours": "ten"}), "spec.quota.gpuHours", _POSITIVE),
    Refusal("a quota of nothing", _BUDGET, _spec(quota={"gpuHours": None}),
            "spec.quota.gpuHours", "set gpuHours to the GPU-hours that may be used in the window"),
    Refusal("no dollars", _BUDGET, _spec(quota={"usd": "0.00"}),
            "spec.quota.usd", "must be US dollars greater than 0"),
    Refusal("no window", _BUDGET, _spec(quota={"windowHours": 0}),
            "spec.quota.windowHours", "should be greater than or equal to 1"),
    Refusal("a misspelt action", _BUDGET, _spec(enforcement={"action": "Kill"}),
            "spec.enforcement.action", 'Unsupported value: "Kill"'),
    Refusal("no action", _BUDGET, _spec(enforcement={"action": None}), "spec.enforcement.action", "Required value"),
    Refusal("a negative grace", _BUDGET, _spec(enforcement={"gracePeriodSeconds": -1}),
            "spec.enforcement.gracePeriodSeconds", "should be greater than or equal to 0"),
    Refusal("a misspelt accounting", _BUDGET, _spec(accounting="Sampled"),
            "spec.accounting", 'Unsupported value: "Sampled"'),
    # instances
    Refusal("two owners", "gpuinstance", _spec(provisionerRef={"name": "a100-pool"}),
            "spec.provisionerRef", "poolRef and provisionerRef exclude each other"),
]  # fmt: skip

#: The same, for changes to an object that exists.
FORBIDDEN_CHANGES = [
    Refusal("another resource in a budget", _BUDGET, _spec(gpuResourceName="amd.com/gpu"),
            "spec.gpuResourceName", "the recorded hours are of that resource: create another budget instead"),
    Refusal("another offer in an instance", "gpuinstance", _spec(hourlyPrice="0.10"),
            "spec", "a GPUInstance is the record of one purchase and cannot be changed"),
    Refusal("another cloud under a provisioner", _GROUP, _spec(provider={"name": "simulated"}),
            "spec.provider.name", "the provider cannot be changed"),
]  # fmt: skip

#: What must pass.
ACCEPTED = [
    Refusal("machines whose endpoints are in the environment", _OWNED, _spec(providers=[
        {"name": "webhook", "endpointsFrom": "Environment", "machines": [{"name": "m", "gpuCount": 1}]}]), "", ""),
    Refusal("a provider of somebody else", _CLASS, _spec(providers=[{"name": "my-cloud"}]), "", ""),
    Refusal("containers beside machines", _CLASS, _spec(providers=[_LAMBDA, _RUNPOD]), "", ""),
    Refusal("a cloud that cannot, disabled", _GCP,
            _spec(providers=[{"name": "gcp"}, _RUNPOD | {"enabled": False}]), "", ""),
    Refusal("Talos by secrets alone", _GCP, _spec(talosConfig={"machineConfigTemplate": None}), "", ""),
    Refusal("spaces inside the braces", _GCP, _talos(_TEMPLATE.replace("{{.NodeName}}", "{{ .NodeName }}")), "", ""),
    Refusal("imaginary machines", _CLASS, _spec(providers=[{"name": "simulated"}], k3sConfig=None), "", ""),
    Refusal("owned beside rented", _CLASS,
            _spec(providers=[_LAMBDA, {"name": "webhook", "machines": [_MACHINE]}]), "", ""),
    Refusal("a price as a number", _POOL, _spec(maxHourlyPrice=10), "", ""),
    Refusal("free machines only", _POOL, _spec(maxHourlyPrice=0), "", ""),
    Refusal("no delay", _POOL, _spec(disruption={"consolidateAfter": "0s"}), "", ""),
    Refusal("never by Karpenter's word", _POOL, _spec(disruption={"consolidateAfter": "Never"}), "", ""),
    Refusal("a mixed duration", _POOL, _spec(disruption={"expireAfter": "1h30m"}), "", ""),
    Refusal("the predecessor's labels", _POOL,
            _spec(template={"spec": {"requirements": [{"key": "tgp.io/region", "operator": "Exists"}]}}), "", ""),
    Refusal("only a class", _POOL,
            _spec(template=None, disruption=None, limits=None, namespaceSelector=None), "", ""),
    *(Refusal(f"{hours} hours", _BUDGET, _spec(quota={"gpuHours": hours}), "", "")
      for hours in (100, "100", "1.5", "100m", "2k")),
    Refusal("dollars instead of hours", _BUDGET, _spec(quota={"gpuHours": None, "usd": "99.50"}), "", ""),
    Refusal("CPU counted as GPUs", _BUDGET, _spec(gpuResourceName="cpu"), "", ""),
    Refusal("a found leftover", "gpuinstance",
            _spec(poolRef=None, offer=None, hourlyPrice=None, node=None, pods=None, why=None), "", ""),
]  # fmt: skip
