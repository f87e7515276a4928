"""How long `forebay --help` takes, next to an empty interpreter and to the same in cyclopts.

Figures are the median of the runs, warm cache. Exit 1 when ours is over its budget of 300 ms.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time

BUDGET_S = 0.300
PEER = """
from cyclopts import App
app = App(name="peer", help_format="plaintext")
@app.command
def run(port: int = 1):
    "Run."
app()
"""


def seconds(command: list[str], runs: int) -> float:
    """The median over `runs`, after one that warms the cache."""
    taken = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    figures = {
        "interpreter_s": seconds([sys.executable, "-c", "pass"], options.runs),
        "ours_s": seconds([sys.executable, "-m", "forebay", "--help"], options.runs),
    }
    if importlib.util.find_spec("cyclopts"):
        figures["cyclopts_s"] = seconds([sys.executable, "-c", PEER, "--help"], options.runs)
    else:
        print("cyclopts is not installed here, so it is not measured: run `make bench`")
    for name, value in figures.items():
        print(f"{name.removesuffix('_s'):<12} {value * 1000:7.1f} ms")
    met = figures["ours_s"] <= BUDGET_S
    print(f"budget       {BUDGET_S * 1000:7.1f} ms: {'met' if met else 'MISSED'}")
    if options.json:
        print(json.dumps({**figures, "budget_s": BUDGET_S, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
