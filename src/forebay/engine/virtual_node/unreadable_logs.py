"""Pods whose command may have ended without anybody being able to tell: the log that says so cannot be read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.engine.virtual_node.exit_reports import UnreadableLog
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.decisions import PodEvent

#: For so long a log may be unreadable while its container runs before its pod is told: providers fail now and then.
TELL_AFTER: Final = timedelta(minutes=3)


def unreadable_logs(
    records: Iterable[GPUInstance],
    unreadable: Mapping[str, UnreadableLog],
    pod_named: Callable[[str, str], Pod | None],
    reports_exit_code: Callable[[str], bool],
    now: datetime,
) -> Iterator[PodEvent]:
    """An event for each such pod. `unreadable` is by UID of the record; `reports_exit_code` takes the UID of a pod."""
    for record in records if unreadable else ():
        found = unreadable.get(record.uid)
        if found is None or record.state is not InstanceState.RUNNING:
            continue
        # Before it runs, a provider may have no log of it.
        runs_since = record.status.since if record.status is not None else None
        if max(found.since, runs_since or found.since) > now - TELL_AFTER:
            continue
        for ref in record.spec.pods:
            pod = pod_named(ref.namespace, ref.name)
            if pod is not None and pod.uid == ref.uid and reports_exit_code(pod.uid):
                sentence = (
                    f"The log of the container at {record.spec.provider} cannot be read since "
                    f"{found.since:%H:%M:%S} UTC: {found.error.rstrip('.')}. The exit code of the command comes by the "
                    "log: until it can be read, the pod counts as running and its container is billed. Mend what the "
                    "provider says, or delete the pod."
                )
                yield PodEvent(pod=pod, reason=Reason.LOG_UNREADABLE, sentence=sentence, warning=True)
