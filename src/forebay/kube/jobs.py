"""Jobs, as far as Forebay reads them: suspended or not, and how far they are."""

import msgspec

from forebay.api.meta import Object
from forebay.kube.resources import Resource


class JobSpec(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False


class JobStatus(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    succeeded: int = 0
    failed: int = 0


class Job(Object, frozen=True):
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Job)
