"""Runs the contract for every provider, in process (virtual time) and over a loopback socket (real time)."""

import pytest

from tests.contract.providers.harness import HARNESSES


def _connections(holds=lambda _: True):
    """Providers whose harness is like that, with each way to reach them."""
    return [
        pytest.param((name, sockets), id=f"{name}-{'loopback' if sockets else 'in-process'}", marks=marks)
        for name, harness in HARNESSES.items()
        for sockets, marks in ((False, ()), (True, (pytest.mark.real_time,)))
        if holds(harness)
    ]


def _harness(request):
    name, sockets = request.param
    return HARNESSES[name](sockets=sockets)


harness = pytest.fixture(_harness, params=_connections(), name="harness")
#: Of providers that tell when instances ended.
telling = pytest.fixture(_harness, params=_connections(lambda each: each.tells_ends), name="telling")
#: Of providers whose machines may leave a disk behind.
with_disks = pytest.fixture(_harness, params=_connections(lambda each: each.has_disks), name="with_disks")
