"""What is wrong with how a class says its machines join: found before anything is rented."""

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.joining import TalosConfig
from forebay.bootstrap.cloud_init import is_script, known_variables
from forebay.bootstrap.node_registration import NODE_VARIABLES
from forebay.bootstrap.tailscale import AUTH_KEY
from forebay.bootstrap.talos import known_talos_variables
from forebay.bootstrap.talos_checks import template_fault
from forebay.bootstrap.templates import template_problem, variables_of
from forebay.model.sources import Capabilities


def join_problem(spec: GPUNodeClassSpec, capabilities: Capabilities) -> str | None:
    """What must be corrected in the class before machines of a provider with these capabilities can join; None:
    nothing.
    """
    tailscale = spec.tailscale_config
    if tailscale is not None and tailscale.hostname is not None:
        problem = template_problem(tailscale.hostname, NODE_VARIABLES)
        if problem is not None:
            return f"tailscaleConfig.hostname cannot be used: {problem}"
    if spec.talos_config is not None:
        return _talos_problem(spec.talos_config, spec)
    if spec.cloud_init is not None:
        return _cloud_init_problem(spec.cloud_init.template, spec, capabilities)
    return None


def _talos_problem(config: TalosConfig, spec: GPUNodeClassSpec) -> str | None:
    if config.image is None:
        return (
            "talosConfig.image is not set: name the Talos image at the provider. The provider's usual image is not "
            "Talos, so that its machines would never join."
        )
    endpoint = (config.control_plane_endpoint or "").startswith("https://")
    template = config.machine_config_template
    if template is None and not endpoint:
        return "talosConfig.controlPlaneEndpoint is not set: set the https URL of the API server as machines reach it."
    if template is None:
        return None
    fault = template_fault(template, known_talos_variables(spec), endpoint=endpoint)
    return f"talosConfig.machineConfigTemplate cannot be used: {fault}." if fault is not None else None


def _cloud_init_problem(template: str, spec: GPUNodeClassSpec, capabilities: Capabilities) -> str | None:
    problem = template_problem(template, known_variables(spec))
    if problem is not None:
        return f"cloudInit.template cannot be used: {problem}"
    if spec.tailscale_config is not None and AUTH_KEY not in variables_of(template):
        return (
            "cloudInit.template does not use {{.TailscaleAuthKey}}: let it enter the tailnet, or remove "
            "tailscaleConfig."
        )
    if not template.startswith(("#", "## template: jinja", "Content-Type:", "MIME-Version:")):
        return (
            "cloudInit.template cannot be used: it begins with neither #cloud-config nor #!, so that no machine would "
            "read it."
        )
    if capabilities.takes_script and not is_script(template):
        return (
            "cloudInit.template cannot be used: machines of this provider run a script at boot and do not read "
            "cloud-init's own format. Begin it with #!/bin/bash, or move the provider to another GPUNodeClass."
        )
    return None
