"""Signals to a running operator: SIGUSR1 saves the last snapshot, SIGUSR2 changes the log level and back."""

import asyncio
import os
import signal

import pytest
import structlog
from structlog.testing import LogCapture

from forebay.cli.demo.world import running_demo
from forebay.cli.plan.inputs import read_snapshot
from forebay.embedded.server import EmbeddedCluster
from forebay.net.redaction import Redactor
from forebay.wiring.signals import handle_signals


@pytest.mark.real_time
async def test_signals_save_the_snapshot_and_change_the_log_level(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    captured = LogCapture()
    async with EmbeddedCluster(seed=1) as cluster, running_demo(cluster, 1) as demo:
        structlog.configure(
            processors=[captured],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
            cache_logger_on_first_use=False,
        )
        log = structlog.get_logger("test")
        try:
            handle_signals(demo.operator, Redactor(), "info")

            async def told(event):
                async with asyncio.timeout(20):
                    while not (found := [e for e in captured.entries if e["event"] == event]):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                return found[-1]

            async with asyncio.timeout(20):
                while demo.operator.loop is None or demo.operator.loop.last is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGUSR1)
            path = (await told("snapshot saved"))["path"]
            assert read_snapshot(path).pools[0].metadata.name == "lab"

            log.debug("before")
            os.kill(os.getpid(), signal.SIGUSR2)
            assert (await told("log level changed"))["to"] == "debug"
            log.debug("between")
            captured.entries.clear()
            os.kill(os.getpid(), signal.SIGUSR2)
            assert (await told("log level changed"))["to"] == "info"
            log.debug("after")
            assert [each["event"] for each in captured.entries if each["event"] in {"before", "after"}] == []
        finally:
            structlog.reset_defaults()
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                asyncio.get_running_loop().remove_signal_handler(number)
