"""Jobs: only what suspending and resuming them needs."""

import msgspec

from forebay.api.meta import Object
from forebay.kube.resources import Resource


class JobSpec(msgspec.Struct, omit_defaults=True, kw_only=True):
    suspend: bool = False


class Job(Object):
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Job)
