"""Managed instance groups of Google's conformance server: the fault list, and a crash before and after every request.

The size at the server is the target at the end, no node is deleted under a pod, nothing is bought twice, and the bill
is exact: Google tells when each machine was created and deleted.
"""

import base64
from functools import partial

import pytest

from forebay.embedded.api.kinds import SECRET_KIND
from forebay.simulate import market_faults as faults
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power_faults import Boot
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.gcp.tokens import key_file
from tests.crash.market_worlds import MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.worlds import Work
from tests.engine.group_world import KIND

KEY = "planted-api-key-9c1d"
NEAR, FAR = "g2-standard-8", "n1-standard-8+1xT4"
WORK = (Work("one", 1, at=5), Work("two", 1, at=8, runs=40), Work("more", 1, at=30, runs=60))
GROW, SHRINK, GROUP = MarketCall.GROW, MarketCall.SHRINK, MarketCall.GROUP
_PARTS = 4


def engine(nodes, **options):
    return ComputeEngine(goods(boot=20, driver=5, shutdown=5), nodes, key=KEY, **options)


def server(cloud):
    (found,) = cloud.markets.values()
    return found


def groups(cloud, *, chooses=False, regional=False, queued=False):
    """Two groups in two zones, or one that is regional."""
    secret = {"metadata": {"name": "google", "namespace": "kube-system"}}
    cloud.store.create(SECRET_KIND, secret | {"data": {"key": base64.b64encode(key_file(KEY, "http://gcp")).decode()}})
    fields = {"targetSizePolicy": {"mode": "BULK"}} if chooses else {}
    if regional:
        zones = ("us-central1-a", "us-central1-b")
        server(cloud).add_group("first", NEAR, at="us-central1", zones=zones, **fields)
    else:
        server(cloud).add_group("first", FAR, at="us-central1-a", **fields)
        server(cloud).add_group("second", NEAR, at="us-central1-b", **fields)
    spec = {
        "existingInstanceGroupNames": ["first"] if regional else ["first", "us-central1-b/second"],
        "minGPUUtilizationPercent": 70,
        # All nodes go in the end: the size at the server is the target when nothing is left.
        "scaleDownDelay": "30s",
        "provider": {
            "name": "gcp",
            "endpoint": "http://gcp",
            "location": "us-central1" if regional else "us-central1-a",
            "credentialsRef": {"name": "google", "key": "key"},
            **({"runDuration": "10m"} if queued else {}),
        },
    }
    cloud.store.create(cloud.store.kinds.named(*KIND), {"metadata": {"name": "pool"}, "spec": spec})


def world(happens=None, *, later=(), options=None, work=WORK, configure=groups, **fields):
    return MarketScenario(
        clouds=(partial(engine, **(options or {})),),
        work=work,
        configure=configure,
        script=None if happens is None else lambda cloud: happens(server(cloud)),
        later=tuple((at, lambda cloud, do=do: do(server(cloud))) for at, do in later),
        **fields,
    )


def script(call, *which):
    return lambda s: s.script(call, *(each(s) if callable(each) else each for each in which))


def each_member(do):
    def happens(s):
        for group in s.groups.values():
            for name, rented in list(group.members.items()):
                if rented is not None:
                    do(s, group, name, rented)

    return happens


def delete_by_hand(_server, group, name, _rented):
    group.delete([name], by_hand=True)


FAULTS = {
    "nothing": world(),
    "answer to the growth lost": world(script(GROW, faults.answer_lost())),
    "growth request lost": world(script(GROW, faults.request_lost())),
    "operation without capacity": world(script(GROW, lambda s: s.no_capacity())),
    "operation over the quota": world(script(GROW, lambda s: s.quota_reached())),
    "too many requests": world(script(GROW, lambda s: s.rate_limited(20))),
    "server error": world(script(GROW, faults.server_error(500))),
    "server error after acting": world(script(GROW, faults.server_error(502, acts=True))),
    "hanging growth": world(script(GROW, faults.hangs(acts=True))),
    "listings lag": world(options={"list_lag": 15.0}),
    "listings fail": world(script(GROUP, None, *[faults.server_error(503)] * 6)),
    "answer to the deletion lost": world(script(SHRINK, faults.answer_lost())),
    "deletion refused, then lost": world(script(SHRINK, faults.server_error(500), faults.request_lost())),
    "stock-out in the first zone": world(lambda s: s.restock(FAR, 0)),
    "a machine that never joins": world(lambda s: s.script_boots(Boot(joins=False))),
    "tokens end early": world(later=((20.0, lambda s: s.desk.expire()), (60.0, lambda s: s.desk.expire()))),
    "key refused for a while": world(later=((6.0, lambda s: s.refuse_credentials(60)),)),
    "deleted by hand": world(later=((50.0, each_member(delete_by_hand)),)),
    "a member added by hand": world(later=((12.0, lambda s: s.groups["first"].grow(["by-hand"])),)),
    "resized by hand": world(later=((12.0, lambda s: s.groups["second"].resize(3)),)),
    "regional": world(configure=partial(groups, regional=True)),
    "the group names its members": world(configure=partial(groups, chooses=True)),
    "from the queue": world(configure=partial(groups, queued=True)),
    "from the queue, answers lost": world(
        lambda s: (
            s.script("insert_request", faults.answer_lost(), faults.request_lost()),
            s.script("delete_request", faults.answer_lost()),
        ),
        configure=partial(groups, queued=True),
    ),
    "an empty queue at first": world(
        lambda s: s.restock(FAR, 0),
        later=((120.0, lambda s: s.restock(FAR, None)),),
        configure=partial(groups, queued=True),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_leaks_doubles_or_loses_anything_of_a_managed_group(fault):
    outcome = rents(FAULTS[fault])
    assert outcome.found == ()
    assert [(group.target, group.resized_down) for group in server(outcome.cloud).groups.values()] == [(0, 0)] * len(
        server(outcome.cloud).groups
    )


def test_members_that_their_group_recreates_are_followed():
    recreate = each_member(lambda _s, group, name, _rented: group.recreate(name))
    work = tuple(Work(each.name, each.gpus, at=each.at, runs=200) for each in WORK)
    # Between the old machine and the new one nothing is billed: Forebay counts on.
    outcome = rents(world(later=((110.0, recreate),), work=work, seen_late=60))
    assert outcome.found == ()
    assert not any(len(group.asked) for group in server(outcome.cloud).groups.values())


MIXED = {
    "named by Forebay": world(
        lambda s: (s.script(GROW, faults.answer_lost()), s.script(SHRINK, faults.answer_lost())),
        work=WORK[:2],
        options={"list_lag": 3.0},
    ),
    "named by the group": world(work=WORK[:2], configure=partial(groups, chooses=True)),
}


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("names", MIXED)
def test_no_request_to_google_is_a_bad_one_to_die_at(names, moment, part):
    """Every one that acts, every third listing; and every seventh write to Kubernetes."""
    whole = rents(MIXED[names])
    assert whole.found == ()
    sent = [each for each in whole.ledger.requests if each.at <= whole.quiet_at + 35]
    google = [each for each in sent if each.url.startswith("http://gcp/compute")]
    acts = [each for each in google if "requestId" in each.url]
    lists = [each for each in google if each.path.endswith("/listManagedInstances")]
    writes = [each for each in sent if each not in google and each.method in {"POST", "PUT", "PATCH"}]
    places = [*acts, *lists[::3], *writes[::7]]
    assert acts
    for place in places[part::_PARTS]:
        outcome = rents(MIXED[names], {place.number: moment})
        killed = [f"{moment} {each}" for each, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())
