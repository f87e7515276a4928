"""Times as tables show them: `5s`, `3m20s`, `2d4h`."""

from datetime import UTC, datetime
from typing import Any

from forebay.model.spans import human

Json = dict[str, Any]


def moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def between(since: str | None, now: datetime) -> str:
    if not since:
        return "<unknown>"
    try:
        return human(now - moment(since))
    except ValueError:
        return "<invalid>"


def age(obj: Json, now: datetime) -> str:
    return between(obj["metadata"].get("creationTimestamp"), now)
