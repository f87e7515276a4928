"""Runs the contract for every provider, in process (virtual time) and over a loopback socket (real time)."""

import pytest

from tests.contract.providers.harness import HARNESSES

_CONNECTIONS = [
    pytest.param((name, sockets), id=f"{name}-{'loopback' if sockets else 'in-process'}", marks=marks)
    for name in HARNESSES
    for sockets, marks in ((False, ()), (True, (pytest.mark.real_time,)))
]


@pytest.fixture(params=_CONNECTIONS)
def harness(request):
    name, sockets = request.param
    return HARNESSES[name](sockets=sockets)
