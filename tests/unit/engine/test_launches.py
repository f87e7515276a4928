"""Only the leader calls a provider, and only after its attempt is recorded."""

import pytest

from forebay.api.gpu_instance import InstanceState as S
from forebay.engine.apply.launches import Launches
from forebay.kube.errors import NotFound
from forebay.lifecycle.steps import Terminate
from forebay.model.reasons import Reason
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
