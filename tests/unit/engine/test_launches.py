"""Only the leader calls a provider, and only after its attempt is recorded."""

import asyncio

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as S
from forebay.engine.apply.launches import Launches
from forebay.engine.counts import Counts
from forebay.kube.errors import NotFound
from forebay.lifecycle.steps import Terminate
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery
from forebay.net import clock
from forebay.providers.base import Unavailable
from tests.unit.demand.builders import record


class Cluster:
    """Records, sources, calls and the lease, as far as a termination needs them."""

    def __init__(self, *, leads, configured=True):
        self.leads, self.configured = leads, configured
        self.written, self.call = [], None

    def still_leader(self):
        return self.leads

    def states(self):
        return {}

    def provider(self, _source):
        return object() if self.configured else None

    async def write(self, of, _status):
        self.written.append(of.metadata.name)
        raise NotFound("somebody has deleted it", status=404)

    def start(self, _name, call):
        self.call = call


@pytest.mark.parametrize(
    ("leads", "configured", "written"),
    [(True, True, ["n1"]), (False, True, []), (True, False, [])],
    ids=["the leader", "no longer the leader", "no provider"],
)
async def test_an_attempt_is_recorded_by_the_leader_of_a_configured_provider_only(leads, configured, written):
    cluster = Cluster(leads=leads, configured=configured)
    launches = Launches(
        records=cluster,
        sources=cluster,
        provider_calls=cluster,
        events=None,
        elector=cluster,
        join_credentials=None,
        container_specs=None,
        registry_credentials=None,
        cluster="here",
        clock=None,
        counts=None,
    )
    of = record(state=S.TERMINATING)

    launches.terminate(Terminate(record=of, status=of.status, instance_id="n1", reason=Reason.IDLE, sentence="Idle."))
    await cluster.call

    assert cluster.written == written


class Provider:
    """Answers a termination with an error, or accepts it."""

    def __init__(self, error=None):
        self.error, self.terminated = error, []

    def capabilities(self):
        return Capabilities(deliveries=(Delivery.NODE,))

    async def terminate(self, instance):
        self.terminated.append(instance)
        if self.error == "never":
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


class Recorded(Cluster):
    """Takes every write; `moved` by somebody else: the outcome is not that of the record any more."""

    def __init__(self, provider):
        super().__init__(leads=True)
        self.called, self.outcomes, self.told = provider, [], []

    def provider(self, _source):
        return self.called

    async def write(self, of, status):
        self.written.append(status.state)
        return replace(of, status=status)

    async def write_outcome(self, of, outcome):
        self.outcomes.append(outcome(of))
        return replace(of, status=self.outcomes[-1])

    def transition(self, of, reason, _sentence):
        self.told.append((of.metadata.name, reason))


@pytest.mark.parametrize(
    ("error", "counted", "reason"),
    [
        (None, "Accepted", Reason.TERMINATION_STARTED),
        (Unavailable("Away."), "Unavailable", Reason.TERMINATION_FAILED),
        ("never", "OutcomeUnknown", Reason.TERMINATION_FAILED),
    ],
    ids=["accepted", "unavailable", "no answer"],
)
async def test_a_termination_call_is_counted_logged_and_its_outcome_recorded(error, counted, reason, capsys):
    cluster, counts = Recorded(Provider(error)), Counts()
    launches = Launches(
        records=cluster,
        sources=cluster,
        provider_calls=cluster,
        events=cluster,
        elector=cluster,
        join_credentials=None,
        container_specs=None,
        registry_credentials=None,
        cluster="here",
        clock=clock.now,
        counts=counts,
    )
    of = record(state=S.TERMINATING)

    launches.terminate(Terminate(record=of, status=of.status, instance_id="i-1", reason=Reason.IDLE, sentence="Idle."))
    await cluster.call

    assert cluster.called.terminated == ["i-1"]
    assert counts.calls == {(of.spec.provider, "terminate", counted): 1}
    assert list(counts.call_seconds) == [(of.spec.provider, "terminate")]
    assert [each.reason for each in cluster.outcomes] == [reason]
    assert cluster.told == [(of.metadata.name, reason)]
    said = capsys.readouterr().out
    assert ("provider call accepted" in said) is (error is None)
    assert ("provider call failed" in said) is (error is not None)
    assert ("did not answer within" in said) is (error == "never")
