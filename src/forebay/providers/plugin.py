"""What a provider is registered as: its capabilities, and how it is built from an entry of a GPUNodeClass."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.model.secret_text import SecretText
from forebay.model.sources import Capabilities
from forebay.net import clock as wall
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport
from forebay.providers.base import GroupsProvider, Provider
from forebay.providers.secrets import SecretReader


class ProviderContext(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of providers, beside their entry."""

    #: Makes a transport with these TLS options (None: the system's).
    make_transport: Callable[[TlsOptions | None], Transport]
    secrets: SecretReader
    #: Namespace of the operator, and of Secrets whose reference names none.
    namespace: str
    #: UID of the cluster, with which rented instances are tagged.
    cluster: str
    redactor: Redactor
    clock: Callable[[], datetime] = wall.now


class EnvironmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What environment variables configure of one provider."""

    #: The entry that a GPUNodeClass would have; None where the variables configure nothing.
    entry: Entry | None = None
    #: The same as everybody may see it.
    shown: Entry | None = None
    #: Variables that hold secrets which the entry refers to.
    secrets: Mapping[str, SecretText] = {}
    #: The variable that states the number of GPUs of each machine, by its name.
    gpu_count_variables: Mapping[str, str] = {}
    #: A sentence for each variable that must be corrected.
    problems: tuple[str, ...] = ()


class ProviderPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as it is registered."""

    #: What the provider can do. What depends on an entry, such as timeouts, follows once it is built.
    capabilities: Capabilities
    #: The provider of an entry. It makes no call yet.
    build: Callable[[Entry, ProviderContext], Provider]
    #: The provider of the instance groups of a NodeProvisioner; None: it has no groups.
    build_groups: Callable[[NodeProvisionerSpec, ProviderContext], GroupsProvider] | None = None
    #: What environment variables of the operator configure; None: nothing, ever.
    from_environment: Callable[[Mapping[str, str]], EnvironmentEntry] | None = None


class ProviderNotServed(ValueError):
    """No provider can be built for an entry: what is wrong and what to do. The text is shown in a condition."""
