"""Leader election between processes that are really paused and really end. `make soak` runs it many times in a row."""

import pytest

from tests.cluster.leadership import a_leader_is_paused_and_wakes_up


@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_a_leader_that_was_paused_never_acts_beside_its_successor(rig):
    await a_leader_is_paused_and_wakes_up(rig)
