"""What some tests need that a machine may lack.

A test says so by the marker of the need (`@pytest.mark.helm`), a test of the control plane by its fixtures. Where the
need is not met the test is skipped, and the run ends with one line for each such need: how many tests did not run, and
what to do. Where CI=true the test fails instead. Tests that are skipped for another reason are counted by it.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tests.browser.chromium import chromium
from tests.rig.binaries import HOW_TO_GET, cache_root, find

BIN = Path(sys.executable).parent
UV = BIN / "uv"
#: The wheels that the image is made of, fetched by hash.
WHEELS = Path(sys.prefix) / "wheels"
#: Tables of real offers, which are not ours to distribute.
PRICES = Path(__file__).parents[2] / "shared/data/prices"
#: Specs of clouds, which are not ours to distribute either.
SPECS = Path(__file__).parents[2] / "shared/specs"


def kubectl() -> Path | None:
    path = find("kubectl") or shutil.which("kubectl")
    return None if path is None else Path(path)


def helm() -> str | None:
    """Beside the interpreter, where the package `helm-binary` puts it; else the machine's own."""
    return shutil.which("helm", path=str(BIN)) or shutil.which("helm")


def of_prometheus(program: str) -> str | None:
    """`prometheus` or `promtool`: the machine's own, else where `tests/install-programs` unpacks Debian's package."""
    unpacked = cache_root().parent / "debian/prometheus/usr/bin"
    return shutil.which(program) or shutil.which(program, path=str(unpacked))


class Need(NamedTuple):
    marker: str
    what: str
    remedy: str
    is_met: Callable[[], bool]
    #: Also where CI=true a machine may lack it.
    optional: bool = False

    @property
    def reason(self) -> str:
        return f"NOT TESTED without {self.what}: {self.remedy}"


# As much as an envtest directory has; what needs a scheduler too asks when it starts (`tests.rig.plugin.require`).
CONTROL_PLANE = Need(
    "cluster", "a real control plane", HOW_TO_GET, lambda: all(map(find, ("etcd", "kube-apiserver", "kubectl")))
)
NEEDS = (
    CONTROL_PLANE,
    Need("kubectl", "kubectl", "run `make kubectl`, or put kubectl on PATH", lambda: kubectl() is not None),
    Need("helm", "Helm", "put helm on PATH (its package has no wheel for this platform)", lambda: helm() is not None),
    Need(
        "shells",
        "zsh and fish",
        "run `tests/install-programs` as root, or install the packages zsh and fish",
        lambda: all(map(shutil.which, ("zsh", "fish"))),
        optional=True,
    ),
    Need(
        "browser",
        "a browser",
        "run `tests/install-programs` as root, or install chromium",
        lambda: chromium() is not None,
        optional=True,
    ),
    Need(
        "prometheus",
        "Prometheus",
        "run `tests/install-programs`, or install prometheus (Debian's package of that name)",
        lambda: all(map(of_prometheus, ("prometheus", "promtool"))),
        optional=True,
    ),
    Need(
        "telemetry",
        "OpenTelemetry and Sentry",
        "run `make env`",
        lambda: all(map(find_spec, ("opentelemetry", "sentry_sdk"))),
    ),
    Need("image", "the wheels of the image", "run `make env`", lambda: UV.exists() and WHEELS.is_dir()),
    Need(
        "prices",
        "tables of real prices",
        "put them into ../shared/data/prices",
        PRICES.is_dir,
        optional=True,
    ),
    Need(
        "specs",
        "published specs of the clouds' APIs",
        "put them into ../shared/specs",
        SPECS.is_dir,
        optional=True,
    ),
)


def skip(need: Need) -> NoReturn:
    """Skip the test that runs; fail it where the need must be met."""
    if os.environ.get("CI") == "true" and not need.optional:
        pytest.fail(need.reason, pytrace=False)
    pytest.skip(need.reason)


def summary(reasons: Iterable[str]) -> list[str]:
    """One line for each need that was not met, and for each other reason, of all tests that were skipped."""
    skipped = Counter(reasons)
    lines = [
        f"NOT TESTED without {need.what} ({_tests(count)}): {need.remedy}"
        for need in NEEDS
        if (count := skipped.pop(need.reason, 0))
    ]
    return lines + [f"SKIPPED ({_tests(count)}): {reason}" for reason, count in skipped.most_common()]


def _tests(count: int) -> str:
    return f"{count} {'test' if count == 1 else 'tests'}"


def pytest_configure(config: pytest.Config) -> None:
    for need in NEEDS:
        config.addinivalue_line("markers", f"{need.marker}: the test needs {need.what}")
    config.addinivalue_line("markers", "parts: the test needs programs of others, which `make parts` builds")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for need in NEEDS:
        if item.get_closest_marker(need.marker) and not need.is_met():
            skip(need)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """After everything else that is told at the end, where it is seen."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    for line in summary(report.longrepr[2].removeprefix("Skipped: ") for report in skipped):
        terminalreporter.write_line(line, red=True, bold=True)
