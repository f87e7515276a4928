import pytest

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.net.in_process import InProcess
from forebay.net.redaction import HIDDEN, Redactor
from forebay.net.transport import Response
from forebay.providers.admission import KNOWN
from forebay.providers.base import LaunchRequest, Rejected
from forebay.providers.own import OWN
from forebay.providers.plugin import ProviderContext, ProviderNotServed
from forebay.providers.registry import EnvironmentConfig, build_provider, providers, read_environment
from forebay.providers.secrets import Secrets, UnusableSecret


class FakeSecrets:
    """A SecretReader that counts reads."""

    def __init__(self, **held):
        self.held = held
        self.reads = []

    async def get(self, namespace, name):
        self.reads.append(f"{namespace}/{name}")
        if name not in self.held:
            raise UnusableSecret(f"there is no Secret {namespace}/{name}: create it")
        return self.held[name]


async def no_content(_request):
    return Response(204)


def context():
    return ProviderContext(
        make_transport=lambda _tls: InProcess(no_content),
        secrets=FakeSecrets(),
        namespace="forebay",
        cluster="c-1",
        redactor=Redactor(),
    )


def build(entry):
    return build_provider(entry, GPUNodeClassSpec(providers=(entry,)), context())


VARIABLES = {
    "BOX_NAME": "gpu-1",
    "BOX_GPU_COUNT": "4",
    "BOX_SCALE_UP_ENDPOINT": "http://admin:hunter2@p/on",
    "BOX_SCALE_DOWN_ENDPOINT": "http://p/off?key=s3cr3t",
    "BOX_HEADERS_SECRET": "power-api",
    "BOX_GPU_TYPE": "L40S",
}


async def test_machines_of_the_environment_are_built_like_those_of_a_class():
    (entry,) = read_environment(VARIABLES).entries
    provider = build(entry)
    assert [offer.node_name for offer in await provider.offers()] == ["gpu-1"]
    await provider.close()


async def test_what_is_shown_of_the_environment_has_offers_but_nothing_to_call():
    (entry,) = read_environment(VARIABLES).shown
    assert not [word for word in ("hunter2", "s3cr3t", "power-api", "http") if word in str(entry)]
    provider = build(entry)
    (offer,) = await provider.offers()
    assert (offer.node_name, offer.gpu_type, offer.gpu_count) == ("gpu-1", "L40S", 4)
    request = LaunchRequest(uid="u", name="gpu-1", cluster="c", offer=offer, node_name="gpu-1")
    with pytest.raises(Rejected, match="gpu-1: its endpoints are not known here"):
        await provider.launch(request)
    with pytest.raises(Rejected):
        await provider.terminate("gpu-1")
    assert (await provider.instances()).unknown == {"gpu-1"}
    await provider.close()


def test_an_environment_without_machines_configures_nothing():
    assert read_environment({"PATH": "/bin"}) == EnvironmentConfig()
    (problem,) = read_environment(VARIABLES | {"BOX_NAME": ""}).problems
    assert problem.startswith("BOX_NAME is missing")


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - providers().keys()))
def test_a_provider_of_a_later_release_is_refused_with_what_to_do(name):
    with pytest.raises(ProviderNotServed) as caught:
        build(Entry(name=name))
    assert str(caught.value) == (
        f"This release of Forebay does not serve the provider {name}; there are: {', '.join(OWN)}. "
        f"Upgrade Forebay, or set enabled: false on {name}."
    )


def test_a_name_that_nobody_has_is_refused_with_the_names_there_are():
    with pytest.raises(ProviderNotServed) as caught:
        build(Entry(name="my-cloud"))
    assert str(caught.value) == (
        f"There is no provider my-cloud; there are: {', '.join(OWN)}. Correct the name, or install the package that "
        "provides my-cloud beside Forebay."
    )


async def test_a_secret_is_read_once_until_it_is_invalidated():
    reader = FakeSecrets(power={"token": b"first-token"})
    secrets = Secrets(reader, "forebay", Redactor())
    token = SecretKeyRef(name="power", key="token")
    assert await secrets.value(token) == b"first-token"
    assert (await secrets.read(SecretRef(name="power")))["token"] == b"first-token"
    assert reader.reads == ["forebay/power"]
    reader.held["power"] = {"token": b"second-token"}
    secrets.invalidate(token, None)
    assert await secrets.value(token) == b"second-token"
    assert reader.reads == ["forebay/power"] * 2


async def test_the_values_of_a_secret_are_redacted_as_soon_as_it_is_read():
    redactor = Redactor()
    secrets = Secrets(FakeSecrets(power={"token": b"s3cr3t-token"}), "forebay", redactor)
    await secrets.read(SecretRef(name="power", namespace="infra"))
    assert redactor.text("the answer repeats s3cr3t-token") == f"the answer repeats {HIDDEN}"


async def test_a_missing_key_is_named():
    secrets = Secrets(FakeSecrets(power={}), "forebay", Redactor())
    with pytest.raises(UnusableSecret, match="Secret infra/power has no key token: add it"):
        await secrets.value(SecretKeyRef(name="power", key="token", namespace="infra"))
