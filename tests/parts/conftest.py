"""Where the programs are."""

import os

import pytest

from tests.parts.build import LARGE, cloud_init, debian, shellcheck
from tests.rig.binaries import find

#: Set by CI, which does not build the large programs; `make parts` tests them.
SMALL = os.environ.get("FOREBAY_PARTS") == "small"


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/parts/" in item.path.as_posix():
            item.add_marker(pytest.mark.parts)


@pytest.fixture
def part():
    """The path of a program by its name. Without it the test is skipped, and where CI=true it fails."""

    def path(name):
        found = {"shellcheck": shellcheck, "cloud-init": cloud_init}.get(name, lambda: find(name))()
        if found is None:
            reason = f"NOT TESTED without {name}: run `make parts`"
            if os.environ.get("CI") == "true" and not (SMALL and name in LARGE):
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        return found

    return path


@pytest.fixture
def cloud_init_schema(part):
    """The command that validates user data."""
    python = part("cloud-init")
    environment = {**os.environ, "PYTHONPATH": str(debian() / "usr/lib/python3/dist-packages")}
    return [str(python), str(debian() / "usr/bin/cloud-init"), "schema", "--config-file"], environment
