"""pytest: the shared control plane as a fixture, and what is said of it at the end of the run.

tests/conftest.py registers it (`pytest_plugins = ["tests.rig.plugin"]`), so that the end of the run is told also by a
process that only collects the reports of its workers.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.rig.binaries import RigMissing, locate
from tests.rig.control_plane import TIERS, Rig, Tier
from tests.rig.keeper import ALL_WELL, shared

_STARTED_IN = pytest.StashKey[float]()


@pytest.fixture(scope="session")
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The control plane of this test run (tier *cluster*), shared by its workers. Take care: others use it too."""
    require(Tier.CLUSTER)
    session = request.session
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with shared(run, Tier.CLUSTER) as (rig, connection):
        _tell_start(request.config, rig.started_in)
        yield rig
        if session.testsfailed == 0:
            connection.sendall(ALL_WELL)


def _tell_start(config: pytest.Config, seconds: float) -> None:
    if hasattr(config, "workeroutput"):
        config.workeroutput["rig_started_in"] = seconds
    else:
        config.stash[_STARTED_IN] = seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended."""
    seconds = getattr(node, "workeroutput", {}).get("rig_started_in")
    if seconds is not None:
        node.config.stash[_STARTED_IN] = seconds


def require(tier: Tier) -> None:
    """Skip the test where programs of this tier are missing; fail it where they must be there."""
    try:
        locate(*TIERS[tier])
    except RigMissing:
        needs.skip(needs.CONTROL_PLANE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _STARTED_IN in config.stash:
        terminalreporter.write_line(f"rig: the control plane started in {config.stash[_STARTED_IN]:.1f} s (bar: 10 s)")
    logs = Path(tempfile.gettempdir()) / f"forebay-rig-logs-{os.getuid()}"
    if terminalreporter.stats.get("failed") and logs.exists():
        terminalreporter.write_line(f"the control plane's logs are under {logs}")
