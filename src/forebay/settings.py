"""The settings of a Forebay process: every name, default and meaning, once.

A setting comes from its command-line option, else from its environment variable, else from its default. The
options (`cli`), the reference page and the error messages are all made from `Settings`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta


class SettingsError(ValueError):
    """A setting with a value it cannot take, named by where it came from."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose. Users say what they want, never how: there are few, and each has a reason."""

    kubeconfig: Annotated[
        str | None, Meta(description="Kubeconfig file. Default: `KUBECONFIG`, `~/.kube/config`, then in-cluster.")
    ] = None
    context: Annotated[str | None, Meta(description="Context of the kubeconfig. Default: its current-context.")] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Meta(description="The least severe log lines to write. Default: `info` for `run`, `warning` for others."),
    ] = None
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="How log lines look; `auto` is text on a terminal and JSON elsewhere."),
    ] = "auto"
    namespace: Annotated[
        str | None,
        Meta(
            description="Where the operator lives and keeps its Lease. Default: its pod's or its context's namespace.",
            extra={"command": "run"},
        ),
    ] = None
    gpu_resources: Annotated[
        str | None,
        Meta(
            description="Resources by which pods ask for GPUs, with commas between. Default: every `<vendor>/gpu`.",
            extra={"command": "run"},
        ),
    ] = None
    idle_delay: Annotated[
        str,
        Meta(
            description="How long an owned machine must have been idle before it is switched off. `0s`: at once.",
            extra={"command": "run"},
        ),
    ] = "30s"
    scale_down_interval: Annotated[
        str,
        Meta(
            description="Owned machines are switched off one at a time, with this much time in between.",
            extra={"command": "run"},
        ),
    ] = "10s"
    health_server_address: Annotated[
        str,
        Meta(description="Where `/healthz`, `/readyz` and `/metrics` are served.", extra={"command": "run"}),
    ] = ":8080"


class Setting(msgspec.Struct, frozen=True):
    """One field of `Settings`, as documentation and command line see it."""

    name: str
    default: Any
    description: str
    choices: tuple[str, ...]
    #: The one command that has a use for it; None where all have.
    command: str | None

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "FOREBAY_" + self.name.upper()


def all_settings() -> tuple[Setting, ...]:
    """The settings in the order they are declared."""
    hints = get_type_hints(Settings, include_extras=True)
    found = []
    for field in msgspec.structs.fields(Settings):
        annotation = hints[field.name]
        choices = _choices(annotation.__origin__)
        meta = annotation.__metadata__[0]
        only = (meta.extra or {}).get("command")
        found.append(Setting(field.name, field.default, meta.description, choices, only))
    return tuple(found)


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words of a Literal, also of one that may be left out."""
    if getattr(annotation, "__origin__", None) is Literal:
        return tuple(annotation.__args__)
    return next((found for each in getattr(annotation, "__args__", ()) if (found := _choices(each))), ())


def read_settings(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Options win over the environment; an empty variable counts as unset, as it does for kubectl."""
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for setting in all_settings():
        given = options.get(setting.name)
        if given is not None:
            values[setting.name], sources[setting.name] = given, setting.option
        elif environment.get(setting.variable):
            values[setting.name], sources[setting.name] = environment[setting.variable], setting.variable
    for setting in all_settings():
        value = values.get(setting.name)
        if value is not None and setting.choices and value not in setting.choices:
            raise SettingsError(f"{sources[setting.name]} is {value!r}; it takes one of: {', '.join(setting.choices)}.")
    return msgspec.convert(values, Settings, strict=False)
