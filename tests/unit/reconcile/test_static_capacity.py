"""What a pool says of its minNodes when it has none any more."""

from datetime import UTC, datetime

import msgspec
import pytest

from forebay.api.gpu_node_pool import GPUNodePool
from forebay.model.reasons import Reason
from forebay.reconcile.isolation import Faults
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.static_capacity import static_capacity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("conditions", "told"), [([], []), (["Ready"], []), (["Ready", "MinNodes"], [Reason.NOT_NEEDED])]
)
def test_only_a_pool_that_had_a_minimum_is_told_that_it_has_none(conditions, told):
    fields = {"status": "True", "reason": "Known", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pool = msgspec.convert(
        {
            "metadata": {"name": "pool", "namespace": "team"},
            "spec": {"nodeClassRef": {"name": "gpu"}},
            "status": {"conditions": [{"type": each, **fields} for each in conditions]},
        },
        GPUNodePool,
    )

    found = static_capacity(Snapshot(now=NOW, pools=(pool,)), (), Faults())

    assert [each.reason for each in found.facts.get(("team", "pool"), ())] == told
