"""How tests run here: async ones on a virtual-time loop, laws under Hypothesis profiles, sockets on loopback only."""

import asyncio
import inspect
import os
import socket

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine, providers

from tests.deep import EXAMPLES, SLICES

pytest_plugins = ["tests.needs", "tests.rig.plugin", "tests.deep.plugin"]

# The same examples each time, so that a change is blamed for what it broke and not for its luck; `deep` looks for more.
settings.register_profile(
    "quick", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "deep",
    max_examples=EXAMPLES // SLICES,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
# Hypothesis mixes in the constants of every module that is loaded, so that the examples of a test would depend on which
# tests ran before it in the same process.
providers.is_local_module_file = lambda _: False

# A world that fails takes long: a slice has others to run than smaller ones of the same.
engine.MAX_SHRINKING_SECONDS = 60
#: Seconds for a law on a busy machine, and for one with many more examples.
_LAW_TIMEOUT = 900 if settings.default.derandomize else 3600


def pytest_configure(config):
    config.addinivalue_line("markers", "real_time: the async test uses sockets or processes, so it runs on a real loop")
    config.addinivalue_line("markers", "since: the minor of Kubernetes from which on a real server answers like this")
    config.addinivalue_line("markers", "law: a Hypothesis law; `make deep` runs these with many more examples")


def pytest_collection_modifyitems(items):
    # A law that fails goes on to look for a smaller example. Cut short in the middle of a world, its tasks would be
    # blamed on whichever test runs next.
    for item in items:
        if item.get_closest_marker("law") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_LAW_TIMEOUT))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run `async def` tests: in virtual time unless marked `real_time`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    if pyfuncitem.get_closest_marker("real_time"):
        asyncio.run(pyfuncitem.obj(**arguments))
    else:
        from forebay.simulate.virtual_time import run

        run(pyfuncitem.obj(**arguments))
    return True


_plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)


@pytest.fixture(autouse=True)
def _plain_logs():
    """Tracebacks as Python prints them: structlog's default renders every local variable, in half a second each."""
    # A command that an earlier test ran has sent log lines to a standard error that is closed by now.
    structlog.reset_defaults()
    structlog.configure(processors=[structlog.processors.add_log_level, _plain])


_connect = socket.socket.connect


def _loopback_only(self, address):
    if isinstance(address, tuple) and not (str(address[0]).startswith("127.") or address[0] in {"::1", "localhost"}):
        raise AssertionError(f"a test tried to reach {address[0]}: tests talk to loopback only")
    return _connect(self, address)


@pytest.fixture(autouse=True, scope="session")
def _no_network():
    socket.socket.connect = _loopback_only
    yield
    socket.socket.connect = _connect
