"""What benchmarks on a real control plane are built from: the operator as a process, with the roles it is granted."""

import importlib
from pathlib import Path

import pytest

from tests.cluster.operators import until
from tests.cluster.powered import rig_client

pytestmark = pytest.mark.real_time

BENCH = Path(__file__).resolve().parents[2] / "bench"


async def test_the_operator_of_a_benchmark_leads(own_rig, monkeypatch):
    # A benchmark is a script, and finds what it shares with others beside itself.
    monkeypatch.syspath_prepend(BENCH)
    shared = importlib.import_module("on_the_rig")
    client = rig_client(own_rig)
    async with shared.Informer(client.transport, own_rig.url, shared.PODS) as pods:
        with shared.BenchCluster(own_rig, client, pods).operator({}) as operator:

            async def leads():
                assert operator.pid
                return operator.said("became leader")

            await until(leads, "the operator of the benchmark leads")
    await client.close()


def test_what_is_measured_of_remote_pods_over_sockets_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    assert callable(importlib.import_module("offload_live").live)
