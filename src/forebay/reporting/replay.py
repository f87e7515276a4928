"""Explanations from a saved snapshot, without the cluster it was taken from."""

from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from forebay.reporting.explanations import (
    Explanation,
    explain_instance,
    explain_node,
    explain_pod,
    explain_provisioner,
)
from forebay.reporting.observation import cluster_view, every_pod, pod_event_lines


class NotInSnapshot(LookupError):
    """The snapshot has no such object. The message says what it has."""


def explain_in(snapshot: Snapshot, kind: str, namespace: str, name: str) -> Explanation:
    """What `forebay explain` would have said when the snapshot was taken. The tick is replayed for its events."""
    view = cluster_view(snapshot)
    match kind:
        case "pod":
            pod = _found(snapshot, namespace, name)
            told = pod_event_lines(tick(snapshot).decisions, snapshot.now).get("/".join(pod.key))
            return explain_pod(pod, view, [told] if told is not None else [])
        case "job":
            owned = sorted(
                pod.name
                for pod in every_pod(snapshot)
                if pod.namespace == namespace and pod.owner is not None and pod.owner.name == name
            )
            pods = f"; of its pods it has {', '.join(owned[:5])}" if owned else ""
            raise NotInSnapshot(f"a snapshot has pods and no Jobs{pods}")
        case "node":
            node = snapshot.nodes.get(name)
            if node is None:
                raise NotInSnapshot(f"the snapshot has no node {name}")
            return explain_node(node, view, [])
        case "np":
            provisioner = next((each for each in snapshot.provisioners if each.metadata.name == name), None)
            if provisioner is None:
                raise NotInSnapshot(f"the snapshot has no NodeProvisioner {name}")
            return explain_provisioner(provisioner, view, [])
        case _:
            record = next((each for each in snapshot.records if each.metadata.name == name), None)
            if record is None:
                raise NotInSnapshot(f"the snapshot has no GPUInstance {name}")
            return explain_instance(record, view, [])


def _found(snapshot: Snapshot, namespace: str, name: str) -> Pod:
    found = [pod for pod in every_pod(snapshot) if pod.name == name]
    pod = next((each for each in found if each.namespace == namespace), None)
    if pod is None:
        others = sorted({each.namespace for each in found})
        where = f"; give -n: there is one in {', '.join(others)}" if others else ""
        raise NotInSnapshot(
            f"the snapshot has no pod {namespace}/{name} that waits for GPUs or runs on a GPUInstance{where}"
        )
    return pod
