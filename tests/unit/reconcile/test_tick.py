"""The tick as a whole: when it wants to be asked again."""

from forebay.demand.reservation import GRACE
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.unit.demand.builders import NOW, node, pod


def test_a_pod_that_seems_to_fit_is_looked_at_again_when_the_scheduler_has_had_its_time():
    seems_to_fit = Snapshot(now=NOW, pending=(pod(),), nodes={"n1": node("n1")})

    assert tick(seems_to_fit).look_again == NOW + GRACE
