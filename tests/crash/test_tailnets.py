"""Machines that enter a tailnet: faults of Tailscale, and crashes at every request to it and to the cloud.

No key, device, bootstrap token or machine is left, and every machine that is rented gets in.
"""

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market import MarketCall
from forebay.simulate.market_goods import Sku
from forebay.simulate.power_faults import Boot
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.worlds import Work
from tests.joining import TAILSCALE

SKUS = {"alpha": (Sku(instance_type="small", gpus=1, hourly_price="1.20", region="west", boot=20, driver=5, stock=3),)}
JOINS = {
    "cloudInit": {
        "template": "#cloud-config\n# enter by {{.TailscaleAuthKey}}, join as {{.NodeName}} with {{.BootstrapToken}}\n"
    },
    "tailscaleConfig": TAILSCALE,
}
_KEYS, _DEVICES, _DEVICE = "/tailnet/-/keys", "/tailnet/-/devices", "/device/"
#: A key made and revoked, a device deleted, a machine launched and terminated, and tokens for it.
_LEAST_PLACES = 6


def world(tailnet=lambda _server: None, script=None, **fields):
    return MarketScenario(
        skus=SKUS,
        joins=JOINS,
        work=(Work("one", 1, at=5),),
        tailnet=tailnet,
        script=None if script is None else lambda cloud: script(cloud.markets["alpha"]),
        **fields,
    )


def fails(method, path, *what):
    return lambda server: [server.fail(method, path, each) for each in what]


def hides_keys(server):
    """Listings of keys tell nothing but ids, as older versions of the API do."""
    server.descriptions_listed = False
    server.fail("POST", _KEYS, "lost")


FAULTS = {
    "nothing": world(),
    "no token": world(fails("POST", "/oauth/token", 500)),
    "tokens expire": world(fails("POST", _KEYS, "expired")),
    "answer to the key lost": world(fails("POST", _KEYS, "lost")),
    "answer to the key lost, and keys without descriptions": world(hides_keys),
    "no key": world(fails("POST", _KEYS, 500, 503)),
    "key not revoked": world(fails("DELETE", _KEYS, 500, "lost")),
    "devices not listed": world(fails("GET", _DEVICES, 503, 503, "lost")),
    "device not deleted": world(fails("DELETE", _DEVICE, 500, "lost")),
    "answer to the launch lost": world(script=lambda s: s.script(MarketCall.LAUNCH, faults.answer_lost())),
    "no capacity": world(script=lambda s: s.script(MarketCall.LAUNCH, faults.no_capacity())),
    "a machine that never joins": world(script=lambda s: s.script_boots(Boot(joins=False))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_a_tailnet_leaves_a_key_or_a_device(fault):
    assert rents(FAULTS[fault]).found == ()


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("fault", ["nothing", "answer to the key lost", "device not deleted"])
def test_no_request_to_a_tailnet_is_a_bad_one_to_die_at(fault, moment):
    whole = rents(FAULTS[fault])
    assert whole.found == ()
    places = [
        each
        for each in whole.ledger.requests
        if "//api.tailscale.com/" in each.url or (each.url.startswith("http://alpha/") and each.method != "GET")
    ]
    assert len(places) >= _LEAST_PLACES
    for place in places:
        outcome = rents(FAULTS[fault], {place.number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())
