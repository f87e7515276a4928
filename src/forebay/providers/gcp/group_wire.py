"""What Compute Engine answers about managed instance groups, as far as Forebay reads it."""

from datetime import datetime, timedelta

import msgspec

from forebay.providers.gcp.wire import AttachedAccelerator, OperationErrors


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Google omits fields that are empty."""


class WireDuration(_Wire, frozen=True, kw_only=True):
    #: An int64, which Google's JSON has as text.
    seconds: str | int = "0"

    @property
    def span(self) -> timedelta:
        return timedelta(seconds=int(self.seconds))


class LastAttempt(_Wire, frozen=True, kw_only=True):
    errors: OperationErrors | None = None


class MemberScheduling(_Wire, frozen=True, kw_only=True):
    termination_timestamp: datetime | None = None


class ManagedInstance(_Wire, frozen=True, kw_only=True):
    """A member, or one that the group is about to create."""

    name: str = ""
    #: URL, which may exist before the instance does. A queued one has none.
    instance: str = ""
    #: Empty while the instance does not exist.
    id: str = ""
    instance_status: str = ""
    current_action: str = "NONE"
    #: RUNNING but for members of a standby pool.
    target_status: str = "RUNNING"
    last_attempt: LastAttempt | None = None
    scheduling: MemberScheduling | None = None


class ManagedPage(_Wire, frozen=True, kw_only=True):
    managed_instances: tuple[ManagedInstance, ...] = ()
    next_page_token: str = ""


class LifecyclePolicy(_Wire, frozen=True, kw_only=True):
    default_action_on_failure: str = "REPAIR"


class ManagerStatus(_Wire, frozen=True, kw_only=True):
    #: URL of the autoscaler that resizes the group.
    autoscaler: str = ""


class TargetSizePolicy(_Wire, frozen=True, kw_only=True):
    mode: str = "INDIVIDUAL"


class ZoneOfGroup(_Wire, frozen=True, kw_only=True):
    zone: str = ""


class DistributionPolicy(_Wire, frozen=True, kw_only=True):
    zones: tuple[ZoneOfGroup, ...] = ()


class GroupVersion(_Wire, frozen=True, kw_only=True):
    instance_template: str = ""


class InstanceGroupManager(_Wire, frozen=True, kw_only=True):
    name: str
    target_size: int = 0
    instance_template: str = ""
    versions: tuple[GroupVersion, ...] = ()
    distribution_policy: DistributionPolicy | None = None
    target_size_policy: TargetSizePolicy = TargetSizePolicy()
    #: Machine types that the group chooses from, instead of the template's.
    instance_flexibility_policy: msgspec.Raw | None = None
    instance_lifecycle_policy: LifecyclePolicy = LifecyclePolicy()
    status: ManagerStatus = ManagerStatus()

    @property
    def repairs(self) -> bool:
        """Whether the group recreates members that have failed or were stopped."""
        return self.instance_lifecycle_policy.default_action_on_failure != "DO_NOTHING"

    @property
    def takes_names(self) -> bool:
        """Whether members can be created under names that are asked for."""
        return self.instance_flexibility_policy is None and self.target_size_policy.mode != "BULK"

    @property
    def template(self) -> str:
        """URL of the template of new members. The first of several versions takes what the others leave."""
        return self.instance_template or next((each.instance_template for each in self.versions), "")


class TemplateScheduling(_Wire, frozen=True, kw_only=True):
    provisioning_model: str = "STANDARD"
    preemptible: bool = False


class TemplateProperties(_Wire, frozen=True, kw_only=True):
    machine_type: str = ""
    guest_accelerators: tuple[AttachedAccelerator, ...] = ()
    scheduling: TemplateScheduling = TemplateScheduling()

    @property
    def spot(self) -> bool:
        return self.scheduling.provisioning_model == "SPOT" or self.scheduling.preemptible


class InstanceTemplate(_Wire, frozen=True, kw_only=True):
    properties: TemplateProperties = TemplateProperties()


class EndedOperation(_Wire, frozen=True, kw_only=True):
    operation_type: str = ""
    #: URL of what it was about.
    target_link: str = ""
    status: str = ""
    end_time: datetime | None = None


class OperationPage(_Wire, frozen=True, kw_only=True):
    items: tuple[EndedOperation, ...] = ()
    next_page_token: str = ""
