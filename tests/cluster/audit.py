"""Who asked the API server for what, and when: its audit log, one entry for each request that it has answered.

A watch is in it once it has ended.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

_REFUSED = (401, 403)


class Entry(NamedTuple):
    user: str
    verb: str
    group: str
    #: With its subresource: `gpunodepools/status`. Empty for what is no resource (`/version`).
    resource: str
    namespace: str
    name: str
    code: int
    #: Wall time at which the server got it and at which it had answered.
    began: float
    ended: float
    uri: str

    @property
    def worked(self) -> bool:
        return 200 <= self.code < 300

    @property
    def refused(self) -> bool:
        return self.code in _REFUSED

    @property
    def is_watch(self) -> bool:
        return self.verb == "watch" and self.worked

    @property
    def is_act(self) -> bool:
        """A word of the operator to a user: what only a leader may say."""
        return self.resource == "gpunodepools/status" and self.worked

    @property
    def is_broken_off(self) -> bool:
        """Such a word whose sender left before the answer: the server may have taken it all the same."""
        return self.resource == "gpunodepools/status" and (self.code in {0, 499} or self.code >= 500)

    @property
    def is_claim(self) -> bool:
        """The lease was written."""
        return self.resource == "leases" and self.verb in {"create", "update"} and self.worked


def entries(log: Path, *users: str) -> list[Entry]:
    """Of these users, in the order in which the server got the requests."""
    return sorted((each for each in _read(log, users) if each.user in users), key=lambda entry: entry.began)


def _read(log: Path, users: Sequence[str]) -> Iterator[Entry]:
    # The last line may be half written.
    for line in log.read_text().split("\n")[:-1]:
        if not any(user in line for user in users):
            continue
        said = json.loads(line)
        about = said.get("objectRef", {})
        resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        yield Entry(
            user=said["user"].get("username", ""),
            verb=said["verb"],
            group=about.get("apiGroup", ""),
            resource=resource,
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            code=said.get("responseStatus", {}).get("code", 0),
            began=_moment(said["requestReceivedTimestamp"]),
            ended=_moment(said["stageTimestamp"]),
            uri=said["requestURI"],
        )


def _moment(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
