"""Offers drawn from a table of real prices, and pods: generated mixes, and those of a published trace."""

import csv
import gzip
import random
from collections import Counter
from pathlib import Path

from forebay.model.gpu_models import canonical
from forebay.model.label_syntax import label_value
from forebay.model.workloads import Pod, PodShape
from forebay.planning.plan import Candidate
from planner_cases.making import GPU, candidate, pod, shape

GPU_TYPE = "forebay.dev/gpu-type"
ZONE = "topology.kubernetes.io/zone"
GIB = 2**30
MIB = 2**20


def offers(table: Path, number: int, seed: int) -> list[Candidate]:
    """Rows on demand and spot. A third of them have a known, finite stock."""
    rng = random.Random(seed)
    with gzip.open(table, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if float(row["gpu_count"]) >= 1]
    priced = [
        (row, price, spot)
        for row in rows
        for price, spot in ((row["price_ondemand_usd_h"], False), (row["price_spot_usd_h"], True))
        if price
    ]
    found = []
    for row, price, spot in rng.sample(priced, number):
        memory = float(row["gpu_mem_gib"])
        model = canonical(row["gpu_name"], memory)
        labels = {GPU_TYPE: label_value(model), ZONE: label_value(row["zone"] or row["region"])}
        # What a kubelet leaves of it, roughly as the clouds' own tables have it.
        amounts = {
            "cpu": int(float(row["vcpus"]) * 980),
            "memory": int(float(row["memory_gib"]) * 0.93 * GIB),
            GPU: int(float(row["gpu_count"])),
            "pods": 110,
        }
        found.append(
            candidate(
                row["instance_type"],
                amounts,
                price,
                provider=row["provider"],
                region=row["region"] or None,
                zone=row["zone"] or None,
                spot=spot,
                gpu_type=model,
                stock=rng.choice((2, 5, 10, 50, 200)) if rng.random() < 1 / 3 else None,
                labels=labels,
            )
        )
    return found


def mixed_shapes(number: int, rng: random.Random) -> list[PodShape]:
    """Jobs of 1 to 8 GPUs with the CPUs and memory that go with them, a fifth of them choosy about the model."""
    made = []
    while len(made) < number:
        gpus = rng.choices((1, 2, 4, 8), (60, 20, 12, 8))[0]
        cpu = rng.choice((1000, 2000, 3000, 4000, 6000, 8000, 12000)) * gpus
        memory = rng.choice((4, 8, 12, 16, 24, 32, 48)) * GIB * gpus
        fields: dict[str, object] = {}
        if rng.random() < 0.2:
            fields["node_selector"] = {GPU_TYPE: rng.choice(("L4", "T4", "H100", "A100-80GB", "L40S", "RTX4090"))}
        made.append(shape(cpu, memory, gpus, **fields))
    return made


def mixed_pods(number: int, shapes: int, seed: int) -> list[Pod]:
    rng = random.Random(seed)
    made = mixed_shapes(shapes, rng)
    weights = [rng.paretovariate(1.2) for _ in made]
    return [pod(of, n) for n, of in enumerate(rng.choices(made, weights, k=number))]


def trace_pods(trace: Path, number: int) -> list[Pod]:
    """The GPU pods of the openb trace, in its proportions. A share of a GPU counts as a whole one."""
    with gzip.open(trace, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["num_gpu"]) > 0]
    counts = Counter((int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"])) for row in rows)
    shapes = {key: shape(key[0], key[1] * MIB, key[2]) for key in counts}
    whole = sum(counts.values())
    scaled = {key: count * number // whole for key, count in counts.items()}
    by_rest = sorted(counts, key=lambda key: (-(counts[key] * number % whole), key))
    for key in by_rest[: number - sum(scaled.values())]:
        scaled[key] += 1
    keys = [key for key in sorted(scaled) for _ in range(scaled[key])]
    return [pod(shapes[key], n) for n, key in enumerate(keys)]
