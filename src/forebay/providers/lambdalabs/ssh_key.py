"""The SSH key that every launch must name.

Lambda refuses a launch without an SSH key of the account. Forebay needs none, so it adds one of its own, whose private
half is thrown away: nobody can log in with it. One key serves all machines of the cluster, and is deleted when the last
of them is gone. The comment in it says when it was added: Lambda does not.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from forebay.providers.base import OutcomeUnknown, ProviderError, Unavailable
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.lambdalabs.errors import ObjectMissing
from forebay.providers.lambdalabs.wire import SSH_KEYS, LambdaData, LambdaKey, LambdaNewKey

log = structlog.get_logger(__name__)

_PREFIX: Final = "forebay-"
_COMMENT: Final = "forebay-%Y%m%dT%H%M%SZ"


class ClusterKey:
    """The key of one cluster. `settle`: how long after a launch a listing may still lack the machine.

    So long it is kept after a launch whose machine no listing has shown yet; and so long after another process has
    added it, whose launches nobody knows. Where one of those comes later still, it is refused without the key, and
    nothing is launched.
    """

    def __init__(self, calls: CloudCalls, cluster: str, settle: timedelta, clock: Callable[[], datetime]) -> None:
        self.name: Final = f"{_PREFIX}{cluster}"
        self._calls = calls
        self._settle = settle
        self._clock = clock
        self._lock = asyncio.Lock()
        #: Whether the account has the key, as far as known.
        self._exists: bool | None = None
        #: For launches of which nobody knows whether they took effect.
        self._needed_until = self._began = clock()
        #: A leader that has just been replaced may add the key again, after this one has deleted it.
        self._look_again_at: datetime | None = None
        #: Public keys that this process has added.
        self._added: set[str] = set()
        self._launches = 0
        #: Machines that no listing has shown yet, and until when they keep the key.
        self._unlisted: dict[str, datetime] = {}

    async def __aenter__(self) -> None:
        """Holds the key while a launch names it, and adds it where the account has none."""
        self._launches += 1
        with ExitStack() as stack:
            stack.callback(self._end_launch)
            try:
                await self._ensure()
            except OutcomeUnknown as error:
                raise Unavailable(f"The SSH key for the launch could not be added: {error}") from None
            stack.pop_all()

    def _end_launch(self) -> None:
        self._launches -= 1

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_launch()
        if kind is not None:
            self._needed_until = self._clock() + self._settle

    def launched(self, instances: Iterable[str]) -> None:
        """These were launched with the key. For use while it is held."""
        self._unlisted |= dict.fromkeys(instances, self._clock() + self._settle)

    def listed(self, instances: Iterable[str]) -> None:
        """A listing shows these machines of the cluster: the next one without them means that they are gone."""
        for each in instances:
            self._unlisted.pop(each, None)

    async def restore(self) -> None:
        """Adds the key again, because a launch has not found it. For use while it is held."""
        self._exists = None
        await self._ensure()

    async def delete_unused(self) -> bool:
        """Deletes the key, once a listing shows no machine of the cluster. A failure is repeated at the next one.

        Returns whether the account has none.
        """
        if self._absent or self._in_use():
            return self._absent
        async with self._lock:
            if self._in_use():
                return False
            try:
                own = await self._own()
                self._needed_until = max((self._needed_until, *map(self._keep_until, own)))
                if self._in_use():
                    return False
                for key in own:
                    with suppress(ObjectMissing):
                        await self._calls.act("DELETE", f"{SSH_KEYS}/{key.id}", LambdaData[dict[str, Any]])
            except ProviderError as error:
                log.warning("ssh key not deleted", key=self.name, error=str(error))
                return False
            now, others_may_act = self._clock(), self._began + self._settle
            self._exists, self._look_again_at = False, others_may_act if now < others_may_act else None
            self._unlisted.clear()
            return True

    @property
    def _absent(self) -> bool:
        if self._exists is not False:
            return False
        return self._look_again_at is None or self._clock() < self._look_again_at

    def _in_use(self) -> bool:
        return self._launches > 0 or self._clock() < max((self._needed_until, *self._unlisted.values()))

    def _keep_until(self, key: LambdaKey) -> datetime:
        """Until when a listing may lack what another process has launched with the key, which it has added."""
        if key.public_key in self._added:
            return self._began
        return (_added_at(key) or self._began) + self._settle

    async def _ensure(self) -> None:
        async with self._lock:
            if self._exists:
                return
            if not await self._own():
                public = _public_key(self._clock())
                self._added.add(public)
                new = LambdaNewKey(name=self.name, public_key=public)
                await self._calls.act("POST", SSH_KEYS, LambdaData[LambdaKey], new)
            self._exists = True

    async def _own(self) -> list[LambdaKey]:
        keys = (await self._calls.get(SSH_KEYS, LambdaData[tuple[LambdaKey, ...]])).data
        return [each for each in keys if each.name == self.name]


def _public_key(now: datetime) -> str:
    """A new public key, of which nobody has the private half."""
    public = Ed25519PrivateKey.generate().public_key()
    return f"{public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {now.astimezone(UTC):{_COMMENT}}"


def _added_at(key: LambdaKey) -> datetime | None:
    """When the key was added, by its comment; None for one without."""
    try:
        return datetime.strptime(key.public_key.rpartition(" ")[2], _COMMENT).replace(tzinfo=UTC)
    except ValueError:
        return None
