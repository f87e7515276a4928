"""Conformance servers of real clouds: the fault list, and a crash before and after every request to them.

Nothing is left of machines, keys and scripts; nothing is bought twice; the bill is exact where the cloud tells when a
machine began and ended, and never too small where it does not.
"""

import hashlib
from functools import partial

import msgspec
import pytest

from forebay.providers.crusoe.order import name_prefix
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
from tests.crash.places import deaths_of, survives
from tests.crash.worlds import Work
from tests.deep import DEEP
from tests.engine.power_world import POWER, SERVER

WORK = (Work("one", 1, at=5), Work("four", 4, at=8, runs=40))
#: Two launches and a termination.
_LEAST_PLACES = 3
#: Two listings without it, and a minute of rounding.
_SEEN_LATE = 180
#: What the tests look at beside what acts: the listings of the clouds.
_LISTINGS = ("/instances", "/machines", "/ssh-keys", "/startup-scripts", "/disks", "/devices", "/keys")
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


def leave_behind(server, cluster):
    """A machine with the cluster's tag that no record knows."""
    match server.provider:
        case "crusoe":
            key = server.key_of("l40s-48gb.1x", "us-east1", zone="us-east1-a")
            server.rent(key, name=f"{name_prefix(cluster)}7f0c9a4e-0000-4000-8000-000000000009")
        case "gcp":
            server.leave_behind("n1-standard-8+1xT4", cluster)
        case "lambdalabs":
            server.leave_behind("gpu_1x_h100", cluster)
        case "paperspace":
            digest = hashlib.sha256(cluster.encode()).hexdigest()[:12]
            server.leave_behind("A4000", f"forebay-{digest}-nobody")


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
    "two launch requests lost": {"script": lambda s: s.script(MarketCall.LAUNCH, *[faults.request_lost()] * 2)},
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


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_leftover_is_terminated_and_its_cost_is_known(cloud):
    def leave(world):
        uid = world.store.get(world.store.kinds.named("v1", "Namespace"), None, "kube-system")["metadata"]["uid"]
        leave_behind(*world.markets.values(), uid)

    outcome = rents(msgspec.structs.replace(world(cloud), later=((10.0, leave),)))
    assert outcome.found == ()
    assert [each["spec"]["purpose"] for each in outcome.cloud.records.values()].count("Adopted") == 1


@pytest.mark.parametrize("cloud", ["crusoe", "gcp"])
def test_disks_that_outlive_their_machines_are_deleted(cloud):
    """The machine is billed until its disk is gone, too."""
    assert rents(world(cloud, options={"leaves_disks": True}, seen_late=_SEEN_LATE)).found == ()


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
    sent = [each for each in whole.ledger.requests if not each.url.startswith((SERVER, POWER))]
    acts = [each for each in sent if each.method != "GET"]
    lists = [each for each in sent if each.path.endswith(_LISTINGS)]
    assert len(acts) >= _LEAST_PLACES
    for place in (*acts, *[each for each in lists if each.method == "GET" and each.at <= whole.quiet_at][::2]):
        outcome = rents(scenario, {place.number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())


#: Every fault at every cloud under `make deep`; else each at one of them in turn.
PAIRS = [
    (fault, cloud)
    for number, fault in enumerate(FAULTS)
    for turn, cloud in enumerate(CLOUDS)
    if DEEP or number % len(CLOUDS) == turn
]


@pytest.mark.law
@pytest.mark.parametrize(("fault", "cloud"), PAIRS)
def test_no_fault_of_a_cloud_and_crash_together_do_more_harm_than_either(fault, cloud):
    scenario = world(cloud, **FAULTS[fault])
    places = deaths_of(scenario, few=1, nth=list(FAULTS).index(fault))
    assert [breach for death in places for breach in survives(scenario, death)] == []
