"""Every benchmark starts: those that can be small run, the others read their options, with all that they import.

What they need of a real control plane is tried in `tests/cluster/test_bench_cluster.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
HELP = ("--help",)
#: The smallest of each. Those with --help alone need a control plane or a peer, or have no smaller size.
STARTS = {
    "budgets": ("--only", "bench", "--without-rig", "--json"),
    "churn": ("--jobs", "1", "--json"),
    "cli": ("--runs", "1", "--json"),
    "embedded": ("--pods", "20", "--nodes", "2", "--json"),
    "failover": HELP,
    "groups": ("--nodes", "10", "--json"),
    "informer": HELP,
    "offload": ("--only", "forced", "--json"),
    "planner": ("--check", "20"),
    "promise": HELP,
    "reaction": HELP,
    "same_as_local": HELP,
    "tick": ("--nodes", "10", "--pods", "20", "--machines", "5", "--json"),
    "waiting": ("--pods", "501", "--json"),
}
#: No options, and a peer that is not installed here.
IMPORTED = {"cron"}
#: One process for all: what most of its time would go to is importing the same packages again.
PROGRAM = """
import contextlib, io, json, runpy, sys, time, traceback
bench, starts = sys.argv[1], json.loads(sys.argv[2])
sys.path[:0] = [bench]
for name, options in starts.items():
    sys.argv = [name, *(options or ())]
    said, ended, began = io.StringIO(), 0, time.process_time()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(f"{bench}/{name}.py", run_name="imported" if options is None else "__main__")
    except SystemExit as end:
        ended = end.code
    except BaseException:
        ended = traceback.format_exc()
    print(json.dumps([name, ended, said.getvalue(), time.process_time() - began]), flush=True)
"""


@pytest.mark.timeout(600)
def test_every_benchmark_starts():
    scripts = {each.stem for each in BENCH.glob("*.py") if "\nif __name__ ==" in each.read_text()}
    assert scripts == STARTS.keys() | IMPORTED, "each benchmark has a line in the table above, and no other"

    starts = {**STARTS, **dict.fromkeys(IMPORTED)}
    command = [sys.executable, "-c", PROGRAM, str(BENCH), json.dumps(starts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in found] == list(starts)
    for name, ended, said, _seconds in found:
        # 1 is a bar that a busy machine misses.
        assert ended in {0, 1, None}, f"bench/{name}.py: {ended}\n{said}"
        if "--json" in (starts[name] or ()):
            assert json.loads(said.splitlines()[-1]), name
        elif starts[name] == HELP:
            assert "usage: " in said, name
