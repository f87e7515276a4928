"""Before a machine is terminated, the API server is asked once more for pods on its node."""

import pytest

from forebay.api.gpu_instance import InstanceState as S
from forebay.engine.apply.nodes import NodeActions
from forebay.lifecycle.steps import WriteStatus
from forebay.model.reasons import Reason
from tests.unit.demand.builders import record


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        (S.DRAINING, S.TERMINATING, True),
        (S.DRAINING, S.READY, False),
        (S.READY, S.DRAINING, False),
        (S.LAUNCHED, S.TERMINATING, False),
        (None, S.TERMINATING, False),
    ],
)
def test_a_drain_ends_where_its_machine_is_terminated_next(before, after, ends):
    step = WriteStatus(
        record=record(state=before), status=record(state=after).status, reason=Reason.IDLE, sentence="It is idle."
    )

    assert NodeActions(None, None, None).ends_a_drain(step) is ends
