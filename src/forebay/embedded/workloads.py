"""Defaults and validation of the other built-in kinds that have any: Jobs, ReplicaSets, DaemonSets, budgets, nodes."""

import base64
from collections.abc import Iterator, Sequence

from forebay.embedded import failures, kinds
from forebay.embedded.failures import Cause, bad_value, required
from forebay.embedded.kinds import Kind
from forebay.embedded.pods import canonical, default_pod_spec, pod_spec_causes
from forebay.embedded.rules import Rules
from forebay.embedded.selectors import selects
from forebay.embedded.store import Json, Store

_NOT_READY = "node.kubernetes.io/not-ready"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _template_causes(spec: Json, policies: Sequence[str]) -> Iterator[Cause]:
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
    if not spec.get("selector") or not selects(spec["selector"], labels or {}):
        yield bad_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _default_template(spec: Json) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _immutable(old: Json, new: Json, *fields: str) -> list[Cause]:
    return [
        bad_value(f"spec.{field}", new["spec"].get(field), "field is immutable")
        for field in fields
        if new["spec"].get(field) != old["spec"].get(field)
    ]


class JobRules(Rules):
    # For the sake of clients from before there was a garbage collector, a plain DELETE leaves a Job's pods alone.
    propagation = "Orphan"

    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:
        super().create(store, kind, obj)
        spec = obj.setdefault("spec", {})
        _default_template(spec)
        _default_job(spec)
        meta = obj["metadata"]
        if not spec["manualSelector"]:
            marks = {"controller-uid": meta["uid"], "job-name": meta["name"]}
            marks = {**{f"batch.kubernetes.io/{key}": value for key, value in marks.items()}, **marks}
            template = spec["template"]["metadata"]
            template["labels"] = {**(template.get("labels") or {}), **marks}
            meta["labels"] = {**marks, **(meta.get("labels") or {})}
            key = "batch.kubernetes.io/controller-uid"
            spec["selector"] = {"matchLabels": {key: meta["uid"]}}
        obj["status"] = {}
        return list(_template_causes(spec, ["OnFailure", "Never"]))

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        if subresource == "status":
            return ()
        _default_template(new.setdefault("spec", {}))
        _default_job(new["spec"])
        causes = [*_template_causes(new["spec"], ["OnFailure", "Never"])]
        elastic = new["spec"].get("completionMode") == "Indexed"
        if not (elastic and new["spec"].get("completions") == new["spec"].get("parallelism")):
            causes += _immutable(old, new, "completions")
        causes += _immutable(old, new, "selector", "completionMode")
        # A suspended Job that has not started may still be told where to run.
        if not old["spec"].get("suspend") or old.get("status", {}).get("startTime"):
            causes += _immutable(old, new, "template")
        return causes


def _default_job(spec: Json) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    only_failed = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if only_failed else "TerminatingOrFailed")


class ReplicaSetRules(Rules):
    """Also for DaemonSets, which have no replicas."""

    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:
        super().create(store, kind, obj)
        spec = obj.setdefault("spec", {})
        _default_template(spec)
        if kind.storage == kinds.REPLICA_SETS.storage:
            spec.setdefault("replicas", 1)
            obj["status"] = {"replicas": 0}
        else:
            names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
            obj["status"] = dict.fromkeys(names, 0)
        return list(_template_causes(spec, ["Always"]))

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        if subresource == "status":
            return ()
        _default_template(new.setdefault("spec", {}))
        if kind.storage == kinds.REPLICA_SETS.storage:
            new["spec"].setdefault("replicas", 1)
        return [*_template_causes(new["spec"], ["Always"]), *_immutable(old, new, "selector")]


class DisruptionBudgetRules(Rules):
    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:
        super().create(store, kind, obj)
        names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        obj["status"] = dict.fromkeys(names, 0)
        return self._causes(obj)

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        return () if subresource == "status" else self._causes(new)

    @staticmethod
    def _causes(obj: Json) -> Sequence[Cause]:
        spec = obj.setdefault("spec", {})
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            return [bad_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
        return ()


class NodeRules(Rules):
    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:  # noqa: ARG002
        # A kubelet registers its node together with the status, so that is kept.
        spec = obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint["key"] == _NOT_READY for taint in taints):
            spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]
        self._settle(obj)
        return self._taint_causes(obj)

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        self._settle(new)
        causes = self._taint_causes(new)
        before, after = old["spec"].get("providerID"), new["spec"].get("providerID")
        if before and after != before:
            why = 'node updates may not change providerID except from "" to valid'
            causes.append(failures.not_allowed("spec.providerID", why))
        return causes

    @staticmethod
    def _taint_causes(obj: Json) -> list[Cause]:
        causes, seen = [], []
        for index, taint in enumerate(obj["spec"].get("taints") or ()):
            effect, where = taint.get("effect"), f"metadata.taints[{index}]"
            if effect not in _EFFECTS:
                causes.append(failures.unsupported(f"{where}.effect", effect, _EFFECTS))
            if (taint.get("key"), effect) in seen:
                causes.append(failures.duplicate(where, taint))
            seen.append((taint.get("key"), effect))
        return causes

    @staticmethod
    def _settle(obj: Json) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        for amounts in ("capacity", "allocatable"):
            if status.get(amounts):
                status[amounts] = canonical(kinds.NODES, status[amounts])
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})


class PriorityClassRules(Rules):
    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:  # noqa: ARG002
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return ()

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        if new.get("value", 0) != old["value"]:
            return [failures.not_allowed("value", "may not be changed in an update.")]
        new.setdefault("preemptionPolicy", old["preemptionPolicy"])
        return ()


class LeaseRules(Rules):
    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:  # noqa: ARG002
        return self._causes(obj)

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        return self._causes(new)

    @staticmethod
    def _causes(obj: Json) -> Sequence[Cause]:
        spec = obj.get("spec") or {}
        signs = (("leaseDurationSeconds", 1, "greater than 0"), ("leaseTransitions", 0, "greater than or equal to 0"))
        return [
            bad_value(f"spec.{field}", spec[field], f"must be {sign}")
            for field, least, sign in signs
            if spec.get(field) is not None and spec[field] < least
        ]


class SecretRules(Rules):
    """Plain text becomes data, as it does on the way in."""

    def create(self, store: Store, kind: Kind, obj: Json) -> Sequence[Cause]:  # noqa: ARG002
        self._settle(obj)
        return ()

    def update(self, store: Store, kind: Kind, old: Json, new: Json, subresource: str | None) -> Sequence[Cause]:  # noqa: ARG002
        self._settle(new)
        return _immutable_type(old, new)

    @staticmethod
    def _settle(obj: Json) -> None:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        if plain:
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}


def _immutable_type(old: Json, new: Json) -> list[Cause]:
    return [bad_value("type", new["type"], "field is immutable")] if new["type"] != old["type"] else []


BUILT_IN: dict[str, Rules] = {
    kinds.LEASES.storage: LeaseRules(),
    kinds.SECRETS.storage: SecretRules(),
    kinds.JOBS.storage: JobRules(),
    kinds.REPLICA_SETS.storage: ReplicaSetRules(),
    kinds.DAEMON_SETS.storage: ReplicaSetRules(),
    kinds.DISRUPTION_BUDGETS.storage: DisruptionBudgetRules(),
    kinds.NODES.storage: NodeRules(),
    kinds.PRIORITY_CLASSES.storage: PriorityClassRules(),
}
