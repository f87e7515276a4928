"""What a machine is told at its first boot: the class's join method, with everything that it needs filled in."""

from collections.abc import Mapping

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.joining import K3sConfig, KubeadmConfig, TalosConfig
from forebay.api.parts import SecretKeyRef
from forebay.bootstrap.class_checks import join_problem
from forebay.bootstrap.cloud_init import BOOTSTRAP_TOKEN_VARIABLE, boot_template, user_data
from forebay.bootstrap.k3s import is_k3s, join_token, k3s_script
from forebay.bootstrap.kubeadm import authority_hashes, kubeadm_script
from forebay.bootstrap.scripts import cloud_config
from forebay.bootstrap.tailscale import AUTH_KEY, tailscale_step
from forebay.bootstrap.talos import UnusableMachineSecrets, cluster_values, machine_config, machine_secrets
from forebay.bootstrap.templates import UnusableTemplate, variables_of
from forebay.join.base import JoinError, JoinRejected
from forebay.kube.authority import cluster_authority
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.node_identity import own_provider_id
from forebay.model.secret_text import SecretText
from forebay.model.sources import Capabilities
from forebay.net.redaction import Redactor
from forebay.net.transport import TransportError
from forebay.providers.base import BootKind, BootPayload
from forebay.providers.secrets import SecretReader, SecretsUnavailable, UnusableSecret


class JoinPayloads:
    """Writes boot payloads. Secrets are read anew for each, so that a corrected one counts at once."""

    def __init__(self, client: Client, secrets: SecretReader, redactor: Redactor, namespace: str) -> None:
        self._client = client
        self._secrets = secrets
        self._redactor = redactor
        self._namespace = namespace

    async def payload(
        self, record: GPUInstance, node_class: GPUNodeClass, values: Mapping[str, str], capabilities: Capabilities
    ) -> BootPayload | None:
        """The payload of the record's machine, with the secret values of its credentials; None where the class says
        nothing. Raises `JoinError`, and `JoinRejected` where a person must correct the class.
        """
        try:
            return await self._payload(record, node_class.spec, values, capabilities)
        except UnusableTemplate as error:
            raise JoinRejected(f"GPUNodeClass {node_class.metadata.name} cannot be used: {error}") from error
        except (UnusableSecret, JoinRejected) as error:
            raise JoinRejected(f"GPUNodeClass {node_class.metadata.name} cannot be used: {error}.") from error
        except SecretsUnavailable as error:
            raise JoinError(f"{error}.") from error
        except (KubeError, TransportError) as error:
            raise JoinError(f"The cluster could not be asked for what a machine needs to join: {error}") from error

    async def read_secret(self, namespace: str | None, name: str) -> Mapping[str, bytes]:
        """The data of a Secret for join credentials. Raises `JoinError`."""
        try:
            return await self._secrets.get(namespace or self._namespace, name)
        except UnusableSecret as error:
            raise JoinRejected(f"{error}.") from error
        except SecretsUnavailable as error:
            raise JoinError(f"{error}.") from error

    async def _payload(
        self, record: GPUInstance, spec: GPUNodeClassSpec, values: Mapping[str, str], capabilities: Capabilities
    ) -> BootPayload | None:
        if (problem := join_problem(spec, capabilities)) is not None:
            # The class was changed after the machine was planned.
            raise JoinRejected(problem.rstrip("."))
        network = None
        if spec.tailscale_config is not None and AUTH_KEY in values:
            network = tailscale_step(record, spec.tailscale_config, values[AUTH_KEY])
        if spec.cloud_init is not None:
            text = user_data(record, spec, spec.cloud_init.template, values)
            kind = BootKind.SCRIPT if capabilities.takes_script else BootKind.CLOUD_INIT
            return BootPayload(kind=kind, text=SecretText(text))
        if spec.talos_config is not None:
            shared = await self._talos_values(spec.talos_config)
            text = machine_config(record, spec, {**shared, **values})
            return BootPayload(kind=BootKind.TALOS, text=SecretText(text))
        if spec.k3s_config is not None:
            text = await self._k3s(record, spec.k3s_config, values, network)
        elif spec.kubeadm_config is not None:
            text = await self._kubeadm(record, spec.kubeadm_config, values, network)
        else:
            return None
        if capabilities.takes_script:
            return BootPayload(kind=BootKind.SCRIPT, text=SecretText(text))
        return BootPayload(kind=BootKind.CLOUD_INIT, text=SecretText(cloud_config(text)))

    async def _k3s(self, record: GPUInstance, config: K3sConfig, values: Mapping[str, str], network: str | None) -> str:
        version = config.version
        if version is None:
            version = await self._version()
            if not is_k3s(version):
                raise JoinRejected(
                    f"the API server is {version}, which is no version of k3s: set k3sConfig.version to the "
                    "version of k3s to install"
                )
        agent_token = await self._secret(config.token_secret_ref)
        token = join_token(agent_token, values.get(BOOTSTRAP_TOKEN_VARIABLE))
        return k3s_script(record, config, token=token, version=version, network=network)

    async def _kubeadm(
        self, record: GPUInstance, config: KubeadmConfig, values: Mapping[str, str], network: str | None
    ) -> str:
        version = config.kubernetes_version or _release(await self._version())
        pins = config.ca_cert_hashes or await self._pins()
        token = values[BOOTSTRAP_TOKEN_VARIABLE]
        return kubeadm_script(record, config, token=token, version=version, pins=pins, network=network)

    async def _talos_values(self, config: TalosConfig) -> Mapping[str, str]:
        secrets = None
        if config.secrets_ref is not None:
            try:
                secrets = machine_secrets(await self._secret(config.secrets_ref))
            except UnusableMachineSecrets as error:
                where = f"Secret {config.secrets_ref.namespace or self._namespace}/{config.secrets_ref.name}"
                raise UnusableSecret(f"key {config.secrets_ref.key} of {where}: {error}") from error
            for each in (secrets.trustdinfo.token, secrets.cluster.secret):
                self._redactor.register(each)
        image = f"ghcr.io/siderolabs/kubelet:{_release(await self._version())}"
        return cluster_values(config, secrets, image)

    async def _pins(self) -> tuple[str, ...]:
        found = await cluster_authority(self._client, self._namespace)
        try:
            pins = authority_hashes(found) if found is not None else ()
        except ValueError:
            pins = ()
        if not pins:
            raise JoinRejected(
                f"the CA of the cluster is not published in ConfigMap {self._namespace}/kube-root-ca.crt: set "
                "kubeadmConfig.caCertHashes"
            )
        return pins

    async def _version(self) -> str:
        return (await self._client.version()).git_version

    async def _secret(self, ref: SecretKeyRef) -> str:
        namespace = ref.namespace or self._namespace
        found = await self._secrets.get(namespace, ref.name)
        if ref.key not in found:
            raise UnusableSecret(f"Secret {namespace}/{ref.name} has no key {ref.key}: add it, or name another key")
        self._redactor.register(found[ref.key])
        try:
            text = found[ref.key].decode().strip()
        except UnicodeDecodeError as error:
            raise UnusableSecret(f"key {ref.key} of Secret {namespace}/{ref.name} is not text") from error
        self._redactor.register(text)
        return text


def _release(version: str) -> str:
    """The release of Kubernetes that a server's version is built from: v1.36.4 of v1.36.4-gke.100."""
    return version.partition("+")[0].partition("-")[0]


def registers_as(record: GPUInstance, node_class: GPUNodeClass | None) -> str | None:
    """The spec.providerID that the machine is told to register with; None: it gets one from its provider, or none."""
    if node_class is None or not policy_of(record).joins_as_new_node:
        return None
    spec = node_class.spec
    template = boot_template(spec)
    joins = any(each is not None for each in (spec.k3s_config, spec.kubeadm_config, spec.talos_config))
    told = joins if template is None else "ProviderID" in variables_of(template)
    return own_provider_id(record) if told else None
