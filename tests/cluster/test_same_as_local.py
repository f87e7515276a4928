"""Remote Jobs end exactly as the same Jobs on a node of the cluster, although a fifth of the requests fails.

With fifty Jobs and operators that are killed every two seconds: bench/same_as_local.py.
"""

import pytest

from tests.cluster.jobs_compared import KINDS, compare_jobs
from tests.cluster.worlds import install_definitions
from tests.rig import Rig, Tier
from tests.rig.plugin import require


@pytest.mark.real_time
@pytest.mark.timeout(600)
async def test_jobs_end_as_local_ones_while_a_fifth_of_the_requests_to_the_provider_fails():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        found = await compare_jobs(rig, len(KINDS), faults=0.2)
    assert found.differences == {}
    assert (found.left, found.unbilled, found.violations) == (0, [], [])
    assert found.cents_apart < 1
    assert found.faults > 5
