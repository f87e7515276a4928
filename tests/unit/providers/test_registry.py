import pytest

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.machines import Machine
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.api.providers import ProviderName
from forebay.net.in_process import InProcess
from forebay.net.redaction import HIDDEN, Redactor
from forebay.net.transport import Response
from forebay.providers.registry import NotInThisRelease, ProviderContext, build_provider, environment_entry
from forebay.providers.secrets import Secrets, UnusableSecret

MACHINE = Machine(name="gpu-1", gpu_count=4, scale_up_endpoint="http://p/on", scale_down_endpoint="http://p/off")


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


async def test_machines_of_the_environment_are_built_like_those_of_a_class():
    provider = build_provider(environment_entry([MACHINE]), context())
    assert [offer.node_name for offer in await provider.offers()] == ["gpu-1"]
    await provider.close()


@pytest.mark.parametrize("name", [name for name in ProviderName if name is not ProviderName.WEBHOOK])
def test_an_unsupported_provider_is_refused_with_what_to_do(name):
    with pytest.raises(NotInThisRelease) as caught:
        build_provider(Entry(name=name), context())
    assert str(caught.value) == (
        f"This release of Forebay does not support the provider {name}; it supports webhook. "
        f"Upgrade Forebay, or set enabled: false on {name}."
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
