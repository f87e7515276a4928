"""Remote containers that pods of marked Jobs may have, by pools, marks and cooldowns, and why there is none."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import VIRTUAL_NODE
from forebay.lifecycle.cooldown import cooldowns
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, OfferKey, Source
from forebay.model.workloads import Pod
from forebay.offload.marks import InvalidMark, Marks, read_marks
from forebay.offload.offer_choice import ContainerChoice, Exclusions, NoContainer, container_choices
from forebay.planning.gangs import gang_key
from forebay.planning.pool_policies import PoolPolicy
from forebay.planning.usual_prices import RememberedPrices
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.snapshot import Snapshot, revisions

_PRICES: Final = RememberedPrices()
_CORDONED: Final = f"Node {VIRTUAL_NODE} is cordoned: kubectl uncordon it to run pods remotely."


class ChosenContainer(NamedTuple):
    """A container that a pod may have, and the pool and class that would order it."""

    pool: GPUNodePool
    node_class: GPUNodeClass
    choice: ContainerChoice


class _Counter(NamedTuple):
    """What one pool may order of one source."""

    pool: GPUNodePool
    node_class: GPUNodeClass
    policy: PoolPolicy
    source: Source
    excluded: Exclusions


class RemoteChoices:
    """Choices of one tick."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        found = cooldowns(snapshot.records, snapshot.now, revisions(snapshot))
        #: When offers that failed lately may be tried again.
        self.cool_at: tuple[datetime, ...] = tuple(each.until for each in found.values())
        self._cooling: Mapping[CooldownKey, str] = {
            key: f"until {each.until:%Y-%m-%d %H:%M:%S} UTC: {each.cause}" for key, each in found.items()
        }
        #: Why pools refuse the offers that they refuse; the first such reason.
        self._refused: tuple[Reason, str] | None = None
        self._counters = tuple(self._open())
        self._known: dict[tuple[int, str, Marks], tuple[Sequence[ChosenContainer], tuple[Reason, str] | None]] = {}

    def of(self, pod: Pod, marks: Marks) -> tuple[Sequence[ChosenContainer], tuple[Reason, str] | None]:
        """Containers that the pod may have, cheapest first; where there is none, why."""
        problems = list(self._snapshot.portable[pod.uid].obstacles)
        if gang_key(pod) is not None:
            problems.append("Pods of a gang must reach each other, and remote containers cannot.")
        if problems:
            return (), (Reason.OFFLOAD_NOT_POSSIBLE, " ".join(problems))
        node = self._snapshot.nodes.get(VIRTUAL_NODE)
        if node is not None and node.unschedulable and pod.node is None:
            return (), (Reason.NOT_ALLOWED, _CORDONED)
        # Jobs are many and shapes few: pods of one template share theirs, and what one may have, all may.
        key = (id(pod.shape), pod.namespace, marks)
        if key not in self._known:
            self._known[key] = self._found(pod, marks)
        return self._known[key]

    def any_for(self, pod: Pod) -> bool:
        """Whether there is a container that the pod may have. True where that is not known yet."""
        portable = self._snapshot.portable.get(pod.uid)
        if portable is None:
            return pod.uid in self._snapshot.unread
        try:
            return bool(self.of(pod, read_marks(portable.job.annotations))[0])
        except InvalidMark:
            return False

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
                refused: dict[OfferKey, tuple[Reason, str]] = {}
                for offer in source.offers or ():
                    if source.delivery_of(offer).has_node:
                        continue
                    candidate = policy.candidate(source, offer, (), zoned=False)
                    why = policy.refuses(source, candidate, usual.unusual(offer))
                    if why is not None:
                        refused[offer.key] = why
                        self._refused = self._refused or (
                            why[0],
                            f"{offer.instance_type} of {offer.provider}: {why[1]}.",
                        )
                yield _Counter(pool, node_class, policy, source, Exclusions(self._cooling, refused))

    def _found(self, pod: Pod, marks: Marks) -> tuple[Sequence[ChosenContainer], tuple[Reason, str] | None]:
        """Containers for pods of that shape and namespace, and why there is none where there is none."""
        found: list[ChosenContainer] = []
        why: NoContainer | None = None
        for each in self._counters:
            if each.policy.namespaces is not None and pod.namespace not in each.policy.namespaces:
                continue
            got = container_choices(
                pod, marks, (each.source,), self._snapshot.rules.offload.max_gpu_price, each.excluded
            )
            if isinstance(got, NoContainer):
                if why is None or why.reason is Reason.NO_CAPACITY_CONFIGURED:
                    why = got
            else:
                found += (ChosenContainer(each.pool, each.node_class, choice) for choice in got)
        found.sort(key=lambda each: (each.choice.effective_price, -each.pool.spec.weight, each.pool.key))
        return found, None if found else self._why_none(why)

    def _why_none(self, why: NoContainer | None) -> tuple[Reason, str]:
        if why is not None and why.reason is not Reason.NO_CAPACITY_CONFIGURED:
            return why.reason, why.sentence
        silent = (each.source for each in self._counters if each.source.error and not each.source.offers)
        if (source := next(silent, None)) is not None:
            where = f"{source.key.provider} of GPUNodeClass {source.key.node_class}"
            return source.error_reason, f"{where}: {(source.error or '').rstrip('.')}."
        if self._refused is not None:
            return self._refused
        sentence = "No GPUNodePool that serves its namespace has an offer of one: see docs/providers/runpod.md."
        return Reason.NO_CAPACITY_CONFIGURED, sentence
