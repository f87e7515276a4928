"""A simulated world for one record: a provider with faults, a cluster that reacts, an operator that crashes.

Everything is drawn from a seeded `Random`. From `calm` on there are no more faults.
"""

from datetime import timedelta
from random import Random

from msgspec import json
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.api.meta import ObjectMeta
from forebay.lifecycle.call_outcomes import launch_failed, launch_succeeded, termination_accepted, termination_failed
from forebay.lifecycle.orphans import Orphans, RecordedInstances, adoptions, orphans_seen
from forebay.lifecycle.steps import DeleteRecord, Drain, Launch, Terminate, Uncordon, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Delivery, Failure, FailureKind, Instance, InstancePhase, Offer, Source, SourceKey
from tests.unit.lifecycle.builders import (
    IDEMPOTENT,
    NOW,
    OWNED,
    RENTED,
    R,
    S,
    facts,
    fresh_record,
    listed,
    next_step,
    node,
    owned_spec,
    pod,
    rented_spec,
    seconds,
)

CALM = timedelta(minutes=40)
END = timedelta(hours=4)
KINDS = {"rented": RENTED, "idempotent": IDEMPOTENT, "owned": OWNED, "unlisted": OWNED}
_CRASH = object()


class World:
    def __init__(self, kind, seed):
        self.kind, self.random = kind, Random(seed)
        self.capabilities = KINDS[kind]
        self.owned = Delivery.POWER in self.capabilities.deliveries
        self.now = NOW
        self.name = "gpu-1" if self.owned else "pool-abc"
        made = fresh_record(owned=self.owned, spec=owned_spec() if self.owned else rented_spec())
        self.records = {made.metadata.name: made}
        #: What is really there: id -> (owner, since when, from when listings show it).
        self.running = {}
        #: Terminated instances are still listed until then.
        self.fading = {}
        self.listing = None
        self.cordon = None
        self.pods = []
        self.unclaimed = Orphans()
        self.boots = self.random.choice([seconds(60), seconds(400), timedelta(hours=9)])
        self.gpus = self.random.choice([2, 2, 2, 0])
        self.launches = self.terminations = 0
        self.deleted_at = self.random.choice([None, NOW + seconds(self.random.randrange(1800))])
        self.unneeded_at = self.random.choice([None, None, NOW + seconds(self.random.choice([5, 20, 300]))])
        self.steps = []

    @property
    def calm(self):
        return self.now >= NOW + CALM

    @property
    def over(self):
        ended = all(record.state is S.GONE for record in self.records.values())
        return ended and not self.running and (self.calm or not self.records)

    def faulty(self, chance):
        return not self.calm and self.random.random() < chance

    def run(self):
        poll = self.now
        while self.now < NOW + END and not self.over:
            self.cluster()
            if self.now >= poll:
                self.poll()
                poll = self.now + seconds(self.random.choice([2, 5, 30]))
            self.tick()
            self.now += seconds(self.random.choice([1, 2, 5]) if not self.calm else 5)

    # What happens by itself.

    def node(self):
        """Of the newest instance. An owned machine's is there all the time."""
        since = max((since for _, since, _ in self.running.values()), default=None)
        up = since is not None and self.now >= since + self.boots
        if up:
            self.seen_alive = self.now
        # A kubelet that has fallen silent is missed only after a while.
        lately = getattr(self, "seen_alive", None) is not None and self.now < self.seen_alive + seconds(40)
        if not self.owned and not up and not lately:
            self.cordon = None
            return None
        return node(self.name, ready=up or lately, gpus=self.gpus, cordoned=self.cordon)

    def cluster(self):
        there = self.node()
        # A pod that the scheduler was just placing comes in spite of the cordon.
        cordoned = self.cordon is not None and self.now > self.cordon + seconds(2)
        takes_pods = there is not None and there.ready and not cordoned
        chance = 0.05 if self.cordon is None else 0.5
        if takes_pods and not self.calm and len(self.pods) < 3 and self.random.random() < chance:
            self.pods.append(pod(f"p{self.random.randrange(10**6)}", gpus=1 if self.gpus else 0))
        if self.pods and (self.calm or self.random.random() < 0.02):
            self.pods.pop()
        if there is None:
            self.pods.clear()
        self.fading = {name: until for name, until in self.fading.items() if self.now < until}

    def poll(self):
        if self.faulty(0.3):
            return
        shown = [
            Instance(id=name, phase=InstancePhase.RUNNING, owner=None if self.owned else owner, created=since)
            for name, (owner, since, visible) in self.running.items()
            if self.now >= visible
        ]
        if self.kind == "unlisted":
            self.listing = listed(asked=self.now, unknown=[self.name])
            return
        shown += [Instance(id=name, phase=InstancePhase.ENDING, owner=None) for name in self.fading]
        self.listing = listed(*shown, asked=self.now)

    # What the operator does.

    def facts(self, record):
        own = record.metadata.name == self.name
        if self.deleted_at is not None and self.now >= self.deleted_at and own:
            deleted = replace(record.metadata, deletion_timestamp=self.deleted_at)
            record = GPUInstance(metadata=deleted, spec=record.spec, status=record.status)
        return facts(
            record,
            self.capabilities,
            listing=self.listing,
            node=self.node() if own else None,
            pods=tuple(self.pods) if own else (),
            wanted=self.unneeded_at is None or self.now < self.unneeded_at,
        )

    def tick(self):
        for record in list(self.records.values()):
            seen = self.facts(record)
            step = next_step(seen, self.now)
            if step is not None:
                self.steps.append((seen, step, self.now))
                self.apply(step)
            elif record.state is S.READY and not seen.pods and self.random.random() < 0.2:
                # What `disruption` decides.
                self.write(record, transition(record.status, S.DRAINING, R.IDLE, "Idle.", self.now))
        source = Source(
            key=SourceKey("" if self.owned else "cheap", "webhook" if self.owned else "simulated"),
            capabilities=self.capabilities,
            listing=self.listing,
            offers=(self.offer(),) if self.owned else (),
        )
        recorded = RecordedInstances(self.records.values())
        nodes = {self.name: self.node()} if self.node() else {}
        self.unclaimed = orphans_seen(self.unclaimed, [source], recorded)
        for adopt in adoptions(self.unclaimed, [source], recorded, nodes, self.now):
            made = ObjectMeta(name=adopt.name, uid=f"uid-{adopt.name}-{self.now}", creation_timestamp=self.now)
            self.records[adopt.name] = GPUInstance(metadata=made, spec=adopt.spec, status=adopt.status)

    def offer(self):
        return Offer(
            provider="webhook",
            instance_type=self.name,
            node_name=self.name,
            gpu_count=2,
            price=UsdPerHour("0.4"),
            allocatable=Resources({"nvidia.com/gpu": 2}),
            boot_deadline=timedelta(minutes=15),
        )

    def write(self, record, status):
        # Through JSON, as the API keeps it.
        kept = json.decode(json.encode(status), type=GPUInstanceStatus)
        assert kept == status, "what is read back is what was decided"
        record = GPUInstance(metadata=record.metadata, spec=record.spec, status=kept)
        self.records[record.metadata.name] = record
        return record

    def apply(self, step):
        match step:
            case WriteStatus():
                self.write(step.record, step.status)
            case Launch():
                record = self.write(step.record, step.status)
                self.outcome(record, self.launch(record), launch_succeeded, launch_failed)
            case Terminate():
                record = self.write(step.record, step.status)
                answer = self.terminate(step.instance_id)
                self.outcome(record, answer, lambda of, _, now: termination_accepted(of, now), termination_failed)
            case Drain():
                if self.cordon is None:
                    self.cordon = self.now
                if step.status is not None:
                    self.write(step.record, step.status)
                if not self.faulty(0.5):
                    evicted = {each.uid for each in step.evict}
                    self.pods = [each for each in self.pods if each.uid not in evicted]
            case Uncordon():
                self.cordon = None
            case DeleteRecord():
                del self.records[step.record.metadata.name]

    def outcome(self, record, answer, well, badly):
        if answer is _CRASH:
            # The operator has crashed; the next one starts with what was written.
            return
        status = badly(record, answer, self.now) if isinstance(answer, Failure) else well(record, answer, self.now)
        self.write(record, status)

    def launch(self, record):
        """A provider whose launches are not idempotent starts another instance with each call."""
        self.launches += 1
        if self.faulty(0.3):
            return self.refusal()
        lost = self.faulty(0.4)
        if lost and self.random.random() < 0.5:
            return self.lost()
        same = [name for name, (owner, _, _) in self.running.items() if owner == record.uid]
        name = self.name if self.owned else f"i-{self.launches}"
        if same and self.capabilities.idempotent_launch:
            name = same[0]
        elif name not in self.running:
            # Sometimes the listing lags longer than the provider's settle time.
            lag = self.capabilities.settle_time * self.random.choice([0, 0.2, 0.9, 1.8])
            self.running[name] = (record.uid, self.now, self.now if self.owned else self.now + lag)
            self.fading.pop(name, None)
        return self.lost() if lost else Instance(id=name, phase=InstancePhase.STARTING, owner=record.uid)

    def terminate(self, name):
        self.terminations += 1
        if self.faulty(0.3):
            return self.refusal()
        lost = self.faulty(0.3)
        if lost and self.random.random() < 0.5:
            return self.lost()
        if self.faulty(0.1) and not (self.kind == "unlisted" and self.boots > END):
            # Accepted without effect: for a machine without status that never registers, nothing could show it.
            return None
        was = self.running.pop(name, None)
        if was is not None and not self.owned:
            self.fading[name] = self.now + seconds(20)
        return self.lost() if lost else None

    def refusal(self):
        kinds = (
            FailureKind.RATE_LIMITED,
            FailureKind.UNAVAILABLE,
            FailureKind.NO_CAPACITY,
            FailureKind.BAD_CREDENTIALS,
        )
        return Failure(kind=self.random.choice(kinds), sentence="No.")

    def lost(self):
        unknown = Failure(kind=FailureKind.OUTCOME_UNKNOWN, sentence="Lost.")
        return self.random.choice([_CRASH, unknown])
