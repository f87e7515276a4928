"""GPUWorkloadBudget: how much GPU time pods may use in a rolling window, and what happens beyond that."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn, condition_column
from forebay.api.meta import Object
from forebay.api.parts import NOT_EMPTY, LabelSelectorEntry, Observed, Part
from forebay.api.rules import ATOMIC_MAP, INT32, RefusalCause, ValidationRule, checked, immutable
from forebay.api.values import Count, Figure, PositiveDollars, PositiveQuantity, ResourceName


class Quota(Part, frozen=True, kw_only=True):
    """How much may be used in the window. With both gpuHours and usd, the first to be reached counts."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.gpuHours) || has(self.usd)",
            'set gpuHours to the GPU-hours that may be used in the window, such as "100", or usd, or both',
            reason=RefusalCause.REQUIRED,
            field_path=".gpuHours",
        ),
    )

    gpu_hours: PositiveQuantity | None = None
    """GPU-hours that the selected pods may use together in any window, such as 100, "0.5" or 250m."""
    usd: PositiveDollars | None = None
    """US dollars that capacity for the selected pods may cost in any window."""
    window_hours: Annotated[int, Meta(ge=1, le=8784), INT32]
    """Length of the rolling window in hours: what was used longer ago no longer counts."""


class EnforcementAction(StrEnum):
    EVICT = "Evict"
    PAUSE = "Pause"
    ALERT_ONLY = "AlertOnly"


class Enforcement(Part, frozen=True, kw_only=True):
    """What happens when the quota is used up."""

    action: EnforcementAction
    """Evict: Forebay evicts pods one at a time, the largest user first, and respects PodDisruptionBudgets. Pause:
    Forebay suspends their Jobs until older usage leaves the window. AlertOnly: Forebay only reports it in events and
    conditions. With Evict and Pause, new pods of the budget wait and no capacity is bought for them."""
    grace_period_seconds: Annotated[int, Meta(ge=0, le=31536000), INT32] = 30
    """Seconds between the moment the quota is used up and the first action."""


class Accounting(StrEnum):
    OBSERVED = "Observed"
    EXACT = "Exact"


class GPUWorkloadBudgetSpec(Part, frozen=True, kw_only=True):
    """Which pods count, how much they may use, and what happens beyond that."""

    selector: Annotated[LabelSelectorEntry, ATOMIC_MAP, NOT_EMPTY]
    """Pods of this namespace whose GPU time counts, by their labels. It must not be empty."""
    quota: Quota
    """How much may be used in the window."""
    enforcement: Enforcement
    """What happens when the quota is used up."""
    gpu_resource_name: Annotated[
        ResourceName,
        checked(immutable("the recorded hours are of that resource: create another budget instead")),
    ] = "nvidia.com/gpu"
    """Resource that counts as GPUs: any resource name, even cpu. It cannot be changed."""
    accounting: Accounting = Accounting.OBSERVED
    """Observed: pods that come and go while Forebay is down may be missed. Exact: a finalizer keeps every pod until its
    time is recorded."""


class GPUWorkloadBudgetStatus(Observed, frozen=True, kw_only=True):
    """What Forebay has counted. Conditions: Ready, QuotaExceeded, Degraded, and NewPodsHeld once that was False."""

    consumed_gpu_hours: Figure | None = None
    """GPU-hours used in the window that ends now."""
    remaining_gpu_hours: Figure | None = None
    """GPU-hours left of the quota, never less than 0."""
    consumed: str | None = None
    """`consumedGpuHours` for people: `0.043 GPU-h`, or `core-h` where cpu counts."""
    remaining: str | None = None
    """`remainingGpuHours` for people."""
    window: str | None = None
    """Length of the window for people: `24h`."""
    consumed_usd: Figure | None = None
    """US dollars spent in the window that ends now."""
    remaining_usd: Figure | None = None
    """US dollars left of the quota, never less than 0."""
    tracked_pods: Count | None = None
    """Pods of the selector that have used GPU time in the window or do so now."""
    held_pods: Count | None = None
    """Pods that wait until older usage leaves the window."""
    last_enforcement_at: datetime | None = None
    """When a pod was last evicted or paused, or AlertOnly last alerted."""
    forecast_exhausted_at: datetime | None = None
    """When the quota will be used up at the mean rate of the last hour, or at the present rate if that is lower.
    Absent: not within one window from now."""


class GPUWorkloadBudget(Object, kw_only=True, frozen=True):
    """A GPUWorkloadBudget limits the GPU time that pods of its namespace may use in a rolling window. Forebay stops
    buying capacity for them before the quota is used up, and evicts, pauses or alerts beyond it.
    """

    spec: GPUWorkloadBudgetSpec
    status: GPUWorkloadBudgetStatus | None = None


GPU_WORKLOAD_BUDGET = CustomKind(
    kind="GPUWorkloadBudget",
    plural="gpuworkloadbudgets",
    short_names=("gwb", "gwbs"),
    namespaced=True,
    type=GPUWorkloadBudget,
    columns=(
        PrinterColumn("Consumed", ".status.consumed"),
        PrinterColumn("Remaining", ".status.remaining"),
        PrinterColumn("Window", ".status.window"),
        PrinterColumn("Action", ".spec.enforcement.action"),
        PrinterColumn("Pods", ".status.trackedPods", ColumnType.INTEGER),
        PrinterColumn("Quota", ".spec.quota.gpuHours", wide=True),
        PrinterColumn("USD", ".status.consumedUsd", wide=True),
        PrinterColumn("Max USD", ".spec.quota.usd", wide=True),
        PrinterColumn("Held", ".status.heldPods", ColumnType.INTEGER, wide=True),
        PrinterColumn("Exceeded", condition_column("QuotaExceeded"), wide=True),
        PrinterColumn("Exhausted", ".status.forecastExhaustedAt", wide=True),
        AGE,
    ),
)
