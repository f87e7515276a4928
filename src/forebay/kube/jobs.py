"""Jobs, as far as Forebay reads them: suspended or not, how far they are, and when their controller ends them."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.meta import Object
from forebay.kube.resources import Resource

_ENDS: Final = frozenset({"Complete", "Failed"})
#: A later deadline is none that anybody lives to see, and may be later than dates can be.
_LONGEST: Final = timedelta(days=36_500)


class JobSpec(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None


class JobCondition(msgspec.Struct, omit_defaults=True, kw_only=True):
    type: str
    status: str = ""


class JobStatus(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    conditions: tuple[JobCondition, ...] = ()


class Job(Object, frozen=True):
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    @property
    def has_ended(self) -> bool:
        return any(each.type in _ENDS and each.status == "True" for each in self.status.conditions)

    @property
    def deadline(self) -> datetime | None:
        """When its controller ends it; None where it has no deadline, or has ended, or not begun."""
        seconds, began = self.spec.active_deadline_seconds, self.status.start_time
        if seconds is None or began is None or self.has_ended or seconds > _LONGEST.total_seconds():
            return None
        return began + timedelta(seconds=seconds)


JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Job)
