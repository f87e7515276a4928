"""What a kind adds to the store's own behaviour: its defaults, its validation, its way to be deleted."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.embedded.kinds import Kind
    from forebay.embedded.store import Store

Json = dict[str, Any]


class Rules:
    """The store hands over objects it owns: change them in place, raise `ApiFailure` to refuse the write."""

    def create(self, store: "Store", kind: "Kind", obj: Json) -> None:  # noqa: ARG002 (other kinds look around)
        """Called before a new object is named and kept. A kind with a status starts without one."""
        if kind.has_status:
            obj.pop("status", None)

    def update(self, store: "Store", kind: "Kind", old: Json, new: Json, subresource: str | None) -> None:
        """Called after metadata and status are settled."""

    def grace(self, obj: Json, asked: int | None) -> int:  # noqa: ARG002 (pods use both)
        """Seconds between the wish to delete and the object's end. Only pods have any."""
        return 0

    def deleting(self, obj: Json) -> None:
        """The object has just got its deletionTimestamp and stays for now."""


PLAIN = Rules()
