"""`KubectlNodes`: machines of a conformance server that is started by hand become nodes of a cluster, by kubectl."""

import asyncio
import json
import subprocess
import sys

from forebay.simulate.market_nodes import provider_id_of


class KubectlNodes:
    """Kubelets of rented machines in an embedded cluster, which is that of the kubeconfig. Nothing runs there."""

    def __init__(self, kubeconfig):
        self._kubectl = ["kubectl", "--kubeconfig", kubeconfig]

    def boot(self, rented, *, gpus_appear):
        gpus = rented.sku.gpus if gpus_appear else 0
        amounts = {**rented.sku.allocatable, "pods": "110", rented.sku.gpu_resource: str(gpus)}
        planned = rented.order.node
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": planned.name, "labels": {"kubernetes.io/hostname": planned.name, **planned.labels}},
            "spec": {
                "providerID": provider_id_of(rented),
                "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in planned.taints],
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self._run(["create", "-f", "-"], json.dumps(node))

    def stop(self, rented):
        if rented.node_name is not None:
            self._run(["annotate", "--overwrite", "node", rented.node_name, "embedded.forebay.dev/kubelet=dead"])

    def _run(self, arguments, text=""):
        asyncio.get_running_loop().run_in_executor(None, self._call, arguments, text)

    def _call(self, arguments, text):
        done = subprocess.run([*self._kubectl, *arguments], input=text, capture_output=True, text=True, check=False)
        if done.returncode and "NotFound" not in done.stderr:
            sys.stderr.write(f"kubectl {arguments[0]}: {done.stderr.strip()}\n")
