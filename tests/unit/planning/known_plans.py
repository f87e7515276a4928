"""What is known of the plans of fixed random inputs: no change may make one of them worse.

    python -m tests.unit.planning.known_plans

writes the tables of `known_plans.json` anew, after a change that makes plans better.
"""

import json
import random
from pathlib import Path

from forebay.planning.plan import Cap, RunningPod
from tests.unit.planning.instances import ZONE, instance
from tests.unit.planning.random_plans import planned
from tests.unit.planning.test_refine import Problem
from tests.unit.planning.worlds import POOL, candidate, pods, shape

#: Seconds of work for one packing problem.
SECONDS = 0.4
TABLES = Path(__file__).with_suffix(".json")


def ruled(seed):
    """Limits, gangs and rules about places; beside every second one, pods run that the rules look at."""
    given = instance(seed)
    if seed % 2:
        return given
    rng = random.Random(seed)
    running = [
        RunningPod(namespace="team", labels={"app": f"app-{n}"}, node_labels={ZONE: rng.choice(("za", "zb", "zd"))})
        for n in range(6)
        for _ in range(rng.randint(0, 2))
    ]
    return given._replace(running=running)


def packing(seed):
    """Pods of some shapes and a few types of node, some of which are few."""
    rng = random.Random(seed)
    waiting = []
    for _ in range(rng.randint(3, 9)):
        of = shape(rng.choice((1, 1, 2, 3, 5)), cpu=str(rng.randint(1, 14)), memory=f"{rng.randint(1, 60)}Gi")
        waiting += pods(rng.randint(1, 25), of)
    offers = []
    for number in range(rng.randint(1, 6)):
        gpus = rng.choice((4, 8, 8, 10))
        offers.append(
            candidate(
                gpus,
                f"{gpus * rng.randint(50, 300) / 100}",
                name=f"type-{number}",
                cpu=str(gpus * rng.choice((3, 5, 8))),
                memory=f"{gpus * rng.choice((15, 30, 64))}Gi",
                stock=rng.choice((None, None, 3, 8)),
            )
        )
    caps = [Cap(name="limit", pools=frozenset({POOL}), nodes=rng.randint(4, 20))] if rng.random() < 0.3 else []
    return Problem(waiting, offers, caps)


def of_ruled(seed):
    """(Pods left out, cost, lower bound of the cost) in $/h."""
    made = planned(ruled(seed))
    return len(made.left_out), float(made.cost.amount), round(float(made.bound.amount), 3)


def of_packing(seed, *, chooses):
    """(Pods left out, cost, lower bound, share of the work that was left)."""
    problem = packing(seed)
    priorities = [n % 2 for n in range(len(problem.counts))] if chooses else None
    found, bound, left = problem.refine(seconds=SECONDS, priorities=priorities)
    return (
        sum(found.left),
        round(_dollars(problem.packer.expected(found)), 3),
        round(_dollars(bound), 3),
        round(left, 3),
    )


def _dollars(units):
    return units / 10**24


#: By table: what is planned for a seed, and the seeds.
PLANS = {
    "ruled": (of_ruled, range(2000, 2090)),
    "packed": (lambda seed: of_packing(seed, chooses=False), range(32)),
    "chosen": (lambda seed: of_packing(seed, chooses=True), range(100, 116)),
}


def known(table):
    return {int(seed): tuple(values) for seed, values in json.loads(TABLES.read_text())[table].items()}


def main():
    tables = []
    for name, (plan_of, seeds) in PLANS.items():
        rows = ",\n".join(f'"{seed}": {json.dumps(plan_of(seed))}' for seed in seeds)
        tables.append(f'"{name}": {{\n{rows}\n}}')
    TABLES.write_text("{" + ",\n".join(tables) + "}\n")


if __name__ == "__main__":
    main()
