"""Decodes the scheduling parts of a pod's spec into a `PodShape`, once per distinct text.

These parts are equal byte for byte in all pods of one pod template: what the API server adds per pod, such as the name
of the token volume, is in other parts. So the bytes are the key, and 100,000 pods need a few dozen decodings.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from forebay.kube.interning import Interned
from forebay.model.encoding import enc_hook
from forebay.model.requirements import LabelSelector, NodeSelectorTerm, PreferredTerm, Requirement, Toleration
from forebay.model.workloads import (
    ContainerResources,
    PodAffinityTerm,
    PodShape,
    TopologySpread,
    effective_requests,
)

ABSENT: Final = Raw()

#: Separator of the parts in a key: never occurs in JSON, so a key can be split again.
SEPARATOR: Final = b"\0"
#: Separates containers from init containers in a key. No JSON text begins like this.
_INIT_CONTAINERS: Final = Raw(b"init")
#: Stands for any resource claims.
_CLAIMS: Final = Raw(b"claims")
_NO_CLAIMS: Final = (b"", b"null", b"[]")
_PARTS_PER_CONTAINER: Final = 2
_PARTS_PER_INIT_CONTAINER: Final = 3

_P = TypeVar("_P", bound=msgspec.Struct)


class ContainerParts(msgspec.Struct, gc=False):
    ports: Raw = ABSENT
    resources: Raw = ABSENT


class InitContainerParts(msgspec.Struct, gc=False, rename="camel"):
    ports: Raw = ABSENT
    resources: Raw = ABSENT
    restart_policy: Raw = ABSENT


class SpecParts(msgspec.Struct, gc=False, rename="camel"):
    """The fields of a spec that scheduling depends on, in the order in which the API server writes them.

    With this order msgspec finds the next field without a search.
    """

    init_containers: list[InitContainerParts] | None = None
    containers: list[ContainerParts] | None = None
    node_selector: Raw = ABSENT
    node_name: str = ""
    affinity: Raw = ABSENT
    scheduler_name: Raw = ABSENT
    tolerations: Raw = ABSENT
    priority: Raw = ABSENT
    overhead: Raw = ABSENT
    topology_spread_constraints: Raw = ABSENT
    scheduling_gates: Raw = ABSENT
    resource_claims: Raw = ABSENT
    resources: Raw = ABSENT

    def parts(self) -> list[Raw]:
        """The encoded parts that make up a shape."""
        parts = [
            self.node_selector,
            self.affinity,
            self.scheduler_name,
            self.tolerations,
            self.priority,
            self.overhead,
            self.topology_spread_constraints,
            self.scheduling_gates,
            # Not the claims themselves: their names differ from pod to pod, and shapes are shared.
            ABSENT if self.resource_claims is ABSENT or bytes(self.resource_claims) in _NO_CLAIMS else _CLAIMS,
            self.resources,
        ]
        add = parts.append
        for container in self.containers or ():
            add(container.ports)
            add(container.resources)
        if self.init_containers:
            add(_INIT_CONTAINERS)
            for starting in self.init_containers:
                add(starting.ports)
                add(starting.resources)
                add(starting.restart_policy)
        return parts

    def copy(self) -> "SpecParts":
        """A copy that owns its bytes: a decoded `Raw` keeps the whole response in memory."""
        return _copy(self)


def _copy(parts: _P) -> _P:
    own = {}
    for name in parts.__struct_fields__:
        part = getattr(parts, name)
        if isinstance(part, Raw):
            part = part.copy()
        elif isinstance(part, list):
            part = [_copy(each) for each in part]
        own[name] = part
    return type(parts)(**own)


class _Port(msgspec.Struct, rename="camel"):
    host_port: int = 0
    protocol: str = "TCP"


class _Resources(msgspec.Struct):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class _Gate(msgspec.Struct):
    name: str


class _Toleration(msgspec.Struct, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WireSelector(msgspec.Struct, rename="camel"):
    """A label selector on the wire."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class _NodeTerm(msgspec.Struct, rename="camel"):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class _PreferredNodeTerm(msgspec.Struct):
    weight: int
    preference: _NodeTerm


class _NodeTerms(msgspec.Struct, rename="camel"):
    node_selector_terms: tuple[_NodeTerm, ...] = ()


class _NodeAffinity(msgspec.Struct):
    required: _NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[_PreferredNodeTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _PodTerm(msgspec.Struct, rename="camel"):
    topology_key: str
    label_selector: WireSelector | None = None
    namespaces: tuple[str, ...] = ()


class _PodAffinity(msgspec.Struct):
    required: tuple[_PodTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(msgspec.Struct, rename="camel"):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: WireSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


_ports = msgspec.json.Decoder(tuple[_Port, ...] | None)
_resources = msgspec.json.Decoder(_Resources | None)
_labels = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(_Affinity | None)
_tolerations = msgspec.json.Decoder(tuple[_Toleration, ...] | None)
_spreads = msgspec.json.Decoder(tuple[_Spread, ...] | None)
_gates = msgspec.json.Decoder(tuple[_Gate, ...] | None)
_quantities = msgspec.json.Decoder(dict[str, str | int] | None)
_text = msgspec.json.Decoder(str | None)
_integer = msgspec.json.Decoder(int | None)
_encoder = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic")

_D = TypeVar("_D")


def _part(decoder: msgspec.json.Decoder[_D | None], text: bytes, absent: _D) -> _D:
    """The decoded part; `absent` for a part that is missing or null."""
    decoded = decoder.decode(text) if text else None
    return absent if decoded is None else decoded


class Shapes:
    """Shapes by the joined parts of a spec. Specs with the same meaning get the same object. Raises `ValueError`."""

    def __init__(self, limit: int = 16_384) -> None:
        self._by_text: Interned[bytes, PodShape] = Interned(self._make, limit)
        self._by_canonical_form: Interned[bytes, PodShape] = Interned(_never_made, limit)

    def __getitem__(self, key: bytes) -> PodShape:
        return self._by_text[key]

    def _make(self, key: bytes) -> PodShape:
        shape = _decode(key)
        return self._by_canonical_form.unify(_encoder.encode(shape), shape)


def _never_made(_form: bytes) -> PodShape:
    raise AssertionError("canonical forms are stored together with their shape")


def _decode(key: bytes) -> PodShape:
    selector, affinity, scheduler, tolerations, priority, overhead, spread, gates, claims, whole_pod, *rest = key.split(
        SEPARATOR
    )
    mark = bytes(_INIT_CONTAINERS)
    end = rest.index(mark) if mark in rest else len(rest)
    run = [(*pair, b"") for pair in _grouped(rest[:end], _PARTS_PER_CONTAINER)]
    start = [tuple(parts) for parts in _grouped(rest[end + 1 :], _PARTS_PER_INIT_CONTAINER)]
    near = _part(_affinity, affinity, _Affinity())
    nodes = near.node_affinity or _NodeAffinity()
    return PodShape(
        requests=effective_requests(
            [_container_resources(resources, policy) for _, resources, policy in run],
            [_container_resources(resources, policy) for _, resources, policy in start],
            _part(_quantities, overhead, {}),
            _container_resources(whole_pod, b"") if whole_pod else None,
        ),
        node_selector=_part(_labels, selector, {}),
        node_affinity=None if nodes.required is None else tuple(map(_term, nodes.required.node_selector_terms)),
        preferred_node_affinity=tuple(PreferredTerm(item.weight, _term(item.preference)) for item in nodes.preferred),
        pod_affinity=_pod_terms(near.pod_affinity),
        pod_anti_affinity=_pod_terms(near.pod_anti_affinity),
        topology_spread=tuple(
            TopologySpread(
                item.topology_key,
                item.max_skew,
                label_selector(item.label_selector),
                item.match_label_keys,
                item.min_domains,
                item.node_affinity_policy != "Ignore",
                item.node_taints_policy == "Honor",
            )
            for item in _part(_spreads, spread, ())
            if item.when_unsatisfiable == "DoNotSchedule"
        ),
        tolerations=tuple(
            Toleration(item.key, item.operator or "Equal", item.value, item.effect, item.toleration_seconds)
            for item in _part(_tolerations, tolerations, ())
        ),
        priority=_part(_integer, priority, 0),
        scheduler_name=_part(_text, scheduler, "") or "default-scheduler",
        scheduling_gates=tuple(gate.name for gate in _part(_gates, gates, ())),
        host_ports=tuple(
            (port.host_port, port.protocol)
            for ports, *_ in run + start
            for port in _part(_ports, ports, ())
            if port.host_port
        ),
        resource_claims=bool(claims),
    )


def _grouped(parts: list[bytes], size: int) -> list[list[bytes]]:
    return [parts[at : at + size] for at in range(0, len(parts), size)]


def _container_resources(resources: bytes, restart_policy: bytes) -> ContainerResources:
    asked = _part(_resources, resources, _Resources())
    return ContainerResources(asked.requests or {}, asked.limits or {}, restart_policy == b'"Always"')


def _term(term: _NodeTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(term.match_expressions, term.match_fields)


def label_selector(selector: WireSelector | None) -> LabelSelector | None:
    return None if selector is None else LabelSelector(selector.match_labels, selector.match_expressions)


def _pod_terms(affinity: _PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return tuple(
        PodAffinityTerm(term.topology_key, label_selector(term.label_selector), term.namespaces)
        for term in (affinity.required if affinity is not None else ())
    )
