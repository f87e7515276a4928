"""Packing problems that others have published, with what they reached."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forebay.model.quantities import Resources
from forebay.model.workloads import Pod, PodShape
from forebay.planning.plan import Candidate
from planner_cases.making import GPU, candidate, pod, shape

MIB = 2**20


def vector_packing(file: Path) -> Iterator[tuple[dict[str, Any], list[Pod], list[Candidate]]]:
    """Items of several sizes into the fewest equal bins: every item a pod of its own shape."""
    with gzip.open(file, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            bin_amounts = {f"size-{d}": amount for d, amount in enumerate(row["capacity"])}
            pods = [
                pod(PodShape(requests=Resources({f"size-{d}": size for d, size in enumerate(item)})), n)
                for n, item in enumerate(row["items"])
            ]
            yield row, pods, [candidate("bin", bin_amounts, "1")]


def karpenter(file: Path) -> tuple[dict[str, Any], list[Candidate], dict[str, list[Pod]]]:
    data = json.loads(file.read_text())
    types = [
        candidate(
            each["name"],
            {
                "cpu": each["alloc_cpu_milli"],
                "memory": each["alloc_memory_mib"] * MIB,
                GPU: each["gpu"],
                "pods": each["pods"],
            },
            str(each["usd_h"]),
            provider="aws",
            gpu_type=each["gpu_name"],
            labels={"kubernetes.io/arch": each["arch"]},
        )
        for each in data["instance_types"]
    ]
    workloads = {}
    for name, workload in data["workloads"].items():
        pods: list[Pod] = []
        for each in workload["pods"]:
            arch = {"node_selector": {"kubernetes.io/arch": "amd64"}}
            of = shape(each["cpu_milli"], each["memory_mib"] * MIB, each["gpu"], **arch)
            pods += [pod(of, len(pods) + n) for n in range(each["count"])]
        workloads[name] = pods
    return data, types, workloads


def cluster_autoscaler(file: Path) -> tuple[int, list[Pod], list[Candidate]]:
    """Expected nodes, pods, the one type of node."""
    case = json.loads(file.read_text())["cluster_autoscaler_binpacking_estimate"]
    node = case["node"]
    amounts = {"cpu": node["cpu_milli"], "memory": node["memory_bytes"], "pods": node["max_pods"]}
    pods: list[Pod] = []
    for each in case["pods"]:
        of = shape(each["cpu_milli"], each["memory_bytes"])
        pods += [pod(of, len(pods) + n) for n in range(each["count"])]
    return case["expected_nodes_by_ca"], pods, [candidate("node", amounts, "1", stock=case["max_nodes"])]
