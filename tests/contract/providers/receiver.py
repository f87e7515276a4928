"""A receiver that verifies signed calls, written from the Standard Webhooks specification and not from our code."""

import base64
import hashlib
import hmac

from forebay.net import clock
from forebay.net.transport import Response

TOKEN = "planted-token-7f3a"
_RAW_KEY = b"planted signing key, 32 bytes ok"
KEY = "whsec_" + base64.b64encode(_RAW_KEY).decode()
_TOLERANCE = 300


class Receiver:
    """A guard of a `PowerWorld`: 401 for wrong credentials, 400 for a malformed request."""

    def __init__(self):
        self.clock = clock.now
        self.token = TOKEN
        self.refuse_all = False
        self.seen = []

    def __call__(self, request):
        self.seen.append(request)
        headers = request.headers
        if self.refuse_all or headers.get("Authorization") != f"Bearer {self.token}" or not self._signed(request):
            return Response(401, body=f"not you: {headers.get('Authorization')}".encode())
        if request.method == "POST" and headers.get("Content-Type") != "application/json":
            return Response(400, body=b"send application/json")
        if request.method == "POST" and not headers.get("Idempotency-Key"):
            return Response(400, body=b"send an Idempotency-Key")
        return None

    def _signed(self, request):
        headers = request.headers
        if not all(name in headers for name in ("webhook-id", "webhook-timestamp", "webhook-signature")):
            return False
        if abs(int(headers["webhook-timestamp"]) - clock.now().timestamp()) > _TOLERANCE:
            return False
        body = (request.body or b"").decode()
        message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
        right = base64.b64encode(hmac.digest(_RAW_KEY, message, hashlib.sha256)).decode()
        return any(hmac.compare_digest(given, f"v1,{right}") for given in headers["webhook-signature"].split(" "))
