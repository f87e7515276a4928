"""The tutorials: their commands are run as they are written, in their order."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.needs import BIN, kubectl
from tests.rig.control_plane import free_ports

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs/tutorials/first-rented-node.md"
#: What the page says that is not for a test: the environment is there.
NOT_RUN = ("make env",)

pytestmark = [pytest.mark.kubectl, pytest.mark.real_time, pytest.mark.timeout(600)]


def commands(page):
    """The shell commands of the page, as one script."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return "".join(block for block in blocks if block.strip() not in NOT_RUN)


def test_the_tutorial_rents_a_node_and_leaves_nothing(tmp_path):
    ports = free_ports("cloud", "pages")
    moved = {"8600": str(ports["cloud"]), "8601": str(ports["pages"])}
    shutil.copytree(ROOT / "docs/tutorials", tmp_path / "docs/tutorials")
    for file in (tmp_path / "docs/tutorials").iterdir():
        file.write_text(re.sub(r"\b860[01]\b", lambda found: moved[found[0]], file.read_text()))
    script = commands(tmp_path / "docs/tutorials/first-rented-node.md")
    assert script.count("forebay ") >= 8
    # What it starts ends with it, however it ends.
    whole = f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"
    path = f"{BIN}:{kubectl().parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        ["bash", "-c", whole], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    logs = {log.name: log.read_text()[-3000:] for log in tmp_path.glob("*.log")}
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert "gpu_1x_a10" in done.stdout, "the cheapest machine"
    assert "violation of the API" not in logs["cloud.log"]
    assert "Gone" in done.stdout
