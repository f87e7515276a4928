"""The provider `runpod` as it is registered."""

from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_node_class import EndpointsFrom
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.model.secret_text import SecretText
from forebay.providers.cloud_frame import builder
from forebay.providers.plugin import EnvironmentEntry, ProviderPlugin
from forebay.providers.runpod.lanes import lane_of
from forebay.providers.runpod.offers import NAME
from forebay.providers.runpod.provider import CAPABILITIES, RunpodProvider
from forebay.providers.runpod.wire import BASE
from forebay.providers.secrets import variable_ref

#: Variables with the API key, as users of the RunPod Job controller know them; the first that is set counts.
KEY_VARIABLES: Final = ("RUNPOD_KEY", "RUNPOD_API_KEY")
#: Base URL of another API than the public one, such as a proxy.
ENDPOINT_VARIABLE: Final = "RUNPOD_ENDPOINT"


def _from_environment(environment: Mapping[str, str]) -> EnvironmentEntry:
    """A key in the environment is enough: no class has to be written then."""
    variable = next((name for name in KEY_VARIABLES if environment.get(name, "").strip()), None)
    if variable is None:
        return EnvironmentEntry()
    endpoint = environment.get(ENDPOINT_VARIABLE) or None
    return EnvironmentEntry(
        entry=Entry(name=NAME, endpoint=endpoint, credentials_ref=variable_ref(variable)),
        shown=Entry(name=NAME, endpoint=endpoint, endpoints_from=EndpointsFrom.ENVIRONMENT),
        secrets={variable: SecretText(environment[variable].strip())},
    )


PLUGIN: Final = ProviderPlugin(
    capabilities=CAPABILITIES,
    build=builder(RunpodProvider, CAPABILITIES, BASE, lane_of),
    from_environment=_from_environment,
)
