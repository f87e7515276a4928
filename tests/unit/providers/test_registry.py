import pytest

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.machines import Machine
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.api.providers import ProviderName
from forebay.net.in_process import InProcess
from forebay.net.redaction import HIDDEN, Redactor
from forebay.net.transport import Response
from forebay.providers.registry import NotInThisRelease, ProviderContext, build_provider, environment_entry
from forebay.providers.secrets import NoSecret, Secrets

MACHINE = Machine(name="gpu-1", gpu_count=4, scale_up_endpoint="http://p/on", scale_down_endpoint="http://p/off")


class Vault:
    """A SecretReader that counts."""

    def __init__(self, **held):
        self.held = held
        self.reads = []

    async def get(self, namespace, name):
        self.reads.append(f"{namespace}/{name}")
        if name not in self.held:
            raise NoSecret(f"there is no Secret {namespace}/{name}: create it")
        return self.held[name]


async def silence(_request):
    return Response(204)


def context():
    return ProviderContext(
        make_transport=lambda _tls: InProcess(silence),
        secrets=Vault(),
        namespace="forebay",
        cluster="c-1",
        redactor=Redactor(),
    )


async def test_machines_of_the_environment_are_a_provider_like_those_of_a_class():
    provider = build_provider(environment_entry([MACHINE]), context())
    assert [offer.node_name for offer in await provider.offers()] == ["gpu-1"]
    await provider.close()


@pytest.mark.parametrize("name", [name for name in ProviderName if name is not ProviderName.WEBHOOK])
def test_a_provider_this_release_lacks_says_so_and_what_to_do(name):
    with pytest.raises(NotInThisRelease) as caught:
        build_provider(Entry(name=name), context())
    assert str(caught.value) == (
        f"This release of Forebay cannot use the provider {name} yet; it has webhook. "
        "Upgrade to a release that has it, or set enabled: false on it."
    )


async def test_a_secret_is_read_once_until_it_is_doubted():
    vault = Vault(power={"token": b"first-token"})
    secrets = Secrets(vault, "forebay", Redactor())
    token = SecretKeyRef(name="power", key="token")
    assert await secrets.value(token) == b"first-token"
    assert (await secrets.whole(SecretRef(name="power")))["token"] == b"first-token"
    assert vault.reads == ["forebay/power"]
    vault.held["power"] = {"token": b"second-token"}
    secrets.doubt(token, None)
    assert await secrets.value(token) == b"second-token"
    assert vault.reads == ["forebay/power"] * 2


async def test_what_a_secret_holds_is_hidden_from_the_moment_it_was_read():
    redactor = Redactor()
    secrets = Secrets(Vault(power={"token": b"s3cr3t-token"}), "forebay", redactor)
    await secrets.whole(SecretRef(name="power", namespace="infra"))
    assert redactor.text("the answer repeats s3cr3t-token") == f"the answer repeats {HIDDEN}"


async def test_a_missing_key_is_named():
    secrets = Secrets(Vault(power={}), "forebay", Redactor())
    with pytest.raises(NoSecret, match="Secret infra/power has no key token: add it"):
        await secrets.value(SecretKeyRef(name="power", key="token", namespace="infra"))
