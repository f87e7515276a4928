"""Leases and Events, on which leader election and event reporting rely."""

import asyncio

from tests.contract.kube.api_client import Refused, refused
from tests.contract.kube.objects import names, pod, version

LEASES = "coordination.k8s.io/v1"
EVENTS = "events.k8s.io/v1"


def lease(name, holder, transitions=0):
    return {
        "apiVersion": LEASES,
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.123456Z",
            "leaseTransitions": transitions,
        },
    }


async def test_a_lease_keeps_its_microseconds(api):
    created = await api("leases", LEASES).create(lease("l", "a"))

    assert created["spec"] == lease("l", "a")["spec"]
    assert "generation" not in created["metadata"]


async def test_of_two_clients_that_take_over_a_lease_one_wins(api):
    created = await api("leases", LEASES).create(lease("l", "dead"))

    async def take(holder):
        body = lease("l", holder, transitions=1)
        body["metadata"]["resourceVersion"] = version(created)
        return (await api("leases", LEASES).update(body))["spec"]["holderIdentity"]

    answers = await asyncio.gather(*(take(holder) for holder in "abcde"), return_exceptions=True)

    winners = [answer for answer in answers if not isinstance(answer, Refused)]
    assert winners == [(await api("leases", LEASES).get("l"))["spec"]["holderIdentity"]]
    assert [answer.reason for answer in answers if isinstance(answer, Refused)] == ["Conflict"] * 4


async def test_a_lease_is_released_by_an_empty_holder(api):
    created = await api("leases", LEASES).create(lease("l", "a"))
    created["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}

    released = await api("leases", LEASES).update(created)

    assert released["spec"]["holderIdentity"] == ""


async def test_a_lease_lasts_for_a_positive_time(api):
    body = lease("l", "a")
    body["spec"]["leaseDurationSeconds"] = 0

    refusal = await refused(api("leases", LEASES).create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "spec.leaseDurationSeconds"


def event(api, name, regarding, **fields):
    return {
        "apiVersion": EVENTS,
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2030-01-01T00:00:00.000000Z",
        "reportingController": "forebay.dev/operator",
        "reportingInstance": "forebay-0",
        "action": "Launch",
        "reason": "Launched",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": regarding},
        "note": "hello",
        "type": "Normal",
        **fields,
    }


async def test_an_event_is_served_in_both_api_versions(api):
    await api("events", EVENTS).create(event(api, "e", "p"))

    core = await api("events").get("e")

    assert core["apiVersion"] == "v1"
    assert core["message"] == "hello"
    assert core["involvedObject"] == {"kind": "Pod", "namespace": api.namespace, "name": "p"}
    assert core["reportingComponent"] == "forebay.dev/operator"
    assert core["reportingInstance"] == "forebay-0"
    assert (core["reason"], core["type"], core["action"]) == ("Launched", "Normal", "Launch")
    assert core["eventTime"] == "2030-01-01T00:00:00.000000Z"


async def test_a_core_event_is_served_in_the_newer_version(api):
    await api("events").create(
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
            "reason": "Launched",
            "message": "hello",
            "type": "Normal",
            "source": {"component": "forebay"},
            "firstTimestamp": "2030-01-01T00:00:00Z",
            "lastTimestamp": "2030-01-01T00:01:00Z",
            "count": 3,
        }
    )

    newer = await api("events", EVENTS).get("e")

    assert newer["apiVersion"] == EVENTS
    assert newer["note"] == "hello"
    assert newer["regarding"]["name"] == "p"
    assert newer["deprecatedSource"] == {"component": "forebay"}
    assert newer["deprecatedCount"] == 3
    assert newer["deprecatedFirstTimestamp"] == "2030-01-01T00:00:00Z"
    assert newer["deprecatedLastTimestamp"] == "2030-01-01T00:01:00Z"


async def test_an_event_becomes_a_series(api):
    await api("events", EVENTS).create(event(api, "e", "p"))

    series = {"count": 2, "lastObservedTime": "2030-01-01T00:00:05.000000Z"}
    patched = await api("events", EVENTS).patch("e", {"series": series})

    assert patched["series"] == series
    assert (await api("events").get("e"))["series"] == series


async def test_events_are_selected_by_what_they_are_about(api):
    await api("pods").create(pod("p"))
    await api("events", EVENTS).create(event(api, "about-p", "p"))
    await api("events", EVENTS).create(event(api, "about-q", "q", type="Warning", reason="Refused"))

    assert names(await api("events").list(fieldSelector="involvedObject.name=p")) == ["about-p"]
    assert names(await api("events").list(fieldSelector="involvedObject.kind=Pod,type=Warning")) == ["about-q"]
    assert names(await api("events").list(fieldSelector="reason=Refused")) == ["about-q"]
    assert names(await api("events", EVENTS).list(fieldSelector="regarding.name=p")) == ["about-p"]


async def test_a_new_event_must_name_its_reporting_controller(api):
    body = event(api, "e", "p")
    del body["reportingController"]

    refusal = await refused(api("events", EVENTS).create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "reportingController"


async def test_a_core_event_is_in_the_namespace_of_its_object(api):
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "elsewhere", "name": "p"},
        "reason": "Launched",
        "message": "hello",
        "type": "Normal",
    }

    refusal = await refused(api("events").create(body))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.causes[0][0] == "involvedObject.namespace"
