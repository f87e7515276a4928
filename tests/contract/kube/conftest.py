"""One suite, two servers: every `async def test_*(api)` here runs on the embedded API server in virtual time and on a
real kube-apiserver in real time. What the real one answers is right.
"""

import asyncio
import inspect

import pytest

from tests.contract.kube import servers
from tests.rig.binaries import NEWEST, minor


@pytest.fixture(params=["embedded", pytest.param("real", marks=[pytest.mark.real_time, pytest.mark.cluster])])
def api(request):
    """A context manager of the server; the test gets a `tests.contract.kube.api_client.Api` with a new namespace."""
    if request.param == "embedded":
        return servers.embedded()
    since = request.node.get_closest_marker("since")
    if since is not None and minor() != NEWEST and minor() < since.args[0]:
        pytest.skip(f"a server before {since.args[0]} answers otherwise")
    return servers.real(request.getfixturevalue("rig"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Opens the server around the test, on the test's own loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "api" not in pyfuncitem.funcargs:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def opened():
        async with pyfuncitem.funcargs["api"] as api:
            await pyfuncitem.obj(**(arguments | {"api": api}))

    if pyfuncitem.get_closest_marker("real_time"):
        asyncio.run(opened())
    else:
        from forebay.simulate.virtual_time import run

        run(opened())
    return True
