"""How a machine is told to join: by the Secrets that its class names, wherever these are."""

import msgspec
import pytest

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.meta import ObjectMeta
from forebay.engine.apply.join_payloads import JoinPayloads
from forebay.join.base import JoinError, JoinRejected
from forebay.model.sources import Capabilities, Delivery
from forebay.net.redaction import Redactor
from forebay.providers.secrets import SecretsUnavailable, UnusableSecret
from tests.unit.lifecycle.builders import S, record

SCRIPTS = Capabilities(deliveries=(Delivery.NODE,), takes_script=True)


class Secrets:
    def __init__(self, data=None, error=None):
        self.data, self.error, self.read = data or {}, error, []

    async def get(self, namespace, name):
        self.read.append((namespace, name))
        if self.error is not None:
            raise self.error
        return self.data


def k3s(**reference):
    config = {
        "serverURL": "https://10.0.0.1:6443",
        "version": "v1.36.4+k3s1",
        "tokenSecretRef": {"name": "k3s", "key": "token", **reference},
    }
    spec = {"providers": [{"name": "simulated"}], "k3sConfig": config}
    return GPUNodeClass(metadata=ObjectMeta(name="cloud"), spec=msgspec.convert(spec, GPUNodeClassSpec))


async def written(node_class, secrets, capabilities=SCRIPTS):
    payloads = JoinPayloads(None, secrets, Redactor(), "forebay")
    return await payloads.payload(record(S.LAUNCHING), node_class, {}, capabilities)


@pytest.mark.parametrize(("reference", "namespace"), [({}, "forebay"), ({"namespace": "keys"}, "keys")])
async def test_the_token_is_read_from_the_namespace_that_is_named_or_else_from_the_operators_own(reference, namespace):
    secrets = Secrets({"token": b"K10abc::server:xyz\n"})
    await written(k3s(**reference), secrets)
    assert secrets.read == [(namespace, "k3s")]


async def test_a_provider_that_takes_no_script_gets_it_as_cloud_config():
    secrets = Secrets({"token": b"K10abc::server:xyz"})
    plain = await written(k3s(), secrets)
    wrapped = await written(k3s(), secrets, Capabilities(deliveries=(Delivery.NODE,)))
    assert (plain.kind.name, wrapped.kind.name) == ("SCRIPT", "CLOUD_INIT")


async def test_a_script_of_the_user_goes_as_one_to_a_provider_that_runs_it_and_through_cloud_init_elsewhere():
    spec = {"providers": [{"name": "simulated"}], "cloudInit": {"template": "#!/bin/bash\njoin {{.NodeName}}\n"}}
    own = GPUNodeClass(metadata=ObjectMeta(name="cloud"), spec=msgspec.convert(spec, GPUNodeClassSpec))
    plain = await written(own, Secrets())
    through = await written(own, Secrets(), Capabilities(deliveries=(Delivery.NODE,)))
    assert (plain.kind.name, through.kind.name) == ("SCRIPT", "CLOUD_INIT")
    assert plain.text.reveal() == through.text.reveal() == "#!/bin/bash\njoin pool-abc\n"


@pytest.mark.parametrize(
    ("secrets", "error", "words"),
    [
        (Secrets({"other": b"x"}), JoinRejected, "has no key token: add it, or name another key"),
        (Secrets({"token": b"\xff"}), JoinRejected, "key token of Secret forebay/k3s is not text"),
        (Secrets(error=UnusableSecret("It does not exist")), JoinRejected, "cloud cannot be used: It does not exist."),
        (Secrets(error=SecretsUnavailable("Away")), JoinError, "Away."),
    ],
    ids=["no key", "no text", "missing", "away"],
)
async def test_a_secret_that_cannot_be_used_says_whether_a_person_must_act(secrets, error, words):
    with pytest.raises(error) as raised:
        await written(k3s(), secrets)
    assert words in str(raised.value)
    assert isinstance(raised.value, JoinRejected) is (error is JoinRejected)


async def test_a_class_that_was_changed_meanwhile_so_that_nothing_could_join_launches_nothing():
    # Without its image, the machine would boot the provider's usual one, and never join.
    fields = {"secretsRef": {"name": "talos", "key": "secrets"}, "controlPlaneEndpoint": "https://10.0.0.1:6443"}
    spec = msgspec.convert({"providers": [{"name": "gcp"}], "talosConfig": fields}, GPUNodeClassSpec)
    changed_meanwhile = GPUNodeClass(metadata=ObjectMeta(name="cloud"), spec=spec)
    with pytest.raises(JoinRejected, match=r"GPUNodeClass cloud cannot be used: talosConfig\.image is not set"):
        await written(changed_meanwhile, Secrets(), Capabilities(deliveries=(Delivery.NODE,)))
