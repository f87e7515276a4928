"""Reviews by the API server: whose token is this, and may they read a path or use a kubelet?"""

from typing import Final

import msgspec

from forebay.api.meta import Object
from forebay.kube.client import Client
from forebay.kube.resources import Resource


class ReviewedUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who a token belongs to, by the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()


class TokenReview(Object, frozen=True):
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(Object, frozen=True):
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


_TOKEN_REVIEWS: Final = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    namespaced=False,
    type=TokenReview,
)
_ACCESS_REVIEWS: Final = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
    type=SubjectAccessReview,
)


async def user_of_token(client: Client, token: str) -> ReviewedUser | None:
    """The user of a bearer token; None where the API server does not accept it."""
    review = await client.create(_TOKEN_REVIEWS, {"metadata": {}, "spec": {"token": token}})
    return review.status.user if review.status.authenticated and review.status.user.username else None


async def may_get(client: Client, user: ReviewedUser, path: str) -> bool:
    """Whether the user may `get` a non-resource URL."""
    return await _allowed(client, user, {"nonResourceAttributes": {"path": path, "verb": "get"}})


async def may_use_kubelet(client: Client, user: ReviewedUser, verb: str, node: str) -> bool:
    """Whether the user may do that with the kubelet of a node, as kubelets themselves ask."""
    attributes = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": "proxy", "name": node}
    return await _allowed(client, user, {"resourceAttributes": attributes})


async def _allowed(client: Client, user: ReviewedUser, attributes: dict[str, object]) -> bool:
    spec = {**msgspec.to_builtins(user, str_keys=True), "user": user.username, **attributes}
    del spec["username"]
    review = await client.create(_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
    return review.status.allowed and not review.status.denied
