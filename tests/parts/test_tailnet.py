"""A machine enters a real tailnet: Headscale and tailscaled, in a network namespace of their own."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]


def test_a_machine_enters_with_its_key_once_and_leaves_nothing_behind(part, tmp_path):
    programs = [str(part(each)) for each in ("headscale", "tailscaled", "tailscale")]
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a network namespace needs root")
    command = ["unshare", "-n", sys.executable, "-m", "tests.parts.tailnet", *programs, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["entered"] == ""
    assert "authkey already used" in told["again"]
    assert "authkey expired" in told["expired"]
    assert told["device"]["hostname"] == "gpu-1"
    assert "tag:gpu" in told["device"]["tags"]
    assert told["named"] == 1, "a key whose creation was not answered is found by its name"
    assert told["keys left"] == [0, 0]
    assert told["devices left"] == []
