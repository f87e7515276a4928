"""Whether RunPod has started a container again, by how long its listings say that it has run."""

from datetime import UTC, datetime, timedelta

import pytest

from forebay.providers.runpod.restarts import Restarts
from forebay.providers.runpod.wire import RunpodPod

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("uptimes", "restarted"),
    [
        pytest.param([10, 40, 70, 100, 130, 160], False, id="it runs"),
        pytest.param([10, 40, 70, 100, 130, 5, 35], True, id="started again"),
        pytest.param([10, 40, 70, 100, 130, 5], False, id="one listing is not enough"),
        pytest.param([10, 40, 70, 100, 130, 5, 190, 220], False, id="one wrong figure"),
        pytest.param([10, 5, 9, 4, 9, 4, 9, 4, 8, 4, 5], True, id="again and again"),
        pytest.param([3600] * 40, False, id="a figure that stands still"),
        pytest.param([10, 40, 0, 0, 0, 0, 220], False, id="none for a while"),
        pytest.param([10, 40, None, -7, "soon", 10**30, 1.5, 250], False, id="no figures"),
        pytest.param([100, 130, 129, 189, 188, 248, 247], False, id="a figure that jitters"),
    ],
)
def test_a_run_that_is_shorter_than_before_is_another_one(uptimes, restarted):
    found = Restarts()
    for number, uptime in enumerate(uptimes):
        found.look([RunpodPod(id="p", runtime={"uptime": uptime})], START + timedelta(seconds=30 * number))
    assert ("p" in found) is restarted
    found.look([], START)
    assert "p" not in found
