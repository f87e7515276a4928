"""Rules of one kind that the store applies: defaults, validation, and how its objects are deleted."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from forebay.embedded.api.objects import Json

if TYPE_CHECKING:
    from forebay.embedded.api.failures import FieldCause
    from forebay.embedded.api.kinds import ApiKind
    from forebay.embedded.api.store import Store


class KindRules:
    """Rules of a kind without rules of its own; the base of all others.

    Methods may change the object in place, which is the store's own copy. They return what is wrong with its fields,
    and raise `ApiFailure` for a refusal that is not about a field.
    """

    #: Propagation policy of a deletion that gives none. None is Background.
    propagation: str | None = None

    #: Watchers see a deletion in two events even without a grace period: MODIFIED with deletionTimestamp, then DELETED.
    graceful = False

    #: Status of a new object, whatever its creator sent.
    first_status: ClassVar[Json | None] = None

    def default(self, obj: Json) -> None:
        """Sets defaults."""

    def causes(self, obj: Json, old: Json | None) -> "Iterable[FieldCause]":  # noqa: ARG002 (subclasses use both)
        return ()

    def create(self, store: "Store", kind: "ApiKind", obj: Json) -> "Sequence[FieldCause]":  # noqa: ARG002 (subclasses use it)
        """Completes and validates a new object, which already has its name and uid."""
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
        """Completes and validates an update, whose metadata and status are final.

        Values that `new` still shares with `old` must not be changed in place.
        """
        if subresource == "status":
            return ()
        self.default(new)
        return list(self.causes(new, old))

    def grace(self, obj: Json, asked: int | None) -> int:  # noqa: ARG002 (pods use both)
        """Grace period in seconds. `asked` is the one in the delete request."""
        return 0

    def deleting(self, store: "Store", obj: Json) -> None:
        """Called when the object gets its deletionTimestamp. Metadata may be changed in place, the rest replaced."""

    def held(self, obj: Json) -> bool:
        """Whether something other than the grace period keeps an object that is being deleted."""
        return bool(obj["metadata"].get("finalizers"))


DEFAULT_RULES = KindRules()
