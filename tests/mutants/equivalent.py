"""Mutants of which no test can be expected to notice anything, each with the reason. Few: a test is better."""

from typing import Final

#: By path, what is changed, and the line where the module has several such places.
EQUIVALENT: Final[dict[tuple[str, ...], str]] = {
    (
        "forebay/net/serve.py",
        "1024 -> 1025",
    ): "bytes that are buffered for a slow reader, a longest line or a largest body: any number near it does",
    ("forebay/net/serve.py", "0 -> 1", "self._size = 0"): "one byte more or less of 256 KiB that are buffered",
    (
        "forebay/net/aiohttp_transport.py",
        "without `''`",
    ): "for the type checker: a URL that was connected to has a host",
    (
        "forebay/net/rate_budget.py",
        "max -> min",
        "return max(0.0, self._full_at - self._tolerance - now) + (len(self._queue) + 1) * self._interval",
    ): "chooses between two explanations of a wait, which differ only where the bucket is full and nobody waits",
    (
        "forebay/net/in_process.py",
        "without `self._timer.cancel()`",
    ): "saves work: a timer that is left finds no reader",
    (
        "forebay/net/in_process.py",
        "without `self._reader is not None`",
    ): "for the type checker: only a stream that is read is interrupted",
    (
        "forebay/net/in_process.py",
        "without `self._silence is not None`",
    ): "for the type checker: a timer without it is at the deadline",
    (
        "forebay/net/in_process.py",
        "without `reader is not None`",
    ): "for the type checker: a coroutine runs in a task",
    (
        "forebay/net/rate_budget.py",
        "quota.ends > now -> quota.ends >= now",
    ): "a quota that ends now delays nobody, kept or not",
    (
        "forebay/net/in_process.py",
        "True -> False",
        "self._ended = True",
    ): "saves work: a generator, a response and a timer that are closed are closed again without any effect",
    (
        "forebay/net/rate_budget.py",
        "without `timer.cancel()`",
    ): "saves work: whoever a timer wakes that is left looks again and goes on waiting",
    (
        "forebay/demand/devices.py",
        "without `each.node is None`",
    ): "for the type checker: such slices are left out before",
    ("forebay/demand/maintenance.py", "without `node is not None`"): "for the type checker: no node, no reason",
    (
        "forebay/budgets/bill.py",
        "pod.resource_version < known.pod.resource_version -> pod.resource_version <= known.pod.resource_version",
    ): "a state that is seen again says nothing new",
    (
        "forebay/budgets/bill.py",
        "0 -> 1",
        "last = max(machine.recorded_until or 0, at if machine.unverified else 0)",
    ): "one second after 1970",
    (
        "forebay/reconcile/due_steps.py",
        "without `record.state in _ENDING`",
    ): "saves work: only the rules of these states ask whether the machine is needed",
    (
        "forebay/reconcile/group_sizing.py",
        "without `''`",
        'end = ends.get(instance_id(record) or "") if ends else None',
    ): "for the type checker: an instance without an id has no end",
    (
        "forebay/reconcile/what_runs.py",
        "without `key in asked`",
    ): "saves work: other gangs are counted and not returned",
    ("forebay/kube/pods.py", "4096 -> 4097"): "entries of a cache",
    ("forebay/model/spans.py", "seconds < 0 -> seconds <= 0"): "both lines print nothing as 0s",
    (
        "forebay/demand/free_capacity.py",
        "0 -> 1",
        "resource_version=node.resource_version if node is not None else 0,",
    ): "for the type checker: nobody asks which version a node has that is not there",
    (
        "forebay/planning/pool_policies.py",
        "0 -> 1",
        "resource_version=0,",
    ): "for the type checker: nobody asks which version a node has that is not there",
    (
        "forebay/lifecycle/orphans.py",
        "10 -> 11",
        'digest = hashlib.sha256(f"{provider}\\n{instance}\\n{earlier}".encode()).hexdigest()[:10]',
    ): "digits of a digest: any number near it does",
    (
        "forebay/lifecycle/termination.py",
        "without `node is not None`",
        'sign = f"node {node.name} is still Ready" if still_on and node is not None else "it is still listed"',
    ): "for the type checker: what is still on by its node has one",
    (
        "forebay/lifecycle/presence.py",
        "len(_INDEXES) >= _MAX_INDEXES -> len(_INDEXES) > _MAX_INDEXES",
    ): "entries of a cache",
    (
        "forebay/demand/best_fit.py",
        "without `not (anti_affinity or self.anti_affinity)`",
    ): "saves work: without any anti-affinity none is violated",
    (
        "forebay/demand/best_fit.py",
        "index in ineligible or index in too_small -> index in ineligible and index in too_small",
    ): "saves work: `fits` looks at what was found to be too small again",
    (
        "forebay/demand/best_fit.py",
        "without `search.too_small.add(index)`",
    ): "saves work: `has_room` is asked again instead",
    (
        "forebay/demand/free_capacity.py",
        "without `_EARLIEST`",
    ): "for the type checker: every object of an API server has a creation time",
    (
        "forebay/demand/startup_taint.py",
        "without `self.anti_affinity or has_anti_affinity(pod)`",
    ): "saves work: without any anti-affinity none is violated",
    (
        "forebay/demand/reservation.py",
        "sorted -> list",
    ): "key of a cache: pods with another order of labels are searched for once more",
    (
        "forebay/disruption/node_budgets.py",
        "without `budget.duration is None`",
    ): "for the type checker: the CRD refuses a schedule without a duration",
    (
        "forebay/disruption/node_budgets.py",
        "without `budget.schedule is None`",
    ): "for the type checker: the CRD refuses a duration without a schedule",
    (
        "forebay/planning/planner.py",
        "sorted -> list",
        "sorted((cap.resources or {}).items()),",
    ): "caps that differ only in the order of their resources are equal",
    (
        "forebay/reporting/machines.py",
        "amount < 0 -> amount <= 0",
    ): "0 has no millionths, so no sign either",
    (
        "forebay/reporting/machines.py",
        "without `status.billed_from is None`",
    ): "for the type checker: what was never billed has no bill",
    (
        "forebay/disruption/consolidation.py",
        "expires_at > now -> expires_at >= now",
    ): "what is due now is left out of the answer at the end",
    (
        "forebay/disruption/cron.py",
        "1 -> 2",
        "while day > earliest - timedelta(days=1):",
    ): "saves work: what is older than asked for is left out at the end",
    (
        "forebay/reconcile/adoption.py",
        "without `''`",
        'best.setdefault((each.source, each.offer.node_name or ""), each)',
    ): "for the type checker: only machines with a name are looked up",
    (
        "forebay/kube/view.py",
        "0 -> 1",
        "self._list_number = 0",
    ): "lists are counted to be compared, from whatever number on",
    (
        "forebay/kube/lease.py",
        "2 -> 3",
        "limit = self.terms.renew_deadline / 2",
    ): "a part of the deadline that was chosen",
    (
        "forebay/kube/exec_plugin.py",
        (
            "status.client_certificate_data and status.client_key_data -> "
            "status.client_certificate_data or status.client_key_data"
        ),
    ): "for the type checker: one without the other was refused before",
    (
        "forebay/kube/exec_plugin.py",
        "without `status.client_certificate_data`",
        "if status.client_certificate_data and status.client_key_data:",
    ): "for the type checker: one without the other was refused before",
    (
        "forebay/kube/exec_plugin.py",
        "without `status.client_key_data`",
        "if status.client_certificate_data and status.client_key_data:",
    ): "for the type checker: one without the other was refused before",
    (
        "forebay/kube/lease.py",
        "without `self._lease is not None`",
    ): "for the type checker: without a lease nobody is its holder, and what is announced is of one",
    (
        "forebay/kube/events.py",
        "without `self._series.move_to_end(series.key)`",
    ): "which of thousands of events is forgotten first",
    (
        "forebay/planning/candidate_groups.py",
        "0 -> 1",
        "return expected + _PER_NODE + (_PER_UNKNOWN_PROVIDER if new else 0)",
    ): "one unit of a price, far below any difference of prices",
    ("forebay/planning/whole_gangs.py", "9 -> 10"): "digits of a share that tell rounding errors from differences",
    ("forebay/budgets/ledger/profile.py", "2 -> 3"): "saves work: ends are counted from either side",
    (
        "forebay/engine/ledger/sync.py",
        "without `self._still_leader()`",
        "if self.ready and self._still_leader():",
    ): "saves work: every write asks again",
    (
        "forebay/net/rate_budget.py",
        (
            "(self.place, self.arrival) < (other.place, other.arrival) -> "
            "(self.place, self.arrival) <= (other.place, other.arrival)"
        ),
    ): "no two requests have the same arrival, and none is compared with itself",
    (
        "forebay/net/transport.py",
        "False -> True",
        'if isinstance(body, AsyncGenerator) and getattr(body, "ag_running", False):',
    ): "for the type checker: every async generator has the attribute",
    (
        "forebay/lifecycle/node_identity.py",
        "without `not is_stranger(record, node)`",
        "if expected is None or node.provider_id is None or record.spec.node is None or not is_stranger(record, node):",
    ): "asked of nodes that were found to be strangers",
    (
        "forebay/reporting/budget_views.py",
        "without `0`",
        "return decimal(Usd(str(status.consumed_usd or 0)).dollars)",
    ): "what is not there is as good as what cannot be read: zero",
    (
        "forebay/budgets/ledger/profile.py",
        "upto - edge -> upto + edge",
        "if whole and held + rate * (upto - edge) < amount:",
    ): "saves work: an hour that is not skipped is gone through change by change, to the same end",
    (
        "forebay/budgets/ledger/ledger.py",
        (
            "min(chunk.minutes, default=floor) < floor - EXACT_PERIOD -> "
            "min(chunk.minutes, default=floor) <= floor - EXACT_PERIOD"
        ),
    ): "a chunk whose sums have left the window is written anew a second earlier",
    (
        "forebay/engine/ledger/machines_off.py",
        "without `status is not None`",
    ): "for the type checker: what is Gone has a status",
    (
        "forebay/engine/ledger/machines_off.py",
        "without `record.node_name is not None`",
    ): "for the type checker: nothing without a name is found",
    (
        "forebay/disruption/pool_budgets.py",
        "without `status is not None`",
    ): "for the type checker: only machines that are leaving are asked, and these have a status",
    (
        "forebay/engine/apply/budgets.py",
        "without `None`",
        'metadata = {"uid": pod.uid, "resourceVersion": str(pod.resource_version), "finalizers": finalizers or None}',
    ): "no finalizers and an empty list of them are the same to an API server",
    (
        "forebay/engine/virtual_node/exit_reports.py",
        "told > now -> told >= now",
    ): "a line that was written now was written now",
    (
        "forebay/engine/virtual_node/exit_reports.py",
        "without `record.status is not None`",
    ): "for the type checker: what is followed has a state, so a status",
    (
        "forebay/engine/apply/pending_enforcement.py",
        "without `_LONG_AGO`",
    ): "for the type checker: every object of an API server has a creation time",
    (
        "forebay/engine/virtual_node/job_marks.py",
        "without `ref is not None`",
    ): "for the type checker: no pod is looked up without a reference",
    (
        "forebay/engine/virtual_node/job_marks.py",
        "uid in of_job -> uid not in of_job",
        "self._seen = {uid: each for uid, each in self._seen.items() if uid in of_job}",
    ): "saves work: the marks of a Job that was found in accord are compared again",
    (
        "forebay/engine/virtual_node/job_marks.py",
        "without `created is not None`",
    ): "for the type checker: every object of an API server has a creation time",
    (
        "forebay/reconcile/due_steps.py",
        "without `''`",
        'return snapshot.pods_by_node.get(record.node_name or "", ())',
    ): "for the type checker: no pods are kept for a node without a name",
    (
        "forebay/reconcile/due_steps.py",
        "without `not (snapshot.calls_in_flight or snapshot.unreadable_records)`",
    ): "saves no look: a GPUInstance with a call under way, or that cannot be read, has not settled",
    (
        "forebay/engine/sources/configuration.py",
        "0 -> 1",
        "identity = msgspec.structs.replace(entry, priority=0, enabled=True)",
    ): "compared with other digests of the same priority only: any number does",
    (
        "forebay/budgets/ledger/profile.py",
        "without `held + rate * window < amount`",
    ): "saves work: what a whole window cannot reach is not reached at any change within it",
    (
        "forebay/reconcile/what_runs.py",
        "(key := gang_key(pod)) is not None and key in asked -> (key := gang_key(pod)) is not None or key in asked",
    ): "saves work: other gangs are counted and not returned",
    (
        "forebay/reconcile/due_steps.py",
        "record.status is not None -> record.status is None",
        "accepted = record.status is not None and record.status.termination_accepted_at is not None",
    ): "saves work: no rule takes back a machine whose end was accepted",
    (
        "forebay/demand/best_fit.py",
        "free > 0 -> free >= 0",
        "if free > 0:",
    ): "saves work: a node without any room is found to be too small",
    (
        "forebay/planning/pricing.py",
        "len(candidate_groups) < _WORTH_A_TABLE -> len(candidate_groups) <= _WORTH_A_TABLE",
    ): "saves work: from about so many on, a table that they share is quicker",
    (
        "forebay/reconcile/budgeting.py",
        "without `budget is None`",
    ): "for the type checker: a budget that is not there has no standing",
    (
        "forebay/reconcile/provider_accounts.py",
        "without `own is not None`",
        "if own is not None and source_of(each) == served_by:",
    ): "for the type checker: nobody asks for the account None",
    (
        "forebay/reconcile/provider_accounts.py",
        "without `record.status is None`",
    ): "for the type checker: a record without a status is Requested",
}
