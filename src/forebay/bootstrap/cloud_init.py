"""Boot data of a class's own template: cloud-init user data, or a script."""

from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.bootstrap.node_registration import NODE_VARIABLES, node_variables
from forebay.bootstrap.tailscale import TAILSCALE_VARIABLES, tailscale_variables
from forebay.bootstrap.templates import filled_in

#: Variable of the machine's own bootstrap token.
BOOTSTRAP_TOKEN_VARIABLE: Final = "BootstrapToken"  # noqa: S105 (a variable of templates)


def boot_template(spec: GPUNodeClassSpec) -> str | None:
    """The class's own template of what machines boot; None where Forebay writes that."""
    if spec.cloud_init is not None:
        return spec.cloud_init.template
    return spec.talos_config.machine_config_template if spec.talos_config is not None else None


def known_variables(spec: GPUNodeClassSpec) -> frozenset[str]:
    """Names that the template of the class may use."""
    tailscale = TAILSCALE_VARIABLES if spec.tailscale_config is not None else frozenset()
    return NODE_VARIABLES | {BOOTSTRAP_TOKEN_VARIABLE} | tailscale


def user_data(record: GPUInstance, spec: GPUNodeClassSpec, template: str, values: Mapping[str, str]) -> str:
    """The boot data of the record's machine. `values` are those of its join credentials. Raises `UnusableTemplate`."""
    return filled_in(
        template, {**node_variables(record), **tailscale_variables(record, spec.tailscale_config), **values}
    )


def is_script(template: str) -> bool:
    """True where the text is a script, and not cloud-init's own format."""
    return template.startswith("#!")
