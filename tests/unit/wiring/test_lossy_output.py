"""Log lines of an operator whose log is on a full disk."""

import errno
import io
import sys
from pathlib import Path

import pytest
import structlog

from forebay.settings import Settings
from forebay.wiring.logs import configure_logging
from forebay.wiring.lossy_output import LossyOutput

SOMETIMES_FULL = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a device that is always full"
)


class Failing(io.StringIO):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def flush(self):
        raise OSError(self.number, "flush")

    def write(self, _text):
        raise OSError(self.number, "write")


@SOMETIMES_FULL
def test_the_operator_goes_on_where_its_log_cannot_be_written(monkeypatch):
    before = structlog.get_config()
    # Unbuffered: nothing is left that could not be written when the stream is closed.
    with Path("/dev/full").open("wb", buffering=0) as raw, io.TextIOWrapper(raw, write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        try:
            configure_logging(Settings())
            structlog.get_logger().warning("informer synced")
            structlog.get_logger().warning("informer synced")
        finally:
            structlog.configure(**before)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_line_is_lost_where_there_is_no_room(number):
    stream = LossyOutput(Failing(number))
    assert stream.write("line") == 4
    stream.flush()


def test_a_reader_that_is_gone_is_an_error_as_before():
    stream = LossyOutput(Failing(errno.EPIPE))
    with pytest.raises(OSError, match="write"):
        stream.write("line")
    with pytest.raises(OSError, match="flush"):
        stream.flush()


def test_what_can_be_written_is():
    kept = io.StringIO()
    stream = LossyOutput(kept)
    stream.write("line\n")
    stream.flush()
    assert kept.getvalue() == "line\n"
