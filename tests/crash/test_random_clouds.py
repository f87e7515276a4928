"""Clouds by chance: a real cloud's conformance server, one of its faults, work, and deaths of the operator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.findings import no_law_is_broken
from tests.crash.market_worlds import rents
from tests.crash.mortal import Moment
from tests.crash.test_clouds import CLOUDS, FAULTS, world
from tests.crash.worlds import Work
from tests.deep import worlds_in_deep

deaths = st.dictionaries(st.integers(1, 300), st.sampled_from(Moment), max_size=3)
works = st.lists(
    st.tuples(st.sampled_from([1, 4]), st.integers(0, 60), st.sampled_from([5, 40, 70])), min_size=1, max_size=2
).map(lambda drawn: tuple(Work(f"w{number}", gpus, at, runs) for number, (gpus, at, runs) in enumerate(drawn)))


@pytest.mark.law
@worlds_in_deep(1200, everyday=12)
@given(st.sampled_from(sorted(CLOUDS)), st.sampled_from(sorted(FAULTS)), works, st.integers(0, 999), deaths)
def test_clouds_may_fail_and_operators_die(cloud, fault, work, seed, dead):
    no_law_is_broken(rents(world(cloud, work=work, seed=seed, **FAULTS[fault]), dead))
