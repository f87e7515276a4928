"""Server-side apply."""

from forebay.embedded.calls import Options, Target
from forebay.embedded.failures import ApiFailure
from forebay.embedded.store import Json, Store


def server_side_apply(
    store: Store, target: Target, options: Options, sent: Json, *, dry_run: bool
) -> tuple[int, Json, dict[str, str]]:
    raise ApiFailure(415, "UnsupportedMediaType", "server-side apply is not supported by this server")
