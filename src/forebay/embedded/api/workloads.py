"""Defaults and validation of Jobs, ReplicaSets, DaemonSets, PDBs, nodes, priority classes, Leases and Secrets."""

import base64
from collections.abc import Iterator, Sequence
from typing import ClassVar

from forebay.embedded.api import failures, kinds
from forebay.embedded.api.failures import FieldCause, bad_value, required
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.pods import canonical_quantities, default_pod_spec, pod_spec_causes
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.selectors import selector_matches
from forebay.embedded.api.store import Store

_NOT_READY = "node.kubernetes.io/not-ready"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _template_causes(spec: Json, policies: Sequence[str]) -> Iterator[FieldCause]:
    pod = spec["template"]["spec"]
    yield from pod_spec_causes(pod, "spec.template.spec")
    if pod["restartPolicy"] not in policies:
        if "Always" in policies:
            yield failures.unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], policies)
        else:
            choices = ", ".join(f'"{policy}"' for policy in policies)
            yield required("spec.template.spec.restartPolicy", f"valid values: {choices}")
    if not spec.get("selector"):
        yield required("spec.selector")
    labels = spec["template"].get("metadata", {}).get("labels")
    if not spec.get("selector") or not selector_matches(spec["selector"], labels or {}):
        yield bad_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _default_template(spec: Json) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _immutable(old: Json, new: Json, *fields: str) -> list[FieldCause]:
    return [
        bad_value(f"spec.{field}", new["spec"].get(field), "field is immutable")
        for field in fields
        if new["spec"].get(field) != old["spec"].get(field)
    ]


class JobRules(KindRules):
    # As on a real server, for compatibility with old clients, a DELETE without a policy orphans the pods of a Job.
    propagation = "Orphan"
    first_status: ClassVar[Json] = {}

    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:
        meta, spec = obj["metadata"], obj.setdefault("spec", {})
        if not spec.get("manualSelector"):
            names = {"controller-uid": meta["uid"], "job-name": meta["name"]}
            names = {**{f"batch.kubernetes.io/{key}": value for key, value in names.items()}, **names}
            template = spec.setdefault("template", {}).setdefault("metadata", {})
            template["labels"] = {**(template.get("labels") or {}), **names}
            meta["labels"] = {**names, **(meta.get("labels") or {})}
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
        return super().create(store, kind, obj)

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        _default_template(spec)
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        spec = obj["spec"]
        yield from _template_causes(spec, ["OnFailure", "Never"])
        if old is None:
            return
        is_elastic = spec["completionMode"] == "Indexed" and spec.get("completions") == spec["parallelism"]
        # A suspended Job that has not started may still change where its pods run.
        is_template_mutable = old["spec"].get("suspend") and not old.get("status", {}).get("startTime")
        fields = (
            "selector",
            "completionMode",
            *(() if is_elastic else ("completions",)),
            *(() if is_template_mutable else ("template",)),
        )
        yield from _immutable(old, obj, *fields)


class DaemonSetRules(KindRules):
    first_status = dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    )

    def default(self, obj: Json) -> None:
        _default_template(obj.setdefault("spec", {}))

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        yield from _template_causes(obj["spec"], ["Always"])
        if old is not None:
            yield from _immutable(old, obj, "selector")


class ReplicaSetRules(DaemonSetRules):
    first_status: ClassVar[Json] = {"replicas": 0}

    def default(self, obj: Json) -> None:
        super().default(obj)
        obj["spec"].setdefault("replicas", 1)


class DisruptionBudgetRules(KindRules):
    first_status = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:  # noqa: ARG002
        spec = obj.setdefault("spec", {})
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            yield bad_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")


class NodeRules(KindRules):
    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:  # noqa: ARG002
        # The status is kept, since a kubelet creates its Node together with the status.
        spec = obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint["key"] == _NOT_READY for taint in taints):
            spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]
        self.default(obj)
        return list(self.causes(obj, None))

    def update(
        self, store: Store, kind: ApiKind, old: Json, new: Json, subresource: str | None
    ) -> Sequence[FieldCause]:
        return super().update(store, kind, old, new, None if subresource == "status" else subresource)

    def default(self, obj: Json) -> None:
        obj.setdefault("spec", {})
        status = obj["status"] = dict(obj.get("status") or {})
        for amounts in ("capacity", "allocatable"):
            if status.get(amounts):
                status[amounts] = canonical_quantities(kinds.NODE_KIND, status[amounts])
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        seen = set()
        for index, taint in enumerate(obj["spec"].get("taints") or ()):
            effect, where = taint.get("effect"), f"metadata.taints[{index}]"
            if effect not in _EFFECTS:
                yield failures.unsupported(f"{where}.effect", effect, _EFFECTS)
            if (taint.get("key"), effect) in seen:
                yield failures.duplicate(where, taint)
            seen.add((taint.get("key"), effect))
        before = old["spec"].get("providerID") if old else None
        if before and obj["spec"].get("providerID") != before:
            why = 'node updates may not change providerID except from "" to valid'
            yield failures.not_allowed("spec.providerID", why)


class PriorityClassRules(KindRules):
    def default(self, obj: Json) -> None:
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        if old is not None and obj["value"] != old["value"]:
            yield failures.not_allowed("value", "may not be changed in an update.")


class LeaseRules(KindRules):
    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:  # noqa: ARG002
        spec = obj.get("spec") or {}
        limits = (("leaseDurationSeconds", 1, "greater than 0"), ("leaseTransitions", 0, "greater than or equal to 0"))
        for field, least, text in limits:
            if spec.get(field) is not None and spec[field] < least:
                yield bad_value(f"spec.{field}", spec[field], f"must be {text}")


class SecretRules(KindRules):
    def default(self, obj: Json) -> None:
        """Moves stringData to data, encoded."""
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        if plain:
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        if old is not None and obj["type"] != old["type"]:
            yield bad_value("type", obj["type"], "field is immutable")


WORKLOAD_RULES: dict[str, KindRules] = {
    kinds.LEASE_KIND.storage: LeaseRules(),
    kinds.SECRET_KIND.storage: SecretRules(),
    kinds.JOB_KIND.storage: JobRules(),
    kinds.REPLICA_SET_KIND.storage: ReplicaSetRules(),
    kinds.DAEMON_SET_KIND.storage: DaemonSetRules(),
    kinds.DISRUPTION_BUDGET_KIND.storage: DisruptionBudgetRules(),
    kinds.NODE_KIND.storage: NodeRules(),
    kinds.PRIORITY_CLASS_KIND.storage: PriorityClassRules(),
}
