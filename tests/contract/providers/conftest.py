"""Every promise on every provider, in process (virtual time) and over a loopback socket (real time)."""

import pytest

from tests.contract.providers.stages import STAGES

_WIRES = [
    pytest.param((name, sockets), id=f"{name}-{'loopback' if sockets else 'in-process'}", marks=marks)
    for name in STAGES
    for sockets, marks in ((False, ()), (True, (pytest.mark.real_time,)))
]


@pytest.fixture(params=_WIRES)
def stage(request):
    name, sockets = request.param
    return STAGES[name](sockets=sockets)
