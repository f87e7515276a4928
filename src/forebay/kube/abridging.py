"""Pods of a watch made short before they are decoded: what is skipped over costs as much as what is read.

    {"type":"ADDED","object":{…"metadata":{"name":…,"labels":…,"managedFields":[…]},"spec":{…},"status":{…}}}
    {"type":"ADDED","object":{…"metadata":{"name":…},"forebay.dev/like":7,"forebay.dev/node":…,"forebay.dev/phase":…}}

Pods of one ReplicaSet are alike to the byte from their labels to their status, but for the name of the token's volume
and the node. So a pod is compared with one of the same owner that was decoded before, and where it is alike, a number
stands for the rest. Nothing is taken for granted: any other text stays as it is, without its managedFields.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from forebay.kube.interning import Interned

#: Fields instead of spec and status. The status itself stays where more of it is read than the phase.
LIKE: Final = "forebay.dev/like"
NODE: Final = "forebay.dev/node"
PHASE: Final = "forebay.dev/phase"
#: Admission names the volume of the token, and with it all its mounts, anew for each pod: this and five letters.
TOKEN: Final = b"kube-api-access-"
_LETTERS: Final = 5

_MANAGED_FIELDS: Final = b',"managedFields":['
_SPEC: Final = b']},"spec":{'
_LABELS: Final = b',"labels":{'
_NODE_NAME: Final = b'"nodeName":"'
_STATUS: Final = b'},"status":{"phase":"'
_END: Final = b"}}}"
_THEN_PHASE: Final = b'","%b":"' % PHASE.encode()
_THEN_STATUS: Final = b'","status":{"phase":"'
_THEN_END: Final = b'"}}'
#: So much of the end of the metadata has the uid of the owner in it.
_ABOUT_OWNER: Final = 160
#: Remembered at once: owners, and pods that others are like (far more than a batch has lines).
_OWNERS: Final = 1_024
_NUMBERS: Final = 4_096

Buffer = bytes | memoryview


class Common(Protocol):
    """What alike pods have in common."""

    @property
    def timed(self) -> bool:
        """If not, nothing is read of the status of a pod that has a node, but the phase."""
        ...


C = TypeVar("C", bound=Common)


class _Alike(msgspec.Struct, frozen=True):
    """A pod that others are like, in the parts that they are compared with."""

    #: From the labels to the end.
    metadata: bytes
    #: To the name of the node, cut where the letters of the token are, the first of which are so far into it.
    head: tuple[bytes, ...]
    letters_at: int
    #: From the end of the node's name to the phase.
    tail: bytes
    #: What stands for all of this, up to the name of the node.
    instead: bytes
    only_phase: bool

    def shorten(self, text: bytes, at: int, spec: int, line_end: int) -> tuple[int, list[bytes], int] | None:
        """Where to leave the text, what comes there, and where to go on. None where the pod is not alike."""
        start = at - len(self.metadata)
        letters_at = spec + self.letters_at
        letters = text[letters_at : letters_at + _LETTERS]
        head = letters.join(self.head)
        node = spec + len(head)
        node_end = text.find(b'"', node, line_end)
        phase = node_end + len(self.tail)
        if (
            start < 0
            or not text.startswith(self.metadata, start)
            or not text.startswith(head, spec)
            or not text.startswith(self.tail, node_end)
            or not (letters.isalnum() or len(self.head) == 1)
        ):
            return None
        if not self.only_phase:
            return start, [self.instead, text[node:node_end], _THEN_STATUS], phase
        if not text.startswith(_END, line_end - len(_END)):
            return None
        phase_end = text.find(b'"', phase, line_end)
        return start, [self.instead, text[node:node_end], _THEN_PHASE, text[phase:phase_end], _THEN_END], line_end


class _Owner(msgspec.Struct):
    alike: _Alike | None = None
    #: How many pods were not like that one.
    others: int = 0


class Abridging(Generic[C]):
    """`read` makes the pod of a line. `common_of` says what pods like it have in common; None where there are no such.

    Both may raise `ValueError`.
    """

    def __init__(self, common_of: Callable[[bytes], C | None], read: Callable[[bytes], Any]) -> None:
        self._common_of = common_of
        self._read = read
        self._owners: Interned[bytes, _Owner] = Interned(_new_owner, _OWNERS)
        self._common: dict[int, C] = {}
        #: The generation before, for lines that are short already and not decoded yet.
        self._old_common: dict[int, C] = {}
        self._number = 0

    def common(self, number: int) -> C:
        """Raises `ValueError`."""
        found = self._common.get(number) or self._old_common.get(number)
        if found is None:
            raise ValueError(f"{LIKE}: there is no pod number {number}")
        return found

    def pieces(self, text: bytes, start: int, end: int) -> list[Buffer]:
        """The complete lines between, made short, in pieces.

        In JSON none of the marks can be inside a string: each has a quotation mark with no backslash before it, after
        which no JSON goes on like that if it ends a string. So managedFields is an array, from its name to its first
        "]", which is its end unless there was a second "[".
        """
        pieces: list[Buffer] = []
        view = memoryview(text)
        at = text.find(_MANAGED_FIELDS, start, end)
        while at >= 0:
            line_end = text.find(b"\n", at, end)
            close = text.find(b"]", at, line_end)
            if text.startswith(_SPEC, close) and text.find(b"[", at + len(_MANAGED_FIELDS), close) < 0:
                spec = close + len(_SPEC)
                owner = self._owners[text[max(at - _ABOUT_OWNER, 0) : at]]
                short = None if owner.alike is None else owner.alike.shorten(text, at, spec, line_end)
                if short is None:
                    pieces.append(view[start:at])
                    start = close + 1
                    owner.others += 1
                    # The second, then ever more rarely: where pods are not alike, it is not to be tried with each.
                    if owner.others > 1 and owner.others & (owner.others - 1) == 0:
                        owner.alike = self._learn(text, at, spec, line_end)
                else:
                    pieces.append(view[start : short[0]])
                    pieces += short[1]
                    start = short[2]
            at = text.find(_MANAGED_FIELDS, line_end, end)
        pieces.append(view[start:end])
        return pieces

    def _learn(self, text: bytes, at: int, spec: int, line_end: int) -> _Alike | None:
        line = text.rfind(b"\n", 0, at) + 1
        labels = text.find(_LABELS, line, at)
        status = text.find(_STATUS, spec, line_end)
        node = text.find(_NODE_NAME, spec, status)
        if min(labels, status, node) < 0:
            return None
        node += len(_NODE_NAME)
        before = text[spec:node]
        token = before.find(TOKEN)
        letters = token + len(TOKEN)
        head = [before] if token < 0 else before.split(before[token : letters + _LETTERS])
        number = self._number = self._number + 1
        try:
            common = self._common_of(text[line:line_end])
            if common is None:
                return None
            alike = _Alike(
                metadata=text[labels:at],
                head=(*(part + TOKEN for part in head[:-1]), head[-1]),
                letters_at=letters,
                tail=text[text.find(b'"', node) : status + len(_STATUS)],
                instead=b'},"%b":%d,"%b":"' % (LIKE.encode(), number, NODE.encode()),
                only_phase=not common.timed,
            )
            short = alike.shorten(text, at, spec, line_end)
            if short is None:
                return None
            if len(self._common) >= _NUMBERS:
                self._old_common, self._common = self._common, {}
                self._owners.forget()
            self._common[number] = common
            abridged = b"".join([text[line : short[0]], *short[1], text[short[2] : line_end]])
            return alike if self._read(abridged) == self._read(text[line:line_end]) else None
        except ValueError:
            return None


def _new_owner(_about: bytes) -> _Owner:
    return _Owner()
