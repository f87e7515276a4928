"""Types that several kinds share: conditions, references, selectors, taints, limits."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, field

from forebay.api.names import GROUP, KUBERNETES_DOMAINS
from forebay.api.rules import AS_SET, ATOMIC_LIST, ATOMIC_MAP, RefusalCause, ValidationRule, checked, keyed_by
from forebay.api.values import (
    Dollars,
    Figure,
    LabelKey,
    LabelValue,
    NamespaceName,
    ObjectName,
    PositiveCount,
    QuantityText,
    ShortText,
)


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all types inside an object. `kubectl explain` prints the docstrings of the type and its fields."""

    #: CEL rules that the API server checks wherever the type is used.
    rules: ClassVar[tuple[ValidationRule, ...]] = ()


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Part, frozen=True, kw_only=True):
    """One fact about the object: what, since when, and why."""

    type: Annotated[str, Meta(min_length=1, max_length=316)]
    """What the condition is about, such as Ready."""
    status: Truth
    """True, False, or Unknown while Forebay does not know."""
    reason: Annotated[str, Meta(min_length=1, max_length=256, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, in one PascalCase word that programs may rely on."""
    message: Annotated[str, Meta(max_length=32768)] = ""
    """What happened, why, and what to do next, in a sentence for people."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: Annotated[int, Meta(ge=0)] | None = None
    """The metadata.generation that this condition was computed for."""


Conditions = Annotated[tuple[Condition, ...], Meta(max_length=64), keyed_by("type")]


class Observed(Part, frozen=True, kw_only=True):
    """The base of every status."""

    observed_generation: Annotated[int, Meta(ge=0)] | None = None
    """The metadata.generation that Forebay acted on last. If it is smaller than the object's, Forebay has not seen the
    latest change yet."""
    conditions: Conditions = ()
    """Conditions of this object, with reasons."""


class SecretKeyRef(Part, frozen=True, kw_only=True):
    """One key of a Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]
    """Key inside the Secret."""
    namespace: NamespaceName | None = None
    """Namespace of the Secret. Default: the namespace Forebay runs in."""


class SecretRef(Part, frozen=True, kw_only=True):
    """A whole Secret."""

    name: ObjectName
    """Name of the Secret."""
    namespace: NamespaceName | None = None
    """Namespace of the Secret. Default: the namespace Forebay runs in."""


class NodeClassRefKind(StrEnum):
    GPU_NODE_CLASS = "GPUNodeClass"


class NodeClassRefGroup(StrEnum):
    FOREBAY = GROUP


class NodeClassRef(Part, frozen=True, kw_only=True):
    """A GPUNodeClass."""

    group: NodeClassRefGroup = NodeClassRefGroup.FOREBAY
    """API group of the class."""
    kind: NodeClassRefKind = NodeClassRefKind.GPU_NODE_CLASS
    """Kind of the class."""
    name: ObjectName
    """Name of the class."""


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_VALUES_MATCH_OPERATOR = ValidationRule(
    "self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0)"
    " : self.operator in ['Exists', 'DoesNotExist'] ? (!has(self.values) || size(self.values) == 0) : true",
    "values must be set for In and NotIn, and left out for Exists and DoesNotExist",
)


class SelectorExpression(Part, frozen=True, kw_only=True):
    """One condition on the labels of an object."""

    rules: ClassVar = (_VALUES_MATCH_OPERATOR,)

    key: LabelKey
    """Key of the label."""
    operator: SelectorOperator
    """How the label relates to values."""
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """For In and NotIn: one or more values. For Exists and DoesNotExist: none."""


_LABEL_KEYS = ValidationRule(
    "self.all(k, size(k) <= 317 && k.matches('^([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
    "keys must be label keys, such as team or example.com/team",
)


class LabelSelectorEntry(Part, frozen=True, kw_only=True):
    """Picks objects by their labels. All of matchLabels and matchExpressions must hold."""

    match_labels: Annotated[dict[str, LabelValue], Meta(max_length=64), checked(_LABEL_KEYS)] = {}
    """Labels and the values they must have."""
    match_expressions: Annotated[tuple[SelectorExpression, ...], Meta(max_length=32), ATOMIC_LIST] = ()
    """Conditions on labels."""


NOT_EMPTY = checked(
    ValidationRule(
        "(has(self.matchLabels) && size(self.matchLabels) > 0)"
        " || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        "must not be empty, as that would match every pod of the namespace: set matchLabels or matchExpressions",
        reason=RefusalCause.REQUIRED,
    )
)
Selector = Annotated[LabelSelectorEntry, ATOMIC_MAP]


class NodeRequirement(Part, frozen=True, kw_only=True):
    """One condition on the labels of a node, as in a pod's node affinity."""

    rules: ClassVar = (
        _VALUES_MATCH_OPERATOR,
        ValidationRule(
            "!(self.operator in ['Gt', 'Lt'])"
            " || (has(self.values) && size(self.values) == 1 && self.values[0].matches('^-?[0-9]{1,18}$'))",
            "Gt and Lt take exactly one value, a whole number",
        ),
    )

    key: LabelKey
    """Key of the node label, such as forebay.dev/gpu-type; tgp.io/... means the same."""
    operator: NodeOperator
    """How the label relates to values."""
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=128), ATOMIC_LIST] = ()
    """For In and NotIn: one or more values. For Gt and Lt: one number. For Exists and DoesNotExist: none."""


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class TaintEntry(Part, frozen=True, kw_only=True):
    """Keeps pods without a matching toleration off the node."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: TaintEffect
    """What happens to pods that do not tolerate it."""


Taints = Annotated[tuple[TaintEntry, ...], Meta(max_length=32), keyed_by("key", "effect")]

_NOT_OURS = ValidationRule(
    f"self.all(k, !k.startsWith('{GROUP}/') && k != 'kubernetes.io/hostname')",
    f"labels under {GROUP}/ and kubernetes.io/hostname are set by Forebay: choose another key",
)
_NOT_THE_CLUSTERS = ValidationRule(
    f"self.all(k, !k.matches('{KUBERNETES_DOMAINS}'))",
    "labels under kubernetes.io/, k8s.io/ and the domains below these belong to the cluster: choose another key",
    reason=RefusalCause.FORBIDDEN,
)
#: Annotations that a GPUNodePool gives its nodes.
PoolAnnotations = Annotated[
    dict[str, Annotated[str, Meta(max_length=4096)]],
    Meta(max_length=64),
    checked(
        ValidationRule(_LABEL_KEYS.rule, "keys must be those of annotations, such as team or example.com/team"),
        ValidationRule(
            f"self.all(k, !k.startsWith('{GROUP}/') && !k.matches('{KUBERNETES_DOMAINS}'))",
            f"annotations under {GROUP}/, kubernetes.io/, k8s.io/ and the domains below these have a meaning for "
            "Forebay and the cluster: choose another key",
            reason=RefusalCause.FORBIDDEN,
        ),
    ),
]
NodeLabels = Annotated[dict[str, LabelValue], Meta(max_length=64), checked(_LABEL_KEYS, _NOT_OURS)]
#: Labels that a GPUNodePool gives its nodes. Any team may write pools, and a cluster trusts labels of its own domains.
PoolLabels = Annotated[dict[str, LabelValue], Meta(max_length=64), checked(_LABEL_KEYS, _NOT_OURS, _NOT_THE_CLUSTERS)]
#: Taints that a GPUNodePool gives its nodes.
PoolTaints = Annotated[
    tuple[TaintEntry, ...],
    Meta(max_length=32),
    keyed_by("key", "effect"),
    checked(
        ValidationRule(
            "self.all(t, t.effect != 'NoExecute')",
            "a new node has no pods to evict, and Forebay evicts none by taints: use the effect NoSchedule",
            reason=RefusalCause.FORBIDDEN,
        )
    ),
]
Amounts = Annotated[dict[str, QuantityText], Meta(max_length=32)]
Figures = Annotated[dict[str, Figure], Meta(max_length=64)]
Names = Annotated[tuple[ShortText, ...], Meta(max_length=64), AS_SET]


class Limits(Part, frozen=True, kw_only=True):
    """What may exist at one time. Forebay checks the limits before every launch and counts what is still launching."""

    max_nodes: PositiveCount | None = None
    """Maximum number of machines and containers."""
    max_hourly_cost: Dollars | None = None
    """Maximum price of all of them together, in US dollars per hour, such as "50.0"."""
    resources: Amounts = field(default_factory=dict)
    """Maximum of each resource that all of them may have together, such as nvidia.com/gpu: 16."""


class PodRef(Part, frozen=True, kw_only=True):
    """A pod."""

    namespace: NamespaceName
    """Namespace of the pod."""
    name: ObjectName
    """Name of the pod."""
    uid: Annotated[str, Meta(max_length=64)]
    """UID of the pod: a later pod of the same name is another one."""
