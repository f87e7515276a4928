"""What a NodeProvisioner says of itself: whether its groups can be used, their size, and why they do not grow."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import (
    InstanceState,
    ProvisionerRef,
    Transition,
)
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.api.node_provisioner import GroupProvider, NodeClassRef, NodeProvisioner, NodeProvisionerStatus
from forebay.api.node_provisioner import NodeProvisionerSpec as Spec
from forebay.api.parts import Truth
from forebay.lifecycle.cooldown import Cooldown
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import (
    Capabilities,
    Check,
    Delivery,
    Failure,
    FailureKind,
    Found,
    Instance,
    InstancePhase,
    ListedGroup,
    Listing,
    Offer,
    Source,
    SourceKey,
)
from forebay.planning.plan import Cap
from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.group_reports import report_provisioners
from forebay.reconcile.group_sizing import SizedGroups
from forebay.reconcile.isolation import Faults
from forebay.reconcile.rented_groups import RentedGroup, rented_group
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.target import GroupUse, TargetReason, TargetSize
from tests.unit.demand.builders import NOW, ago, record

S = InstanceState
KEY = SourceKey.of_provisioner("gpus", "simulated")
CLASS_KEY = SourceKey("cloud", "simulated")
A100 = Offer(
    provider="simulated", instance_type="a100", gpu_count=1, price=UsdPerHour("2"), allocatable=Resources({"cpu": 1000})
)


def provisioner(name="gpus", *, rented=False, status=None, deleted=None, born=NOW, **provider):
    groups = {"node_class_ref": NodeClassRef(name="cloud")} if rented else {"existing_instance_group_names": ("a", "b")}
    kind = {"instance_type": "a100", **provider} if rented else provider
    return NodeProvisioner(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=born, deletion_timestamp=deleted),
        spec=Spec(provider=GroupProvider(name="simulated", **kind), **groups),
        status=status,
    )


def group(name="a", offer=A100, failures=None):
    return ListedGroup(name=name, target=0, offer=offer, failures=failures or {})


def source(*groups, key=KEY, instances=(), listed=True, **fields):
    found = Listing(asked=NOW, found=Found(instances=tuple(instances), groups=groups)) if listed else None
    return Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), listing=found, **fields)


def node_class(*providers, deleted=None):
    spec = {"providers": [{"name": each} for each in providers or ("simulated",)]}
    metadata = ObjectMeta(name="cloud", finalizers=[CLASS_FINALIZER], deletion_timestamp=deleted)
    return GPUNodeClass(metadata=metadata, spec=msgspec.convert(spec, GPUNodeClassSpec))


def reports(*each, found=None, sizes=None, faults=None, paused=None, **fields):
    sources = {} if found is None else {found.key: found}
    seen = Snapshot(now=NOW, provisioners=each or (provisioner(),), sources=sources, **fields)
    return list(report_provisioners(seen, sizes or {}, faults or Faults(), paused or {}))


def ready(*each, **fields):
    (first, *_) = reports(*each, **fields)
    (told,) = [one for one in first.conditions if one.type == "Ready"]
    return told.status, told.reason, told.message


def fault():
    made = Faults()
    with made.of("NodeProvisioner", "", "gpus"):
        raise ZeroDivisionError
    return made


FINE = source(group("a"), group("b"))


@pytest.mark.parametrize(
    ("fields", "status", "reason", "words"),
    [
        ({"found": FINE}, Truth.TRUE, Reason.GROUPS_READY, "Instance groups a, b can be listed and sized."),
        ({}, Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, "Nothing is decided about them before."),
        ({"found": source(listed=False)}, Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, "are being listed"),
        ({"found": FINE, "faults": fault()}, Truth.FALSE, Reason.RECONCILE_FAILED, "ZeroDivisionError"),
        ({"unusable": {KEY: "No key."}}, Truth.FALSE, Reason.PROVIDER_NOT_SERVED, "No key."),
        (
            {"found": replace(FINE, check=Check(ok=False, sentence="No rights."))},
            Truth.FALSE,
            Reason.CHECK_FAILED,
            "No rights.",
        ),
        ({"found": replace(FINE, check=Check(ok=True, sentence=""))}, Truth.TRUE, Reason.GROUPS_READY, "can be listed"),
        (
            {"found": replace(FINE, error="Away.")},
            Truth.FALSE,
            Reason.PROVIDER_UNAVAILABLE,
            "Away. The last listing still holds.",
        ),
        (
            {"found": source(listed=False, error="Away.")},
            Truth.FALSE,
            Reason.PROVIDER_UNAVAILABLE,
            "Away. Nothing is decided before that.",
        ),
        (
            {"found": source(group("a", None), group("b"))},
            Truth.FALSE,
            Reason.OFFER_INVALID,
            "price of instance group a is not known",
        ),
    ],
)
def test_a_provisioner_of_instance_groups_says_whether_they_can_be_used(fields, status, reason, words):
    told = ready(**fields)
    assert told[:2] == (status, reason)
    assert words in told[2]


def test_a_group_that_an_older_provisioner_names_is_not_used_by_the_younger_one():
    older = provisioner("older", born=ago(hours=1))
    told = {each.name: each for each in reports(older, provisioner(), found=FINE)}

    message = next(each.message for each in told["gpus"].conditions if each.type == "Ready")
    assert told["gpus"].reason is Reason.CLAIMED_TWICE
    assert message.startswith("group a belongs to NodeProvisioner older; group b belongs to NodeProvisioner older, ")
    assert told["older"].reason is Reason.GROUPS_NOT_LISTED


def sized(rented=None, *, target=2, size=1, offers=None, cooling=None, of=None):
    return SizedGroups(
        sized=SizedProvisioner(
            provisioner=of or provisioner(rented=rented is not None),
            source=FINE,
            groups=("a", "b"),
            members=(),
            offers=offers or {},
            cooling=cooling or {},
            rented=rented,
        ),
        use=GroupUse(size=size, used=1),
        target=TargetSize(
            size=target, reason=next(iter(TargetReason)), least=0, most=None, steps=("1 used", "1 ready")
        ),
        tainted=3,
    )


RENTS = RentedGroup(node_class=node_class(), template_hash="1")
RENTED = source(key=CLASS_KEY, offers=(A100,))


@pytest.mark.parametrize(
    ("fields", "status", "reason", "words"),
    [
        ({"classes": ()}, Truth.FALSE, Reason.NODE_CLASS_NOT_FOUND, '"cloud" does not exist'),
        ({"classes": (node_class(deleted=NOW),)}, Truth.FALSE, Reason.NODE_CLASS_DELETING, "is being deleted"),
        ({"unusable": {CLASS_KEY: "No key."}}, Truth.FALSE, Reason.PROVIDER_NOT_SERVED, "No key."),
        (
            {"classes": (node_class("lambda", "runpod"),)},
            Truth.FALSE,
            Reason.PROVIDER_NOT_SERVED,
            "has no provider simulated, only lambda, runpod",
        ),
        ({"classes": (node_class("lambda", "simulated"),)}, Truth.TRUE, Reason.GROUPS_READY, "is rented"),
        ({"paused": {("", "gpus"): "Too many."}}, Truth.FALSE, Reason.DISRUPTION_PAUSED, "Too many."),
        ({"found": replace(RENTED, error="Away.")}, Truth.FALSE, Reason.PROVIDER_UNAVAILABLE, "Away."),
        ({"found": None}, Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, "simulated is being asked"),
        ({"found": source(key=CLASS_KEY)}, Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, "is being asked"),
        ({"sizes": {}}, Truth.UNKNOWN, Reason.GROUPS_NOT_LISTED, "is being asked"),
        (
            {"sizes": {"gpus": sized(replace(RENTS, refused=("no spot",)))}},
            Truth.FALSE,
            Reason.NOT_ALLOWED,
            "a100: no spot.",
        ),
        ({}, Truth.TRUE, Reason.GROUPS_READY, "a100 of simulated is rented, as GPUNodeClass cloud says."),
        ({"faults": fault()}, Truth.FALSE, Reason.RECONCILE_FAILED, "ZeroDivisionError"),
    ],
)
def test_a_provisioner_that_rents_says_whether_its_machines_can_be_rented(fields, status, reason, words):
    usual = {"classes": (node_class(),), "found": RENTED, "sizes": {"gpus": sized(RENTS)}}
    told = ready(provisioner(rented=True), **{**usual, **fields})
    assert told[:2] == (status, reason)
    assert words in told[2]


def blocked(size, found=None, status=None):
    (report,) = reports(provisioner(status=status), found=found, sizes={"gpus": size})
    return next(((each.status, each.message) for each in report.conditions if each.type == "GrowthBlocked"), None)


def test_why_groups_do_not_grow_is_told_from_the_first_failure_on_and_when_it_is_over():
    failure = Transition(state=S.GONE, at=NOW, reason=Reason.NO_CAPACITY, message="None left.")
    cool = {A100.key: Cooldown(NOW + timedelta(minutes=5), "", failure)}
    refused = Failure(kind=FailureKind.QUOTA, sentence="Quota.")

    assert blocked(sized()) is None
    status, words = blocked(sized(offers={"a": A100}, cooling=cool))
    assert (status, words) == (Truth.TRUE, "group a until 12:05:00 UTC: None left.")
    many = group("b", failures={f"m{count}": refused for count in range(5)})
    told = blocked(sized(), source(group("a"), many))[1]
    assert told == " ".join(f"member m{count} of group b: Quota." for count in range(3)) + " And 2 more."
    three = group("b", failures={f"m{count}": refused for count in range(3)})
    assert "more" not in blocked(sized(), source(three))[1]
    (before,) = reports(provisioner(), found=source(three), sizes={"gpus": sized()})
    over = blocked(sized(), FINE, NodeProvisionerStatus(conditions=before.conditions))
    assert over == (Truth.FALSE, "All groups may grow.")


def test_a_rented_group_says_that_nothing_is_offered_or_which_limit_leaves_no_room():
    candidate = rented_group(provisioner(rented=True), RENTED, Snapshot(now=NOW, classes=(node_class(),))).candidates
    full = RentedGroup(
        node_class=node_class(),
        template_hash="1",
        candidates=candidate,
        caps=(Cap(name="maxNodes of c", pools=frozenset(), nodes=0),),
    )

    def told(size):
        (report,) = reports(size.sized.provisioner, sizes={"gpus": size})
        return next((each.message for each in report.conditions if each.type == "GrowthBlocked"), None)

    assert told(sized(RENTS)) == "simulated offers no a100 now."
    placed = provisioner(rented=True, location="eu")
    assert told(sized(RENTS, of=placed)) == "simulated offers no a100 in eu now."
    assert told(sized(replace(RENTS, refused=("no",)))) is None
    assert told(sized(replace(RENTS, template_hash=None))) is None
    assert told(sized(full)) == "maxNodes of c leaves no room for one more machine."
    assert told(sized(full, target=1)) is None, "it does not have to grow"
    assert told(sized(replace(full, caps=()))) is None


def test_figures_are_those_of_the_decision_or_else_only_the_size_is_kept_current():
    two = [Instance(id=f"a/{name}", phase=InstancePhase.RUNNING) for name in ("x", "y")]
    listed = source(group("a"), group("b"), instances=two)

    (decided,) = reports(found=listed, sizes={"gpus": sized()})
    assert decided.figures == {
        "currentSize": 2,
        "targetSize": 2,
        "utilizedNodes": 1,
        "taintedNodes": 3,
        "reason": str(next(iter(TargetReason))),
        "message": sized().target.sentence,
        "arithmetic": ("1 used", "1 ready"),
    }
    (undecided,) = reports(found=listed)
    assert undecided.figures == {"currentSize": 2}
    (unknown,) = reports(provisioner(status=NodeProvisionerStatus(current_size=7)))
    assert unknown.figures == {"currentSize": 7}
    shown = provisioner(status=NodeProvisionerStatus(conditions=undecided.conditions, current_size=2))
    assert reports(shown, found=listed) == [], "nothing has changed"
    assert reports(provisioner(deleted=NOW), found=listed) == []


def test_of_a_rented_group_only_its_own_machines_are_counted():
    own = record("n1", delivers=Delivery.NODE, instance_id="i-1")
    reference = ProvisionerRef(name="gpus")
    own = replace(own, spec=replace(own.spec, node_class_name="cloud", provisioner_ref=reference))
    both = [Instance(id=each, phase=InstancePhase.RUNNING) for each in ("i-1", "i-2")]
    found = source(key=CLASS_KEY, instances=both, offers=(A100,))

    (told,) = reports(provisioner(rented=True), found=found, records=(own,), classes=(node_class(),))

    assert told.figures == {"currentSize": 1}
