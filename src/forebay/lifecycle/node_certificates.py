"""Which machine may have the certificate of which node.

A machine joins with a bootstrap token made for one launch call of one GPUInstance. Its request for a kubelet's client
certificate is approved only where it was made with that very token and names exactly the planned node. A request by any
other credential is somebody else's business. A request with our token for anything else is never approved and is
reported; where the cluster itself approves every bootstrapper (Talos does), the node that joined that way is cordoned.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.names import BOOTSTRAP_TOKEN
from forebay.lifecycle.transitions import with_condition
from forebay.model.kept import kept
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.signing_requests import SigningRequest

#: Condition of a GPUInstance: False once its join credential was used for another node or by another machine.
NODE_IDENTITY: Final = "NodeIdentity"
#: States in which the machine may still be joining. Launching: the provider's answer may have been lost.
_JOINING: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED})


class ApproveCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """Approve the request: its machine becomes the node of the record."""

    request: SigningRequest
    record: GPUInstance
    reason: Reason
    sentence: str


class ReportMisuse(msgspec.Struct, frozen=True, kw_only=True):
    """Write `status` (the condition NodeIdentity), record a warning, and cordon `nodes`, which joined nevertheless."""

    record: GPUInstance
    status: GPUInstanceStatus
    reason: Reason
    sentence: str
    nodes: tuple[Node, ...] = ()


CertificateDecision = ApproveCertificate | ReportMisuse


def certificate_decisions(
    records: Iterable[GPUInstance],
    requests: Iterable[SigningRequest],
    nodes: Mapping[str, Node],
    now: datetime,
) -> list[CertificateDecision]:
    """What to do about the requests that were made with a token of ours."""
    by_token = _by_token(records)
    if not by_token:
        return []
    ours: dict[str, tuple[GPUInstance, list[SigningRequest]]] = {}
    for request in sorted(requests, key=lambda each: (each.created, each.name)):
        record = by_token.get(request.token_id or "")
        if record is not None and not request.closed:
            ours.setdefault(record.uid, (record, []))[1].append(request)
    return [
        decision
        for record, made in ours.values()
        for decision in (_misuse(record, made, nodes, now), _approval(record, made))
        if decision is not None
    ]


def approvals_by_class(records: Iterable[GPUInstance], requests: Iterable[SigningRequest]) -> dict[str, SigningRequest]:
    """By class, the latest approved request of a machine that joins now: whose reason it has says who approved it."""
    by_token = _by_token(records)
    found: dict[str, SigningRequest] = {}
    if not by_token:
        return found
    for request in sorted(requests, key=lambda each: (each.created, each.name)):
        record = by_token.get(request.token_id or "")
        if request.approved and record is not None and record.spec.node_class_name is not None:
            found[record.spec.node_class_name] = request
    return found


@kept
def _by_token(records: Iterable[GPUInstance]) -> Mapping[str, GPUInstance]:
    return {
        resource.name: record
        for record in records
        for resource in (record.status.secondary_resources if record.status is not None else ())
        if resource.kind == BOOTSTRAP_TOKEN
    }


def _approval(record: GPUInstance, requests: Sequence[SigningRequest]) -> ApproveCertificate | None:
    if record.state not in _JOINING or record.metadata.deletion_timestamp is not None:
        return None
    genuine = _genuine(record, requests)
    pending = next((each for each in genuine if not each.approved and each.public_key == _first_key(genuine)), None)
    if pending is None:
        return None
    sentence = (
        f"Approved the certificate of node {record.node_name}, requested with the join credential of"
        f" {record.metadata.name}."
    )
    return ApproveCertificate(
        request=pending, record=record, reason=Reason.NODE_CERTIFICATE_APPROVED, sentence=sentence
    )


def _genuine(record: GPUInstance, requests: Sequence[SigningRequest]) -> list[SigningRequest]:
    return [each for each in requests if each.malformed is None and each.node_name == record.node_name]


def _first_key(genuine: Sequence[SigningRequest]) -> str | None:
    """The key that has the certificate, or else was first to ask for it. A kubelet that restarts asks with the same."""
    return next((each.public_key for each in sorted(genuine, key=lambda each: not each.approved)), None)


def _misuse(
    record: GPUInstance, requests: Sequence[SigningRequest], nodes: Mapping[str, Node], now: datetime
) -> ReportMisuse | None:
    """The report of requests that our credential was not made for; None without any, or where it is all reported."""
    key = _first_key(_genuine(record, requests))
    problems = [(each, text) for each in requests if (text := _problem(record, each, key)) is not None]
    if not problems:
        return None
    request, text = problems[0]
    strangers = [
        nodes[each.node_name]
        for each, _ in problems
        if each.approved
        and each.node_name is not None
        and each.node_name != record.node_name
        and each.node_name in nodes
    ]
    approved = (
        f" The cluster approved it by itself ({request.approval_reason or 'no reason given'})."
        if request.approved
        else " Forebay did not approve it."
    )
    more = f" More such requests: {len(problems) - 1}." if len(problems) > 1 else ""
    cordoned = f" Forebay cordons {', '.join(each.name for each in strangers)}." if strangers else ""
    sentence = (
        f"The join credential of {record.metadata.name} was misused. {text}{approved}{more}{cordoned}"
        " Find out who can read the boot data of that machine."
    )
    status, reason = record.status or GPUInstanceStatus(), Reason.NODE_IDENTITY_MISMATCH
    to_cordon = tuple(each for each in strangers if not each.unschedulable)
    reported = with_condition(status, NODE_IDENTITY, holds=False, reason=reason, sentence=sentence, now=now)
    if reported == status and not to_cordon:
        return None
    return ReportMisuse(record=record, status=reported, reason=reason, sentence=sentence, nodes=to_cordon)


def _problem(record: GPUInstance, request: SigningRequest, key: str | None) -> str | None:
    """Why the request is not one that our credential was made for; None: it is."""
    if request.malformed is not None:
        return f"Request {request.name} is not for a kubelet's client certificate: {request.malformed}."
    if request.node_name != record.node_name:
        return f"Request {request.name} is for the certificate of node {request.node_name}, not {record.node_name}."
    if request.public_key != key:
        return f"Request {request.name} is for the certificate of node {record.node_name}, but from a second machine."
    return None
