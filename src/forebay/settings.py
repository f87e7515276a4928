"""The settings of a Forebay process, with their defaults and descriptions.

A setting comes from its command-line option, else from its environment variable, else from its default. The options
(`cli`), the reference page and the error messages are made from `Settings`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta


class SettingsError(ValueError):
    """A setting has an invalid value. The text names the option or variable that it came from."""

    def __init__(self, text: str, others: "Settings | None" = None) -> None:
        super().__init__(text)
        #: The settings without those that the text names, in which there may be more to mend.
        self.others = others


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings that a user can choose."""

    kubeconfig: Annotated[
        str | None, Meta(description="Kubeconfig file. Default: `KUBECONFIG`, `~/.kube/config`, then in-cluster.")
    ] = None
    context: Annotated[str | None, Meta(description="Context of the kubeconfig. Default: its current-context.")] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Meta(description="Least severe level of log lines. Default: `info` for `run`, `warning` for other commands."),
    ] = None
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="Format of log lines; `auto` is text on a terminal and JSON elsewhere."),
    ] = "auto"
    namespace: Annotated[
        str | None,
        Meta(
            description="Namespace of the operator, its Lease and its ledgers. Default: that of its pod, or of its "
            "context. Other commands read the variable too, and look into `forebay-system` where it is not set.",
            extra={"command": "run"},
        ),
    ] = None
    gpu_resources: Annotated[
        str | None,
        Meta(
            description="Comma-separated names of GPU resources that pods request. Default: every `<vendor>/gpu`. "
            "Slices (`nvidia.com/mig-*`) go with `nvidia.com/gpu`.",
            extra={"command": "run"},
        ),
    ] = None
    budgets: Annotated[
        Literal["on", "off"],
        Meta(
            description="Whether GPUWorkloadBudgets are served. `off`: nothing is counted, held or enforced, each "
            "budget says so, and the operator needs no access to Jobs (`forebay manifests rbac --budgets off`).",
            extra={"command": "run"},
        ),
    ] = "on"
    idle_delay: Annotated[
        str,
        Meta(
            description="How long an owned machine must be idle before Forebay powers it off. `0s`: at once.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "30s"
    adoption_grace: Annotated[
        str,
        Meta(
            description="How long a machine that Forebay found on is not powered off, however idle it is.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "10m"
    scale_down_interval: Annotated[
        str,
        Meta(
            description="Time between two power-offs: owned machines are powered off one at a time.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "10s"
    power_on_interval: Annotated[
        str,
        Meta(
            description="Time between two power-ons of owned machines, so that many at once trip no breaker.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "1s"
    max_pending_time: Annotated[
        str,
        Meta(
            description="How long a Job marked `runpod.io/managed` waits for a node before it may run as "
            "a remote container. `0s`: not at all.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "0s"
    pending_job_threshold: Annotated[
        str,
        Meta(
            description="So many marked Jobs, the oldest, go on waiting for nodes within `--max-pending-time`; all "
            "others run remotely at once.",
            extra={"command": "run", "form": "count"},
        ),
    ] = "1"
    max_gpu_price: Annotated[
        str,
        Meta(
            description="Most that one GPU of a remote container may cost, in US dollars an hour, for Jobs without the "
            "annotation `runpod.io/max-price`.",
            extra={"command": "run", "form": "price"},
        ),
    ] = "0.5"
    reconcile_interval: Annotated[
        str,
        Meta(
            description="Longest time between two looks at everything while nothing changes. Changes are acted on at "
            "once, whatever it says.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "30s"
    dry_run: Annotated[
        Literal["on", "off"],
        Meta(
            description="Decide, log what would be done and a receipt each day, and change nothing: neither in the "
            "cluster nor at a provider. It may run beside another operator.",
            extra={"command": "run", "without_value": "on"},
        ),
    ] = "off"
    dry_run_run_time: Annotated[
        str,
        Meta(
            description="In a dry run: how long a pod is assumed to run that gets no node in reality.",
            extra={"command": "run", "form": "duration"},
        ),
    ] = "1h"
    health_server_address: Annotated[
        str,
        Meta(description="Address of `/healthz` and `/readyz`.", extra={"command": "run", "form": "address"}),
    ] = ":8080"
    metrics_bind_address: Annotated[
        str,
        Meta(
            description="Address of `/metrics`, such as `:8443`. `0`: metrics are not served. It may be the address of "
            "`--health-server-address` where they are served in plain HTTP.",
            extra={"command": "run", "form": "address or 0"},
        ),
    ] = "0"
    metrics_secure: Annotated[
        Literal["auto", "true", "false"],
        Meta(
            description="Whether metrics are served by HTTPS, and only for tokens of users whom the cluster lets `get` "
            "the non-resource URL `/metrics`. `auto`: except on a loopback address.",
            extra={"command": "run"},
        ),
    ] = "auto"
    metrics_cert_path: Annotated[
        str | None,
        Meta(
            description="Directory with the certificate of metrics and dashboard, read again when it changes. Default: "
            "a new certificate, signed by itself, at each start.",
            extra={"command": "run"},
        ),
    ] = None
    metrics_cert_name: Annotated[
        str, Meta(description="File of the certificate in that directory.", extra={"command": "run"})
    ] = "tls.crt"
    metrics_cert_key: Annotated[
        str, Meta(description="File of the key in that directory.", extra={"command": "run"})
    ] = "tls.key"
    web_address: Annotated[
        str,
        Meta(
            description="Address of the dashboard, such as `127.0.0.1:8082`. `0`: it is not served. On a loopback "
            "address it is plain HTTP for everybody on the machine, `kubectl port-forward` included; on any other it "
            "is HTTPS, for tokens of users whom the cluster lets `get` the non-resource URL `/forebay/dashboard`.",
            extra={"command": "run", "form": "address or 0"},
        ),
    ] = "0"
    log_server_address: Annotated[
        str,
        Meta(
            description="Address of the virtual node's port, by which `kubectl logs` shows what remote pods wrote. It "
            "is open while this replica leads and some provider offers remote containers. `0`: there is none.",
            extra={"command": "run", "form": "address or 0"},
        ),
    ] = ":10250"


class Setting(msgspec.Struct, frozen=True):
    """One field of `Settings`, for the command line and the documentation."""

    name: str
    default: Any
    description: str
    choices: tuple[str, ...]
    #: The only command with this setting; None: every command has it.
    command: str | None
    #: Value of the option where it is given without one; None: it takes a value.
    without_value: str | None = None
    #: What its text must be: "duration", "count", "price", "address", "address or 0". None: any text, or `choices`.
    form: str | None = None

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "FOREBAY_" + self.name.upper()


def all_settings() -> tuple[Setting, ...]:
    """All settings, in the order of their declaration."""
    hints = get_type_hints(Settings, include_extras=True)
    found = []
    for field in msgspec.structs.fields(Settings):
        annotation = hints[field.name]
        choices = _choices(annotation.__origin__)
        meta = annotation.__metadata__[0]
        extra = meta.extra or {}
        only, bare, form = extra.get("command"), extra.get("without_value"), extra.get("form")
        found.append(Setting(field.name, field.default, meta.description, choices, only, bare, form))
    return tuple(found)


def _choices(annotation: Any) -> tuple[str, ...]:
    """Values of a `Literal`, also of an optional one; empty for other types."""
    if getattr(annotation, "__origin__", None) is Literal:
        return tuple(annotation.__args__)
    return next((found for each in getattr(annotation, "__args__", ()) if (found := _choices(each))), ())


def read_settings(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Settings from options and environment. Options win; an empty variable counts as unset, as for kubectl."""
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for setting in all_settings():
        given = options.get(setting.name)
        if given is not None:
            values[setting.name], sources[setting.name] = given, setting.option
        elif environment.get(setting.variable):
            values[setting.name], sources[setting.name] = environment[setting.variable], setting.variable
    problems = []
    for setting in all_settings():
        if setting.choices and setting.name in values and values[setting.name] not in setting.choices:
            given = values.pop(setting.name)
            problems.append(f"{sources[setting.name]} is {given!r}; it takes one of: {', '.join(setting.choices)}.")
    found = msgspec.convert(values, Settings, strict=False)
    if problems:
        raise SettingsError(" ".join(problems), found)
    return found
