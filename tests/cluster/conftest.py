"""Whole processes against a real control plane."""

import sys

import pytest

from tests.cluster import bars
from tests.cluster.worlds import install_definitions
from tests.rig import Rig, Tier
from tests.rig.binaries import policies_flags
from tests.rig.plugin import require

#: Minutes each: the same stories are told in virtual time (tests/engine, tests/crash) in every run.
collect_ignore = [] if bars.FULL else ["test_groups.py", "test_migrated.py", "test_pools.py"]


def pytest_itemcollected(item):
    item.add_marker("cluster")


@pytest.fixture(scope="session")
def own_rig():
    """A control plane of this worker's own, to be hurt, with an audit log and our kinds installed."""
    with Rig.start(Tier.API, audit=True, api_server_flags=policies_flags()) as rig:
        sys.stderr.write(f"rig: tier api started in {rig.started_in:.1f} s\n")
        install_definitions(rig)
        yield rig


@pytest.fixture(scope="module")
def whole_rig():
    """A whole control plane of this module's own, with our kinds: every machine and every pod on it is the story's."""
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER, audit=True) as rig:
        sys.stderr.write(f"rig: tier cluster started in {rig.started_in:.1f} s\n")
        install_definitions(rig)
        yield rig
