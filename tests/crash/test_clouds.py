"""Conformance servers of real clouds: the fault list, and a crash before and after every request to them.

Nothing is left of machines, keys and scripts; nothing is bought twice; the bill is exact where the cloud tells when a
machine began and ended, and never too small where it does not.
"""

from functools import partial

import pytest

from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.contract.providers.conformance import JOIN_LINE
from tests.contract.providers.crusoe.server import CrusoeCloud
from tests.contract.providers.crusoe.server import goods as crusoe_goods
from tests.contract.providers.gcp.server import ComputeEngine
from tests.contract.providers.gcp.server import goods as google_goods
from tests.contract.providers.lambdalabs.harness import skus as lambda_skus
from tests.contract.providers.lambdalabs.server import LambdaCloud
from tests.contract.providers.paperspace.harness import skus as paperspace_skus
from tests.contract.providers.paperspace.server import Paperspace
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.worlds import Work

WORK = (Work("one", 1, at=5), Work("four", 4, at=8, runs=40))
#: Two launches, two terminations, and what is made and deleted beside the machine.
_LEAST_PLACES = 5
#: Two listings without it, and a minute of rounding.
_SEEN_LATE = 180
_TIMES = {"boot": 20, "driver": 5, "shutdown": 5}


def lambda_cloud(nodes, **options):
    return LambdaCloud(lambda_skus(**_TIMES, minimum=60, increment=60), nodes, name="lambda", key="k-1", **options)


def paperspace(nodes, **options):
    return Paperspace(paperspace_skus(**_TIMES), nodes, name="paper", key="k-1", shows_deleted=True, **options)


def crusoe(nodes, **options):
    return CrusoeCloud(crusoe_goods(**_TIMES), nodes, name="crusoe", key="dHJpYWwta2V5", **options)


def google(nodes, **options):
    return ComputeEngine(google_goods(**_TIMES), nodes, name="google", key="k-1", **options)


#: How each cloud is made, what its machines run, and whether it tells when they ended.
CLOUDS = {
    "crusoe": (crusoe, "#!/bin/sh", False),
    "gcp": (google, "#cloud-config", False),
    "lambdalabs": (lambda_cloud, "#cloud-config", False),
    "paperspace": (paperspace, "#!/bin/sh", True),
}


def world(name, script=None, *, work=WORK, later=(), options=None, **fields):
    make, shebang, tells = CLOUDS[name]
    return MarketScenario(
        clouds=(partial(make, **(options or {})),),
        joins={"cloudInit": {"template": f"{shebang}\n# {JOIN_LINE}\n"}},
        work=work,
        script=None if script is None else lambda cloud: script(*cloud.markets.values()),
        later=tuple((at, lambda cloud, happens=happens: happens(*cloud.markets.values())) for at, happens in later),
        **{"seen_late": 0 if tells else _SEEN_LATE, **fields},
    )


def reclaim(server):
    for instance in server.running:
        server.reclaim(instance)


def vanish(server):
    for instance in server.running:
        server.vanish(instance)


#: What goes wrong, at any cloud: what is scripted, or happens later, and options of the cloud and the world.
FAULTS = {
    "nothing": {},
    "answer to the launch lost": {"script": lambda s: s.script(MarketCall.LAUNCH, faults.answer_lost())},
    "launch request lost": {"script": lambda s: s.script(MarketCall.LAUNCH, faults.request_lost())},
    "listings lag and the answer is lost": {
        "script": lambda s: s.script(MarketCall.LAUNCH, faults.answer_lost()),
        "options": {"list_lag": 20.0},
    },
    "no capacity": {"script": lambda s: s.script(MarketCall.LAUNCH, s.no_capacity())},
    "quota": {"script": lambda s: s.script(MarketCall.LAUNCH, s.quota_reached())},
    "too many requests": {"script": lambda s: s.script(MarketCall.LAUNCH, s.rate_limited(30))},
    "the published limits": {"options": {"enforces_limits": True}},
    "server error after acting": {"script": lambda s: s.script(MarketCall.LAUNCH, faults.server_error(502, acts=True))},
    "two machines and no answer": {
        "script": lambda s: s.script(MarketCall.LAUNCH, faults.rents_twice(lost=True)),
        "rents_twice": True,
    },
    "a machine that never joins": {"script": lambda s: s.script_boots(Boot(joins=False))},
    "a machine that fails at boot": {"script": lambda s: s.script_boots(Boot(joins=False, loses_power_after=8))},
    "answer to the termination lost": {"script": lambda s: s.script(MarketCall.TERMINATE, faults.answer_lost())},
    "termination refused": {"script": lambda s: s.script(MarketCall.TERMINATE, s.refusal(400, "not now"))},
    "listings fail": {"script": lambda s: s.script(MarketCall.LIST, None, *[faults.server_error(503)] * 6)},
    # No cloud tells when it stopped a machine: Forebay counts until nothing is left of it.
    "preempted": {"later": ((60.0, reclaim),), "seen_late": _SEEN_LATE},
    "vanished": {"later": ((50.0, vanish),)},
    "key expires for a while": {"later": ((6.0, lambda s: s.refuse_credentials(60)),)},
    "key expired at the end": {"later": ((60.0, lambda s: s.refuse_credentials(60)),)},
}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_a_cloud_leaks_doubles_or_loses_anything(cloud, fault):
    assert rents(world(cloud, **FAULTS[fault])).found == ()


def mixed(server):
    """No capacity, then an answer that is lost; and at the end again."""
    server.script(MarketCall.LAUNCH, server.no_capacity(), faults.answer_lost())
    server.script(MarketCall.TERMINATE, faults.answer_lost())


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_request_to_a_cloud_is_a_bad_one_to_die_at(cloud, moment):
    """Every one that acts, and every second listing. Crashes at other requests are those of test_markets.py."""
    scenario = world(cloud, mixed, work=WORK[:1], options={"list_lag": 3.0})
    whole = rents(scenario)
    assert whole.found == ()
    sent = [each for each in whole.ledger.requests if each.url.startswith(("http://lambda/", "http://paper/"))]
    acts = [each for each in sent if each.method != "GET"]
    lists = [each for each in sent if each.path.endswith(("/instances", "/machines", "/ssh-keys", "/startup-scripts"))]
    assert len(acts) > _LEAST_PLACES
    for place in (*acts, *[each for each in lists if each.method == "GET" and each.at <= whole.quiet_at][::2]):
        outcome = rents(scenario, {place.number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())
