"""List responses: their metadata, and pages of objects."""

from typing import Generic

import msgspec

from forebay.kube.resources import T


class ListMeta(msgspec.Struct, kw_only=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list. All pages of one list show the state at the same `resource_version`."""

    items: list[T]
    resource_version: int
    #: Empty on the last page.
    continue_token: str = ""
