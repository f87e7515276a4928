"""What a kind adds to the store's own behaviour: its defaults, its validation, its way to be deleted."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from forebay.embedded.api.objects import Json

if TYPE_CHECKING:
    from forebay.embedded.api.failures import FieldCause
    from forebay.embedded.api.kinds import ApiKind
    from forebay.embedded.api.store import Store


class KindRules:
    """The store hands over objects it owns: change them in place, and return what is wrong with them.

    Raise `ApiFailure` for a refusal that is not about a field.
    """

    #: What happens to dependents when the deletion does not say. None is Background.
    propagation: str | None = None

    #: Deletion is told in two steps even when nothing is waited for: first that it ends, then that it is gone.
    graceful = False

    #: The status that a new object has, whatever its creator says.
    first_status: ClassVar[Json | None] = None

    def default(self, obj: Json) -> None:
        """Fills in what a writer of the spec may leave out."""

    def causes(self, obj: Json, old: Json | None) -> "Iterable[FieldCause]":  # noqa: ARG002 (for those who have any)
        return ()

    def create(self, store: "Store", kind: "ApiKind", obj: Json) -> "Sequence[FieldCause]":  # noqa: ARG002 (others look around)
        """The object has its name and uid."""
        if kind.has_status:
            obj.pop("status", None)
        if self.first_status is not None:
            obj["status"] = dict(self.first_status)
        self.default(obj)
        return list(self.causes(obj, None))

    def update(
        self,
        store: "Store",  # noqa: ARG002
        kind: "ApiKind",  # noqa: ARG002
        old: Json,
        new: Json,
        subresource: str | None,
    ) -> "Sequence[FieldCause]":
        """Metadata and status are settled. Fields that are still those of the old object may not be changed inside."""
        if subresource == "status":
            return ()
        self.default(new)
        return list(self.causes(new, old))

    def grace(self, obj: Json, asked: int | None) -> int:  # noqa: ARG002 (pods use both)
        """Seconds between the wish to delete and the object's end."""
        return 0

    def deleting(self, store: "Store", obj: Json) -> None:
        """The object has just got its deletionTimestamp. Its metadata may be changed, the rest replaced."""

    def held(self, obj: Json) -> bool:
        """Something other than its grace keeps an object that is being deleted."""
        return bool(obj["metadata"].get("finalizers"))


PLAIN = KindRules()
