"""Collections that stay the same object while nothing in them changes, and answers that are kept with them.

A large cluster is the same from tick to tick but for a few objects. So what follows from thousands of objects alone is
found out once for the same collection, and kept in it: with the collection it goes. It saves time and alters nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")


class KeptTuple(tuple[T, ...]):  # noqa: SLOT001 (answers are kept in its dictionary)
    """Objects that never change, in a tuple that is the same object for as long as they are the same."""

    #: By function, its other arguments and what it returned.
    answers: dict[object, tuple[tuple[object, ...], Any]]

    def __new__(cls, items: Iterable[T] = ()) -> "KeptTuple[T]":
        made = super().__new__(cls, items)
        made.answers = {}
        return made


class KeptMapping(dict[K, V]):
    """The same by key. A dictionary, because ticks look things up in it a hundred thousand times; nobody can write."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        super().__init__(items)
        self.answers: dict[object, tuple[tuple[object, ...], Any]] = {}

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a KeptMapping never changes: make another one")

    __setitem__ = __delitem__ = _refuse
    __ior__ = clear = pop = popitem = setdefault = update = _refuse


_MUTABLE: Final = (list, dict, set)


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose answer is kept in its first argument where that is a `KeptTuple` or a `KeptMapping`.

    The answer must follow from the arguments alone, and nobody may change it. Other arguments are compared by identity,
    and those of the last call count.
    """

    @wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        first, others = args[0], args[1:]
        if kwargs or not isinstance(first, KeptTuple | KeptMapping):
            return function(*args, **kwargs)
        known = first.answers.get(answer)
        if known is None or any(before is not now for before, now in zip(known[0], others, strict=True)):
            known = others, function(*args, **kwargs)
            if not any(isinstance(each, _MUTABLE) and not isinstance(each, KeptMapping) for each in others):
                first.answers[answer] = known
        found: R = known[1]
        return found

    return answer


def among(items: Iterable[T], holds: Callable[[T], object]) -> KeptTuple[T]:
    """Those of the objects for which `holds` is true, found once in a `KeptTuple`.

    `holds` must depend on the object alone, and be a function of a module or class: it is what the answer is kept by.
    """
    if not isinstance(items, KeptTuple):
        return KeptTuple(each for each in items if holds(each))
    known = items.answers.get(holds)
    if known is None:
        known = items.answers[holds] = ((), KeptTuple(each for each in items if holds(each)))
    found: KeptTuple[T] = known[1]
    return found


def kept_tuple(before: tuple[T, ...], items: Iterable[T]) -> KeptTuple[T]:
    """The tuple as it was before, where the objects are the very same; else a new one."""
    now = KeptTuple(items)
    same = len(now) == len(before) and all(map(_is, before, now))
    return before if same and isinstance(before, KeptTuple) else now


def kept_mapping(before: Mapping[K, V], items: Mapping[K, V]) -> KeptMapping[K, V]:
    """The mapping as it was before, where the objects are the very same in the same order; else a new one."""
    if items is before and isinstance(items, KeptMapping):
        return items
    same = isinstance(before, KeptMapping) and len(before) == len(items)
    if same and all(map(_is, before.values(), items.values())) and [*before] == [*items]:
        assert isinstance(before, KeptMapping)
        return before
    return items if isinstance(items, KeptMapping) else KeptMapping(items)


def _is(one: object, other: object) -> bool:
    return one is other
