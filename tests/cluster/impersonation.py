"""Requests as somebody else, with exactly the rights that they have."""

import http.client
import json
import ssl
from typing import Any

from tests.rig import Rig
from tests.rig.control_plane import Part

MERGE, STRATEGIC, JSON_PATCH = (
    f"application/{each}+json" for each in ("merge-patch", "strategic-merge-patch", "json-patch")
)


def ask(  # noqa: PLR0917 (as in a request)
    rig: Rig, user: str, method: str, path: str, body: object = None, content: str = "application/json"
) -> tuple[int, str, str]:
    """Status and message of the answer to this user, and the warnings that came with it."""
    context = ssl.create_default_context(cafile=str(rig.ca_file))
    context.load_cert_chain(*rig.client_certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", rig._ports[Part.API_SERVER], timeout=30, context=context)
    try:
        headers = {"Content-Type": content, "Impersonate-User": user}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        said: dict[str, Any] = json.loads(answer.read())
        return answer.status, said.get("message", ""), answer.getheader("Warning") or ""
    finally:
        connection.close()
