"""What a list is, apart from its objects."""

from typing import Generic

import msgspec

from forebay.kube.resources import T


class ListMeta(msgspec.Struct, kw_only=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One answer to a list. All pages of one listing show the state at the same `resource_version`."""

    items: list[T]
    resource_version: int
    #: Empty on the last page.
    continue_token: str = ""
