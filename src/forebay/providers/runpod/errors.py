"""What RunPod's responses mean, after the table of its documentation of pod creation."""

import re
from typing import Final

import msgspec

from forebay.model.sources import FailureScope
from forebay.net.json_body import decode_body
from forebay.providers.base import ProviderError, QuotaReached, Rejected
from forebay.providers.cloud_calls import CloudDialect, CloudRefusal
from forebay.providers.runpod.wire import RunpodProblem

#: Words of a 400 that is about stock. It has no code of its own.
_STOCK: Final = re.compile(
    r"capacity|no (longer )?.{0,20}(instances|machines|gpus)|out of stock|could not be placed", re.IGNORECASE
)


class PodNotFound(Rejected):
    """The request names something that does not exist: a pod, a template, a registry credential."""


class RefusedOrder(Rejected):
    """A 400: it breaks a rule, or there is no stock. Only the catalogue can tell."""

    def __init__(self, sentence: str, *, about_stock: bool) -> None:
        super().__init__(sentence)
        self.about_stock = about_stock


class InvalidOrder(Rejected):
    """A 422: what is ordered cannot be, whatever GPU it is for."""


def read_error(body: bytes) -> tuple[str, str]:
    try:
        problem = decode_body(body, RunpodProblem)
    except msgspec.DecodeError:
        return "", ""
    return problem.title, "; ".join((problem.detail, *problem.errors)) if problem.errors else problem.detail


def meaning(refusal: CloudRefusal) -> ProviderError | None:
    fact = refusal.fact
    match refusal.status:
        case 400 if refusal.acts:
            return RefusedOrder(f"{fact}.", about_stock=_STOCK.search(refusal.message) is not None)
        case 402:
            return QuotaReached(f"{fact}: the balance is used up. Add credit to the account at RunPod.")
        case 403 if refusal.acts:
            return Rejected(
                f"{fact}: the API key may not do that. Give it the permission at RunPod, or allow the account this GPU."
            )
        case 404:
            return PodNotFound(f"{fact}.")
        case 422 if refusal.acts:
            return InvalidOrder(f"{fact}. Correct the pod.")
        case 409:
            return Rejected(f"{fact}: the pod is part of a cluster at RunPod.", scope=FailureScope.OFFER)
    return None


DIALECT: Final = CloudDialect(label="RunPod", read_error=read_error, meaning=meaning)
