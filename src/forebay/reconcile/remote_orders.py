"""Remote containers for pods of marked Jobs: ordered where they are cheaper than a node, within limits and budgets."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.instance_order import ContainerRecord, PortRecord
from forebay.api.meta import ObjectMeta
from forebay.api.names import VIRTUAL_NODE
from forebay.budgets.admission import Admission, Held
from forebay.demand.planned_pods import live_containers
from forebay.lifecycle.cooldown import failures_so_far, order_cooldown
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import OfferKey, SourceKey
from forebay.model.workloads import Phase, Pod
from forebay.offload.departure import Leaves, departures
from forebay.offload.marks import InvalidMark, Marks, read_marks
from forebay.offload.record_progress import did_anything
from forebay.planning.limits import caps
from forebay.planning.plan import LeftOut, PoolKey
from forebay.reconcile.buying import plan_for
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.orders import ContainerOffer, OrderTerms, create_container
from forebay.reconcile.remote_choices import ChosenContainer, RemoteChoices
from forebay.reconcile.remote_limits import RemainingLimits
from forebay.reconcile.snapshot import Snapshot

#: Reasons of the plan of nodes that say less than why no remote container will do either.
_SAYS_LESS: Final = frozenset({Reason.NO_CAPACITY_CONFIGURED, Reason.NO_OFFER_FITS})
_ABANDONED: Final = (
    "The pod is bound to the virtual node, but its Job is gone or not marked to run remotely any more, so no container "
    "is launched for it. Delete the pod."
)


class RemoteOrders(msgspec.Struct, frozen=True, kw_only=True):
    """Containers to order, and the pods that nodes may be bought for instead."""

    decisions: tuple[CreateInstance, ...] = ()
    left: tuple[Pod, ...] = ()
    #: By UID of a pod that could leave and does not: why.
    notes: Mapping[str, tuple[Reason, str]] = {}
    #: Pods that no node can serve any more, because they have left, and that no container is ordered for.
    left_out: tuple[LeftOut, ...] = ()
    held: tuple[Held, ...] = ()
    #: What a pod waits for where remote containers are configured and no machines; None where none are.
    no_machines: str | None = None
    requeue_at: datetime | None = None

    def counted(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the ordered containers among the records: they count against the limits of nodes too."""
        if not self.decisions:
            return snapshot
        ordered = (GPUInstance(metadata=ObjectMeta(name=each.name), spec=each.spec) for each in self.decisions)
        return replace(snapshot, records=(*snapshot.records, *ordered))

    def explained(self, left_out: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
        """Pods that no node is bought for, with why they do not run remotely either."""
        return tuple(self._explained(each) for each in left_out)

    def _explained(self, left: LeftOut) -> LeftOut:
        note = self.notes.get(left.pod.uid)
        if note is None:
            unserved = left.reason is Reason.NO_CAPACITY_CONFIGURED and self.no_machines is not None
            return replace(left, sentence=self.no_machines) if unserved else left
        reason = note[0] if left.reason in _SAYS_LESS else left.reason
        # Nobody asked for nodes: what a class and a pool of machines would be for is not the answer.
        before = "" if left.reason is Reason.NO_CAPACITY_CONFIGURED else f"{left.sentence} "
        return replace(left, reason=reason, sentence=f"{before}As a remote container: {note[1]}")


def order_containers(snapshot: Snapshot, pods: tuple[Pod, ...], admission: Admission | None) -> RemoteOrders:
    """Orders for those of the pods that leave now, and for pods that left and whose container could not start."""
    if snapshot.unread:
        pods = tuple(pod for pod in pods if pod.uid not in snapshot.unread)
    if not snapshot.portable and not snapshot.stranded:
        return RemoteOrders(left=pods, no_machines=_no_machines(snapshot))
    return _Desk(snapshot, admission).serve(pods)


def container_providers(snapshot: Snapshot) -> tuple[str, ...]:
    """Providers of the snapshot that run containers and rent no machines, by name."""
    found = (
        key.provider
        for key, source in snapshot.sources.items()
        if source.enabled and not any(each.has_node for each in source.capabilities.deliveries)
    )
    return tuple(sorted(set(found)))


def _no_machines(snapshot: Snapshot) -> str | None:
    containers = container_providers(snapshot)
    if not containers:
        return None
    fact = f"No machines are configured, only remote containers ({', '.join(containers)})"
    if snapshot.remote_prevented is not None:
        return f"{fact}. {snapshot.remote_prevented}"
    return (
        f'{fact}, which run pods of Jobs that are marked runpod.io/managed: "true". Mark the Job, or create a '
        "GPUNodeClass and a GPUNodePool that offer machines."
    )


class _Desk:
    """One tick's orders."""

    def __init__(self, snapshot: Snapshot, admission: Admission | None) -> None:
        self._snapshot = snapshot
        self._admission = admission
        self._offered = RemoteChoices(snapshot)
        self._limits = RemainingLimits(caps(snapshot.pools, snapshot.classes, snapshot.records))
        self._failures: dict[tuple[SourceKey, OfferKey], int] = {}
        self._records: dict[str, list[GPUInstance]] = {}
        for each in snapshot.records:
            for ref in each.spec.pods if not each.spec.delivers.has_node else ():
                self._records.setdefault(ref.uid, []).append(each)
        self._notes: dict[str, tuple[Reason, str]] = {}
        self._decisions: list[CreateInstance] = []
        self._held: list[Held] = []
        #: When pods may have an offer again that has refused them.
        self._due: list[datetime] = []

    def serve(self, pods: tuple[Pod, ...]) -> RemoteOrders:
        snapshot = self._snapshot
        jobs = {each.job.uid: each.job for each in snapshot.portable.values()}
        read = [pod for pod in pods if pod.uid in snapshot.portable]
        leaves, stays = departures(read, jobs, snapshot.rules.offload, snapshot.rules.gpu_resources, snapshot.now)
        self._notes |= {each.pod.uid: (each.reason, each.sentence) for each in stays}
        leaves = tuple(sorted(leaves, key=lambda each: (each.pod.created, each.pod.uid)))
        choices = {each.pod.uid: self._choices(each.pod, each.marks) for each in leaves}
        cheaper = self._cheaper_as_nodes(pods, leaves, choices)
        stranded = self._stranded()
        gone = {
            each.pod.uid
            for each in leaves
            if each.pod.uid not in cheaper and self._order(each.pod, each.marks, choices[each.pod.uid], f"{each.why} ")
        }
        held = {each.pod.uid for each in self._held}
        due = [each.until for each in stays if each.until is not None and each.until > snapshot.now]
        return RemoteOrders(
            decisions=tuple(self._decisions),
            left=tuple(pod for pod in pods if pod.uid not in gone and pod.uid not in held),
            notes=self._notes,
            left_out=stranded,
            held=tuple(self._held),
            no_machines=_no_machines(snapshot),
            requeue_at=min([*due, *self._due, *(self._offered.cool_at if leaves or stranded else ())], default=None),
        )

    def _stranded(self) -> tuple[LeftOut, ...]:
        """Orders for pods that are bound to the virtual node and have no container: nothing else can run them."""
        left_out: list[LeftOut] = []
        live = live_containers(self._snapshot.records)
        ran = {pod.uid for each in self._snapshot.records if did_anything(each) for pod in each.spec.pods}
        for pod in sorted(self._snapshot.stranded, key=lambda each: (each.created, each.uid)):
            found = self._snapshot.portable.get(pod.uid)
            if pod.uid in live or pod.uid in ran or pod.uid in self._snapshot.unread:
                continue
            if pod.phase is Phase.RUNNING:
                # It has had its run, whose record somebody has taken away.
                continue
            if found is None:
                left_out.append(LeftOut(pod=pod, reason=Reason.OFFLOAD_NOT_POSSIBLE, sentence=_ABANDONED))
                continue
            try:
                marks = read_marks(found.job.annotations)
            except InvalidMark as error:
                left_out.append(LeftOut(pod=pod, reason=Reason.OFFLOAD_NOT_POSSIBLE, sentence=str(error)))
                continue
            if self._is_held(pod):
                continue
            if not self._order(pod, marks, self._choices(pod, marks), "The container before did not start. "):
                note = self._notes.get(pod.uid)
                if note is not None and not any(each.pod is pod for each in self._held):
                    left_out.append(LeftOut(pod=pod, reason=note[0], sentence=note[1]))
        return tuple(left_out)

    def _is_held(self, pod: Pod) -> bool:
        """Whether a budget of a pod that is bound already is used up by now."""
        held = self._admission.admit_again(pod) if self._admission is not None else None
        if held is None:
            return False
        self._held.append(held)
        return True

    def _choices(self, pod: Pod, marks: Marks) -> Sequence[ChosenContainer]:
        """Containers that the pod may have, cheapest first. Where there is none, the note says why."""
        found, why = self._offered.of(pod, marks)
        if why is not None:
            self._notes[pod.uid] = why
        return found

    def _cheaper_as_nodes(
        self, pods: tuple[Pod, ...], leaves: Iterable[Leaves], choices: Mapping[str, Sequence[ChosenContainer]]
    ) -> set[str]:
        """Pods for which the plan of nodes has a machine that costs no more than their containers would."""
        prices = {
            each.pod.uid: found[0].choice.effective_price
            for each in leaves
            if not each.marks.forced and (found := choices[each.pod.uid])
        }
        cheaper: set[str] = set()
        for purchase in plan_for(self._snapshot, pods).purchases if prices else ():
            uids = {pod.uid for pod in purchase.pods}
            remote = sum((prices[uid] for uid in uids & prices.keys()), start=UsdPerHour.zero())
            # Where another pod needs the machine anyway, all of them share it.
            if not uids <= prices.keys() or purchase.candidate.effective_price <= remote:
                cheaper |= uids & prices.keys()
        return cheaper

    def _order(self, pod: Pod, marks: Marks, choices: Sequence[ChosenContainer], why: str) -> bool:
        """Whether a container is ordered for the pod. Where not, the note or the held pod says why."""
        refused: str | None = None
        own = self._records.get(pod.uid, ())
        for pool, node_class, choice in choices:
            key, offer = PoolKey(*pool.key), choice.offer
            cooling = order_cooldown(own, offer.key) if own else None
            if cooling is not None and cooling.until > self._snapshot.now:
                self._notes[pod.uid] = (Reason.LAUNCH_REJECTED, cooling.sentence)
                self._due.append(cooling.until)
                continue
            over = self._limits.refusal(key, offer)
            if over is not None:
                refused = refused or over
                continue
            if self._admission is not None:
                held = self._admission.admit_launch((pod,), offer.price, offer.billing.minimum)
                if held is not None:
                    # All others cost more.
                    self._held.append(replace(held, pod=pod))
                    self._notes[pod.uid] = (held.reason, held.sentence)
                    return False
            self._limits.take(key, offer)
            self._decisions.append(self._created(pod, marks, ChosenContainer(pool, node_class, choice), why))
            return True
        if refused is not None:
            self._notes[pod.uid] = (Reason.LIMIT_REACHED, f"{refused} allows no more. Raise it, or wait.")
        return False

    def _created(self, pod: Pod, marks: Marks, chosen: ChosenContainer, why: str) -> CreateInstance:
        snapshot, choice = self._snapshot, chosen.choice
        source, offer = snapshot.sources[choice.source], choice.offer
        sentence = (
            f"{why}{offer.instance_type} of {offer.provider} at {offer.price} is the cheapest remote container for pod "
            f"{pod.namespace}/{pod.name}."
        )
        key = (choice.source, offer.key)
        if key not in self._failures:
            self._failures[key] = failures_so_far(snapshot.records, *key)
        ordered = ContainerOffer(
            source=choice.source,
            offer=offer,
            delivers=source.delivery_of(offer),
            sentence=sentence,
            failures=self._failures[key],
        )
        container = ContainerRecord(
            image=snapshot.portable[pod.uid].image,
            ports=tuple(PortRecord(port=each.port, protocol=each.protocol) for each in marks.ports),
            registry_auth=marks.registry_auth,
            pull_secrets=() if marks.registry_auth is not None else snapshot.portable[pod.uid].pull_secrets,
            template=marks.template,
            max_hourly_price=min(choice.most, UsdPerHour(chosen.pool.spec.max_hourly_price)).exact(),
            node_name=VIRTUAL_NODE,
        )
        terms = OrderTerms(pool=chosen.pool, node_class=chosen.node_class, capabilities=source.capabilities)
        return create_container(pod, ordered, container, terms, self._records.get(pod.uid, ()))
