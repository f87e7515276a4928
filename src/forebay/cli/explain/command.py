"""`forebay explain`: why a pod or Job waits, why a node or GPUInstance exists, how large instance groups should be."""

import argparse
import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from forebay.cli.output import (
    add_output_option,
    print_document,
    print_line,
    print_paragraph,
    print_table,
    print_title,
)
from forebay.cli.parser import Command, UserError, namespace_and_name
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.cluster_reader import ClusterReader
    from forebay.model.workloads import Pod
    from forebay.reporting.cluster_view import ClusterView, EventLine
    from forebay.reporting.explanations import Explanation
    from forebay.reporting.machines import MachineView

_T = TypeVar("_T")
#: Kinds as kubectl spells them, short and long.
_KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("job", "jobs"), "job"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("gi", "gpuinstance", "gpuinstances"), "gi"),
    **dict.fromkeys(("np", "nodeprovisioner", "nodeprovisioners"), "np"),
}
#: Kinds whose objects are in namespaces: `status` shows them as NAMESPACE/NAME.
_NAMESPACED: Final = frozenset({"pod", "job"})
#: Pods of a Job that are shown; the others are counted.
_MOST_PODS: Final = 20
#: GPUInstances that are shown whole; the others are counted.
_MOST_MACHINES: Final = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "object", metavar="KIND/NAME", help="pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME; also pod/NAMESPACE/NAME"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the name, where it is not behind a slash: pod NAME")
    parser.add_argument(
        "-n",
        "--namespace",
        dest="in_namespace",
        metavar="NAMESPACE",
        help="namespace of the pod or Job (default: the one of the context)",
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="explain from this saved snapshot or support bundle, not the cluster"
    )
    add_output_option(parser)


def asked_for(text: str, name: str | None) -> str:
    """`pod/x` of `pod x`, as kubectl takes both."""
    if name is None:
        return text
    if "/" in text:
        raise UserError(f"one object is explained at a time: {text!r} or {name!r}")
    return f"{text}/{name}"


def target(text: str, namespace: str | None = None) -> tuple[str, str | None, str]:
    """Kind, namespace and name of `pod/x`, of `pod/team/x`, or of what `kubectl get -o name` prints: `job.batch/x`."""
    kind, slash, name = text.partition("/")
    known = _KINDS.get(kind.partition(".")[0].lower())
    if known in _NAMESPACED and name.count("/") == 1 and all(name.split("/")):
        namespace, name = namespace_and_name(name, namespace)
    if not slash or not name or known is None or "/" in name:
        raise UserError(f"{text!r} cannot be explained; give pod/NAME, job/NAME, node/NAME, gi/NAME or np/NAME")
    return known, namespace, name


async def explain(settings: Settings, kind: str, name: str, namespace: str | None) -> "tuple[Explanation, datetime]":
    """The explanation of one object of the cluster, and the time it is of."""
    from forebay.cli.cluster_reader import cluster_reader

    async with cluster_reader(settings) as reader:
        return await explanation_of(reader, settings, kind, name, namespace)


def explained_in_file(file: str, kind: str, name: str, namespace: str | None) -> "tuple[Explanation, datetime]":
    """The explanation of one object of a saved snapshot, and the time it is of."""
    from forebay.cli.plan.inputs import read_snapshot
    from forebay.reporting.replay import NotInSnapshot, explain_in

    snapshot = read_snapshot(file)
    try:
        return explain_in(snapshot, kind, namespace or "default", name), snapshot.now
    except NotInSnapshot as error:
        raise UserError(f"{file}: {error}") from error


async def explanation_of(
    reader: "ClusterReader", settings: Settings, kind: str, name: str, namespace: str | None
) -> "tuple[Explanation, datetime]":
    """`explain` with a given reader."""
    from msgspec.structs import replace

    from forebay.reporting.explanations import (
        explain_instance,
        explain_job,
        explain_node,
        explain_pod,
        explain_provisioner,
    )

    in_namespace = namespace or reader.namespace
    match kind:
        case "pod":
            pod = await reader.pod(in_namespace, name)
            view = await read_cluster_view(reader, settings, [pod])
            found = explain_pod(pod, view, await reader.events("Pod", in_namespace, name, uids={pod.uid}))
            return replace(found, hidden=view.hidden), view.now
        case "job":
            job, uid = await reader.job(in_namespace, name)
            pods = [pod for pod in await reader.pods(in_namespace) if pod.owner is not None and pod.owner.uid == uid]
            view = await read_cluster_view(reader, settings, pods)
            pod_events: defaultdict[str, list[EventLine]] = defaultdict(list)
            for each in await reader.events("Pod", in_namespace, uids={pod.uid for pod in pods}) or ():
                pod_events[each.about].append(each)
            job_events = await reader.events("Job", in_namespace, name, uids={uid})
            found = explain_job(job, pods, view, job_events, pod_events)
            return replace(found, hidden=view.hidden), view.now
        case "node":
            node = await reader.node(name)
            view = await read_cluster_view(reader, settings)
            return explain_node(node, view, await reader.events("Node", name=name)), view.now
        case "np":
            provisioner = await reader.provisioner(name)
            view = await read_cluster_view(reader, settings)
            return explain_provisioner(provisioner, view, await reader.events("NodeProvisioner", name=name)), view.now
        case _:
            record = await reader.record(name)
            view = await read_cluster_view(reader, settings)
            events = await reader.events("GPUInstance", name=name, uids={record.metadata.uid})
            return explain_instance(record, view, events), view.now


async def read_cluster_view(
    reader: "ClusterReader", settings: Settings, about: "Sequence[Pod] | None" = None
) -> "ClusterView":
    """The view that explanations need; with the budget waits of `about`, pods of one namespace.

    Nodes and GPUInstances are listed in full, pods only those on nodes of GPUInstances. With `about`, what this user
    may not list is left out, and named in `hidden`.
    """
    from forebay.cli.budgets.waits import read_budget_waits
    from forebay.kube.errors import Forbidden
    from forebay.net import clock
    from forebay.reporting.cluster_view import (
        INSTANCES,
        NODES,
        ClusterView,
        cluster_now,
        operator_running,
        pods_by_node,
    )
    from forebay.wiring.run_settings import rules_of

    hidden: list[str] = []

    async def shown(what: str, read: Awaitable[_T], nothing: _T) -> _T:
        """What was read. A team may ask about its own pods with rights in its namespace alone."""
        try:
            return await read
        except Forbidden:
            if about is None:
                raise
            hidden.append(what)
            return nothing

    records = await shown(INSTANCES, reader.records(), [])
    names = {name for name in (each.node_name for each in records or ()) if name is not None}
    nodes = await shown(NODES, reader.nodes(), {})
    on_nodes = sorted(names & nodes.keys())
    pods = [pod for name in on_nodes for pod in await shown("pods of all namespaces", reader.pods(node=name), [])]
    pools = await shown("GPUNodePools", reader.pools(), [])
    classes = await reader.classes()
    leaders = await reader.leaders()
    now = cluster_now(leaders, clock.now())
    waits = {}
    if about:
        waits = await read_budget_waits(reader, about[0].namespace, about, now)
    return ClusterView(
        now=now,
        records=records,
        pools=pools or (),
        classes=classes or (),
        nodes=nodes,
        pods_by_node=pods_by_node(pods),
        operator_running=operator_running(leaders, now),
        gpu_resources=rules_of(settings).gpu_resources,
        budget_waits=waits,
        hidden=tuple(dict.fromkeys(hidden)),
    )


def show(explanation: "Explanation", now: datetime) -> None:
    print_title(f"{explanation.about}: {explanation.reason}")
    print_paragraph(explanation.answer, indent=2)
    for step in explanation.steps:
        print_paragraph(step, indent=4)
    print_paragraph(f"Next: {explanation.next}", indent=2)
    for machine in explanation.machines[:_MOST_MACHINES]:
        print()
        show_machine(machine)
    if others := explanation.machines[_MOST_MACHINES:]:
        print()
        print_paragraph(f"{len(others)} more GPUInstances; all with --output json")
    for pod in explanation.pods[:_MOST_PODS]:
        print()
        print_title(f"{pod.about}: {pod.reason}")
        print_paragraph(pod.answer, indent=2)
        print_paragraph(f"Next: {pod.next}", indent=2)
        for machine in pod.machines:
            price = price_text(machine)
            print_paragraph(f"GPUInstance {machine.name} ({price}): {machine.state}. {machine.message}", indent=2)
        show_events(pod.events or [], now, indent=2)
    if more := explanation.pods[_MOST_PODS:]:
        print()
        reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(pod.reason for pod in more).most_common())
        print_paragraph(f"{len(more)} more pods ({reasons}); all with --output json")
    # Transitions are events too: those in the history are not shown twice.
    shown = {step.message for machine in explanation.machines for step in machine.history}
    show_events(
        explanation.events and [event for event in explanation.events if event.note not in shown], now, indent=0
    )
    if explanation.hidden:
        print()
        print_paragraph(f"Not considered, because this user may not list them: {', '.join(explanation.hidden)}.")


def show_machine(machine: "MachineView") -> None:
    from forebay.model.counts import counted
    from forebay.model.quantities import Usd

    what = f"{machine.gpus} x {machine.gpu_type}" if machine.gpu_type else counted(machine.gpus, "GPU")
    print_line(f"GPUInstance {machine.name}: {machine.type} of {machine.provider}, {what}, {price_text(machine)}")
    billed = "$0.00 (not billed)"
    if machine.billed_from is not None:
        until = f"{machine.billed_until:%Y-%m-%d %H:%M:%S}" if machine.billed_until is not None else "now"
        cost = Usd.from_exact(machine.cost_exact)
        billed = f"{cost} (billed from {machine.billed_from:%Y-%m-%d %H:%M:%S} to {until}, UTC)"
    rows = [
        ("Cost", billed),
        ("Pool", machine.pool or "none"),
        ("Node", machine.node or "none"),
        ("Pods", ", ".join(machine.pods) or "none"),
        ("For", ", ".join(machine.launched_for) or "no particular pod"),
    ]
    for title, text in rows:
        print_paragraph(f"{title:<6}{text}", indent=2, hanging=6)
    if machine.why:
        print_paragraph(f"{'Why':<6}{machine.why}", indent=2, hanging=6)
    if machine.history:
        table = [(f"{step.at:%H:%M:%S}", step.state, step.reason, step.message) for step in machine.history]
        print_table((f"  {machine.history[0].at:%Y-%m-%d}", "STATE", "REASON", "MESSAGE"), _indented(table))


def show_events(events: "list[EventLine] | None", now: datetime, *, indent: int) -> None:
    from forebay.model.spans import human

    if events is None:
        print_paragraph("Events are not shown: this user may not list events.", indent=indent)
        return
    if not events:
        return
    print()
    rows = [
        (
            f"{'':{indent}}{human(now - each.at)}" + (f" (x{each.times})" if each.times > 1 else ""),
            each.type,
            each.reason,
            each.note,
        )
        for each in events
    ]
    print_table((f"{'':{indent}}EVENT AGE", "TYPE", "REASON", "MESSAGE"), rows)


def price_text(machine: "MachineView") -> str:
    from forebay.model.quantities import UsdPerHour

    return str(UsdPerHour(machine.price_per_hour))


def _indented(rows: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    return [(f"  {first}", *rest) for first, *rest in rows]  # type: ignore[misc]


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    kind, namespace, name = target(asked_for(arguments.object, arguments.name), arguments.in_namespace)
    if arguments.filename is not None:
        explanation, now = explained_in_file(arguments.filename, kind, name, namespace)
    else:
        explanation, now = asyncio.run(explain(settings, kind, name, namespace))
    if arguments.output != "text":
        print_document(msgspec.to_builtins(explanation), arguments.output)
    else:
        show(explanation, now)
    return 0


COMMAND = Command(
    name="explain",
    summary="explain why a pod or Job waits, or why a node or GPUInstance exists, and what comes next",
    description="For a pod or Job: whether it waits for capacity and why, the GPUInstances launched for it,\n"
    "Forebay's events, and what comes next. For a node or GPUInstance: why it was launched, its\n"
    "history and cost, and when it is terminated. For a NodeProvisioner: the target of its instance\n"
    "groups, with the arithmetic:\n\n"
    "  forebay explain pod/train-0 -n team\n"
    "  forebay explain pod/team/train-0            # as forebay status writes it\n"
    "  forebay explain job/train\n"
    "  forebay explain node/gpu-1\n"
    "  forebay explain np/a3-pool\n"
    "  forebay explain gi/gpu-1 --output json\n"
    "  forebay explain pod/train-0 -n team -f forebay-support.tar.gz",
    options=add_options,
    run=run,
    watchable=True,
)
