"""Ages as tables show them: `5s`, `3m20s`, `2d4h`."""

from datetime import UTC, datetime

from forebay.embedded.api.objects import Json
from forebay.model.spans import human


def parse_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def between(since: str | None, now: datetime) -> str:
    if not since:
        return "<unknown>"
    try:
        return human(now - parse_time(since))
    except ValueError:
        return "<invalid>"


def age(obj: Json, now: datetime) -> str:
    return between(obj["metadata"].get("creationTimestamp"), now)
