"""Remote containers for pods of marked Jobs: ordered where they are cheaper than a node, within limits and budgets."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.instance_order import ContainerRecord, PortRecord
from forebay.api.meta import ObjectMeta
from forebay.api.names import VIRTUAL_NODE
from forebay.budgets.admission import Admission, Held
from forebay.demand.planned_pods import live_containers
from forebay.lifecycle.cooldown import cooldowns, failures_so_far, order_cooldown
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, Offer, OfferKey, Source, SourceKey
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.offload.departure import Leaves, departures
from forebay.offload.marks import InvalidMark, Marks, read_marks
from forebay.offload.offer_choice import ContainerChoice, NoContainer, container_choices
from forebay.offload.record_progress import did_anything
from forebay.planning.gangs import gang_key
from forebay.planning.limits import caps
from forebay.planning.plan import LeftOut, PoolKey
from forebay.planning.pool_policies import PoolPolicy
from forebay.planning.usual_prices import RememberedPrices
from forebay.reconcile.buying import plan_for
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.orders import ContainerOffer, OrderTerms, create_container
from forebay.reconcile.remote_limits import RemainingLimits
from forebay.reconcile.snapshot import Snapshot, revisions

#: Reasons of the plan of nodes that say less than why no remote container will do either.
_SAYS_LESS: Final = frozenset({Reason.NO_CAPACITY_CONFIGURED, Reason.NO_OFFER_FITS})
_ABANDONED: Final = (
    "The pod is bound to the virtual node, but its Job is gone or not marked to run remotely any more, so no container "
    "is launched for it. Delete the pod."
)
_PRICES: Final = RememberedPrices()


class RemoteOrders(msgspec.Struct, frozen=True, kw_only=True):
    """Containers to order, and the pods that nodes may be bought for instead."""

    decisions: tuple[CreateInstance, ...] = ()
    left: tuple[Pod, ...] = ()
    #: By UID of a pod that could leave and does not: why.
    notes: Mapping[str, tuple[Reason, str]] = {}
    #: Pods that no node can serve any more, because they have left, and that no container is ordered for.
    left_out: tuple[LeftOut, ...] = ()
    held: tuple[Held, ...] = ()
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
            return left
        reason = note[0] if left.reason in _SAYS_LESS else left.reason
        # Nobody asked for nodes: what a class and a pool of machines would be for is not the answer.
        before = "" if left.reason is Reason.NO_CAPACITY_CONFIGURED else f"{left.sentence} "
        return replace(left, reason=reason, sentence=f"{before}As a remote container: {note[1]}")


def order_containers(snapshot: Snapshot, pods: tuple[Pod, ...], admission: Admission | None) -> RemoteOrders:
    """Orders for those of the pods that leave now, and for pods that left and whose container could not start."""
    if snapshot.unread:
        pods = tuple(pod for pod in pods if pod.uid not in snapshot.unread)
    if not snapshot.portable and not snapshot.stranded:
        return RemoteOrders(left=pods)
    return _Desk(snapshot, admission).serve(pods)


class _Chosen(NamedTuple):
    pool: GPUNodePool
    node_class: GPUNodeClass
    choice: ContainerChoice


class _Counter(NamedTuple):
    """What one pool may order of one source: the source with the offers that the pool allows."""

    pool: GPUNodePool
    node_class: GPUNodeClass
    policy: PoolPolicy
    source: Source


class _Desk:
    """One tick's orders."""

    def __init__(self, snapshot: Snapshot, admission: Admission | None) -> None:
        self._snapshot = snapshot
        self._admission = admission
        found = cooldowns(snapshot.records, snapshot.now, revisions(snapshot))
        self._cooling: dict[CooldownKey, datetime] = {
            key: each.until for key, each in found.items() if each.until > snapshot.now
        }
        self._limits = RemainingLimits(caps(snapshot.pools, snapshot.classes, snapshot.records))
        #: Why pools refuse the offers that they refuse; the first such reason.
        self._refused: tuple[Reason, str] | None = None
        self._counters = tuple(self._open())
        self._known: dict[tuple[int, str, Marks], tuple[Sequence[_Chosen], tuple[Reason, str]]] = {}
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
            requeue_at=min([*due, *self._due, *(self._cooling.values() if leaves or stranded else ())], default=None),
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
            if found is None:
                left_out.append(LeftOut(pod=pod, reason=Reason.OFFLOAD_NOT_POSSIBLE, sentence=_ABANDONED))
                continue
            try:
                marks = read_marks(found.job.annotations)
            except InvalidMark as error:
                left_out.append(LeftOut(pod=pod, reason=Reason.OFFLOAD_NOT_POSSIBLE, sentence=str(error)))
                continue
            if not self._order(pod, marks, self._choices(pod, marks), "The container before did not start. "):
                note = self._notes.get(pod.uid)
                if note is not None:
                    left_out.append(LeftOut(pod=pod, reason=note[0], sentence=note[1]))
        return tuple(left_out)

    def _open(self) -> Iterable[_Counter]:
        snapshot = self._snapshot
        classes = {each.metadata.name: each for each in filter(may_buy, snapshot.classes)}
        usual = _PRICES.of([each.offers for _, each in sorted(snapshot.sources.items()) if each.offers is not None])
        for pool in sorted(snapshot.pools, key=lambda each: each.key):
            node_class = classes.get(pool.spec.node_class_ref.name)
            if node_class is None or node_class.metadata.deletion_timestamp or pool.metadata.deletion_timestamp:
                continue
            policy = PoolPolicy.of(pool, node_class, snapshot.namespaces, snapshot.rules.namespace)
            for key, source in sorted(snapshot.sources.items()):
                if key.node_class != node_class.metadata.name:
                    continue
                allowed: list[Offer] = []
                for offer in source.offers or ():
                    if source.delivery_of(offer).has_node:
                        continue
                    candidate = policy.candidate(source, offer, (), zoned=False)
                    why = policy.refuses(source, candidate, usual.unusual(offer))
                    if why is None:
                        allowed.append(offer)
                    elif self._refused is None:
                        self._refused = why[0], f"{offer.instance_type} of {offer.provider}: {why[1]}."
                yield _Counter(pool, node_class, policy, replace(source, offers=tuple(allowed)))

    def _choices(self, pod: Pod, marks: Marks) -> Sequence[_Chosen]:
        """Containers that the pod may have, cheapest first. Where there is none, the note says why."""
        problems = list(self._snapshot.portable[pod.uid].obstacles)
        if gang_key(pod) is not None:
            problems.append("Pods of a gang must reach each other, and remote containers cannot.")
        if problems:
            self._notes[pod.uid] = (Reason.OFFLOAD_NOT_POSSIBLE, " ".join(problems))
            return ()
        # Jobs are many and shapes few: pods of one template share theirs, and what one may have, all may.
        key = (id(pod.shape), pod.namespace, marks)
        if key not in self._known:
            self._known[key] = self._found(pod, marks)
        found, why = self._known[key]
        if not found:
            self._notes[pod.uid] = why
        return found

    def _found(self, pod: Pod, marks: Marks) -> tuple[Sequence[_Chosen], tuple[Reason, str]]:
        """Containers for pods of that shape and namespace, and why there is none where there is none."""
        found: list[_Chosen] = []
        why: NoContainer | None = None
        for each in self._counters:
            if each.policy.namespaces is not None and pod.namespace not in each.policy.namespaces:
                continue
            got = container_choices(
                pod, marks, (each.source,), self._snapshot.rules.offload.max_gpu_price, self._cooling
            )
            if isinstance(got, NoContainer):
                if why is None or why.reason is Reason.NO_CAPACITY_CONFIGURED:
                    why = got
            else:
                found += (_Chosen(each.pool, each.node_class, choice) for choice in got)
        found.sort(key=lambda each: (each.choice.effective_price, -each.pool.spec.weight, each.pool.key))
        return found, self._why_none(why)

    def _why_none(self, why: NoContainer | None) -> tuple[Reason, str]:
        if why is not None and why.reason is not Reason.NO_CAPACITY_CONFIGURED:
            return why.reason, why.sentence
        failing = (
            f"{each.source.key.provider} of GPUNodeClass {each.source.key.node_class}: {each.source.error.rstrip('.')}."
            for each in self._counters
            if each.source.error and not each.source.offers
        )
        if (told := next(failing, None)) is not None:
            return Reason.PROVIDER_UNAVAILABLE, told
        if self._refused is not None:
            return self._refused
        sentence = "No GPUNodePool that serves its namespace has an offer of one: see docs/providers/runpod.md."
        return Reason.NO_CAPACITY_CONFIGURED, sentence

    def _cheaper_as_nodes(
        self, pods: tuple[Pod, ...], leaves: Iterable[Leaves], choices: Mapping[str, Sequence[_Chosen]]
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

    def _order(self, pod: Pod, marks: Marks, choices: Sequence[_Chosen], why: str) -> bool:
        """Whether a container is ordered for the pod. Where not, the note or the held pod says why."""
        refused: str | None = None
        own = self._records.get(pod.uid, ())
        for pool, node_class, choice in choices:
            key, offer = PoolKey(*pool.key), choice.offer
            cooling = order_cooldown(own, offer.key) if own else None
            if cooling is not None and cooling.until > self._snapshot.now:
                left = human(cooling.until - self._snapshot.now)
                self._notes[pod.uid] = (Reason.LAUNCH_REJECTED, f"{cooling.sentence} Next attempt in {left}.")
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
            self._decisions.append(self._created(pod, marks, _Chosen(pool, node_class, choice), why))
            return True
        if refused is not None:
            self._notes[pod.uid] = (Reason.LIMIT_REACHED, f"{refused} allows no more. Raise it, or wait.")
        return False

    def _created(self, pod: Pod, marks: Marks, chosen: _Chosen, why: str) -> CreateInstance:
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
            node_name=VIRTUAL_NODE,
        )
        terms = OrderTerms(pool=chosen.pool, node_class=chosen.node_class, capabilities=source.capabilities)
        return create_container(pod, ordered, container, terms, self._records.get(pod.uid, ()))
