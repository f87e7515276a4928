"""What a kind adds to the store's own behaviour: its defaults, its validation, its way to be deleted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.embedded.failures import Cause
    from forebay.embedded.kinds import Kind
    from forebay.embedded.store import Store

Json = dict[str, Any]


class Rules:
    """The store hands over objects it owns: change them in place, and return what is wrong with them.

    Raise `ApiFailure` for a refusal that is not about a field.
    """

    #: What happens to dependents when the deletion does not say. None is Background.
    propagation: str | None = None

    #: Deletion is told in two steps even when nothing is waited for: first that it ends, then that it is gone.
    graceful = False

    def create(self, store: "Store", kind: "Kind", obj: Json) -> "Sequence[Cause]":  # noqa: ARG002 (others look around)
        """The object has its name and uid. A kind with a status starts without one."""
        if kind.has_status:
            obj.pop("status", None)
        return ()

    def update(
        self,
        store: "Store",  # noqa: ARG002
        kind: "Kind",  # noqa: ARG002
        old: Json,  # noqa: ARG002
        new: Json,  # noqa: ARG002
        subresource: str | None,  # noqa: ARG002
    ) -> "Sequence[Cause]":
        """Metadata and status are settled."""
        return ()

    def grace(self, obj: Json, asked: int | None) -> int:  # noqa: ARG002 (pods use both)
        """Seconds between the wish to delete and the object's end."""
        return 0

    def deleting(self, store: "Store", obj: Json) -> None:
        """The object has just got its deletionTimestamp. Its metadata may be changed, the rest replaced."""

    def held(self, obj: Json) -> bool:
        """Something other than its grace keeps an object that is being deleted."""
        return bool(obj["metadata"].get("finalizers"))


PLAIN = Rules()
