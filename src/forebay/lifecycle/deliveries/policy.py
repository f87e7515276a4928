"""The questions that a delivery answers. The answers here are those of most: a machine or container at a provider."""

from datetime import datetime, timedelta
from typing import ClassVar, Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance
from forebay.api.values import duration
from forebay.model.counts import counted
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Capabilities, Instance, Listing

#: Prices that differ by less are the same: providers round them.
PRICE_ROUNDING: Final = UsdPerHour("0.001")
#: A node that has been NotReady for this long is replaced.
UNHEALTHY_AFTER: Final = timedelta(minutes=5)


def missing(listings: int, provider: str) -> str:
    """`missing from 2 consecutive listings of lambda`; with none, that a listing shows the instance."""
    if not listings:
        return f"in the latest listing of {provider}"
    return f"missing from {counted(listings, 'listing', 'consecutive listings')} of {provider}"


class DeliveryWords(NamedTuple):
    """How sentences tell what happens to it."""

    launch: str = "launch"
    launch_it: str = "launch it"
    launched: str = "launched"
    launching: str = "launching"
    launch_call: str = "launch"
    terminate: str = "terminate it"
    terminates: str = "terminates"
    terminated: str = "terminated"
    terminating: str = "terminating"
    terminating_it: str = "terminating it"
    termination: str = "termination"
    #: What is so once it is gone, and what has to be proven.
    gone: str = "is terminated"
    proven: str = "it is gone"
    launch_again: str = "try this offer"
    #: What it must do after its launch, within its deadline.
    come_up: str = "be a Ready node with its GPUs"


class DeliveryPolicy:
    """Answers for one delivery. It holds no state: there is one object of each."""

    words: ClassVar[DeliveryWords] = DeliveryWords()

    # When is it up?

    #: The user configures each one by its name, which is also its id and that of its node; it exists while it is off.
    configured_by_name: ClassVar[bool] = False
    #: Its Node object exists before and after it: only a Ready node shows that it is up, and the Node stays.
    node_outlives_it: ClassVar[bool] = False
    #: Listings tell when it runs and when it is lost while it boots.
    listed_while_booting: ClassVar[bool] = True
    #: Nobody can tell which of several launch calls started it.
    launches_alike: ClassVar[bool] = False
    #: A launch call may be ignored without an error, and is repeated while nothing comes of it.
    repeats_launch: ClassVar[bool] = False
    #: The operator's power-on interval holds for it.
    has_power_on_interval: ClassVar[bool] = False
    #: A second one beside it would do its work twice: none is launched before the first is proven absent.
    runs_its_pod: ClassVar[bool] = False
    #: It becomes a node that is new to the cluster, with credentials made for it.
    joins_as_new_node: ClassVar[bool] = False
    #: Found without a record, it is adopted; anything else that is found is terminated.
    adopted_when_found: ClassVar[bool] = False

    #: What is told of one that Forebay did not launch and that does not become a usable node.
    stays: ClassVar[str] = "It stays on"

    def instance_id(self, record: GPUInstance) -> str | None:
        """Id at the provider, once known."""
        return record.status.instance_id if record.status is not None else None

    def is_present(self, instance: Instance) -> bool:
        """Whether a listed instance exists, in the sense in which termination ends its existence."""
        del instance
        return True

    def sighting_holds(self, asked: datetime, now: datetime) -> bool:
        """Whether a listing of that time still shows that it is there: it carries its record's identity, so it does."""
        del asked, now
        return True

    def has_registered(self, record: GPUInstance, node: Node) -> bool:
        """Whether its Node object shows that it has come up: one that is older than the order may be of an earlier run,
        until it is Ready.
        """
        ordered = record.metadata.creation_timestamp
        return node.ready or ordered is None or node.created >= ordered

    def was_created(self, record: GPUInstance, listing: Listing | None) -> bool:
        """Whether an instance whose id is known was there at all, and so was billed."""
        del record, listing
        return True

    # Which deadlines hold?

    def launched_deadline(
        self, since: datetime, running_since: datetime | None, capabilities: Capabilities
    ) -> datetime:
        """When the state Launched has lasted too long. `running_since`: when it was first listed as running."""
        if running_since is not None:
            return running_since + capabilities.join_deadline
        return since + capabilities.launch_deadline

    def unhealthy_after(self, record: GPUInstance, capabilities: Capabilities) -> timedelta:
        """How long its node may be NotReady before it is replaced."""
        del record, capabilities
        return UNHEALTHY_AFTER

    # What proves it gone?

    #: Where no listing tells of it, an accepted termination and a node that is not Ready are proof.
    proven_by_node: ClassVar[bool] = False

    def still_on(self, node: Node | None) -> bool:
        """Whether its node shows that it still runs, whatever listings say."""
        del node
        return False

    def proof(self, record: GPUInstance, listings: int) -> str:
        """What has to be seen before it counts as gone."""
        return f"it is {missing(listings, record.spec.provider)}"

    # What holds or uses it, and how does it leave?

    #: Every pod but those of DaemonSets keeps it, and not only those that use its GPUs.
    every_pod_keeps_it: ClassVar[bool] = False
    #: It is terminated, with the pods on it, when its node has been NotReady for too long.
    replaced_when_unhealthy: ClassVar[bool] = True
    #: While its node is NotReady, it is left to pods that tolerate that without an end: somebody may be at work on it.
    left_to_tolerating_pods: ClassVar[bool] = False
    #: A cordon by people keeps it as it is: whoever cordons a rented node wants to be rid of it.
    held_by_cordon: ClassVar[bool] = False
    #: At most one begins to leave in the operator's scale-down interval.
    leaves_one_by_one: ClassVar[bool] = False
    #: It is terminated while it boots, where nobody needs it any more. Otherwise it comes up first, and is idle then.
    ends_while_booting: ClassVar[bool] = False
    #: It can be replaced by a newer one, so the pool's expireAfter holds.
    expires: ClassVar[bool] = True

    # What is told about it?

    def describe(self, record: GPUInstance) -> str:
        """What the record stands for: `a100x2 in us-east at simulated`, `simulated instance i-1`."""
        offer = record.spec.offer
        if offer is None:
            known = record.status.instance_id if record.status is not None else None
            return f"{record.spec.provider} instance {known or record.metadata.name}"
        where = f" in {offer.zone or offer.region}" if offer.zone or offer.region else ""
        return f"{offer.instance_type}{where} at {record.spec.provider}"

    def accepted(self, record: GPUInstance, instance: Instance) -> str:
        """End of the sentence that the launch was accepted: how it is called, and what comes next."""
        return f" as {instance.id}{dearer(record, instance)}. Next: the machine must run and register as a node."

    def already_there(self, record: GPUInstance, instance: Instance) -> str:
        return f"{self.describe(record)} already exists as {instance.id}. Adopting it."

    def unwanted(self, record: GPUInstance) -> str:
        """Why it is not wanted any more, as a clause."""
        del record
        return "none of its pods is pending any more"

    def vanished(self, record: GPUInstance) -> str:
        """What follows from its disappearance."""
        del record
        return "Somebody else terminated it, or the provider reclaimed it. Its pods count as demand again."

    def unconfigured(self, record: GPUInstance) -> str:
        """What is so, and to be done, where its provider is no longer configured."""
        return (
            f"Provider {record.spec.provider}{_of_class(record)} is no longer configured, so Forebay can neither check "
            f"nor terminate {self.describe(record)}; billing may continue. Configure the provider again; or terminate "
            "the instance by hand, make sure that it is gone, and remove the finalizer from this GPUInstance."
        )

    def in_other_account(self, record: GPUInstance) -> str:
        """What is so, and to be done, where its provider has credentials of another account than when it was
        launched.
        """
        provider, named = record.spec.provider, self.describe(record)
        return (
            f"{named} was launched with other credentials than those that {provider}{_of_class(record)} has now, and "
            f"{provider} does not list it with these: they seem to be of another account. So Forebay can neither check "
            "nor terminate it; billing may continue. Put the former credentials back until it is gone; or terminate "
            "the instance by hand, make sure that it is gone, and remove the finalizer from this GPUInstance."
        )


def dearer(record: GPUInstance, instance: Instance) -> str:
    """What to say where the provider bills more than it had offered."""
    offered = UsdPerHour(str(record.spec.hourly_price or 0))
    if instance.price is None or instance.price <= offered + PRICE_ROUNDING:
        return ""
    return f" at {instance.price}, which was offered at {offered}"


def boot_deadline(record: GPUInstance) -> timedelta | None:
    """The machine's own limit from the launch call to an initialized node; None where the provider's limits hold."""
    stated = record.spec.offer.boot_deadline if record.spec.offer is not None else None
    return duration(stated) if stated is not None else None


def _of_class(record: GPUInstance) -> str:
    return f" of GPUNodeClass {record.spec.node_class_name}" if record.spec.node_class_name else ""
