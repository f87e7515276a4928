"""Google's token endpoints: service account keys, the security token service and the metadata server."""

import base64
import itertools
from datetime import timedelta
from functools import cache
from urllib.parse import parse_qs, urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from forebay.net.clock import now
from forebay.net.transport import Headers, Response

PROJECT = "trial-project"
EMAIL = f"forebay@{PROJECT}.iam.gserviceaccount.com"
SUBJECT_TOKEN = "subject-token-of-the-cluster-5a7d"
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@cache
def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_file(key_id, base):
    """A service account's key file."""
    pem = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fields = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": key_id,
        "private_key": pem.decode(),
        "client_email": EMAIL,
        "token_uri": f"{base}/token",
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2)


def federation_config(base):
    """A workload identity federation config, whose subject token comes from a URL."""
    return msgspec.json.encode(
        {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{base}/sts",
            "credential_source": {"url": f"{base}/subject-token"},
        }
    )


class TokenDesk:
    """Issues tokens, which are valid for an hour."""

    lifetime = timedelta(hours=1)

    def __init__(self):
        #: Token -> (key that it was issued for, end).
        self.issued = {}
        self._numbers = itertools.count(1)
        self.requests = []
        #: Statuses to answer the next requests with.
        self.refuses = []

    def expire(self):
        """Ends all tokens at once."""
        self.issued.clear()

    def accepts(self, header, key):
        token = (header or "").removeprefix("Bearer ")
        of, until = self.issued.get(token, (None, None))
        return of is not None and of in {key, "anybody"} and now() < until

    def answer(self, request, key):
        """The response to a request for a token; None where the path is not of this desk."""
        path = urlsplit(request.url).path
        on = {
            "/token": self._by_key,
            "/sts": self._by_exchange,
            "/subject-token": lambda _request, _key: Response(200, body=SUBJECT_TOKEN.encode()),
            "/computeMetadata/v1/instance/service-accounts/default/token": self._by_metadata,
            "/computeMetadata/v1/project/project-id": self._project,
        }.get(path)
        if on is None:
            return None
        self.requests.append(path)
        if self.refuses:
            return Response(self.refuses.pop(0), body=b"{}")
        return on(request, key)

    def _issue(self, key):
        token = f"ya29.planted-token-{next(self._numbers)}"
        self.issued[token] = (key, now() + self.lifetime)
        seconds = int(self.lifetime.total_seconds())
        return _json(200, {"access_token": token, "expires_in": seconds, "token_type": "Bearer"})

    def _by_key(self, request, key):
        form = parse_qs((request.body or b"").decode())
        if form.get("grant_type") != [_JWT_GRANT]:
            return _json(400, {"error": "unsupported_grant_type"})
        head, claims, signature = form["assertion"][0].split(".")
        try:
            private_key().public_key().verify(
                _decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return _json(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        said = msgspec.json.decode(_decoded(claims))
        kid = msgspec.json.decode(_decoded(head))["kid"]
        if kid != key or said["iss"] != EMAIL or not said["aud"].endswith("/token") or "compute" not in said["scope"]:
            return _json(400, {"error": "invalid_grant", "error_description": "Invalid JWT: no such key."})
        return self._issue(key)

    def _by_exchange(self, request, _key):
        form = parse_qs((request.body or b"").decode())
        if form.get("grant_type") != [_EXCHANGE] or form.get("subject_token") != [SUBJECT_TOKEN]:
            return _json(400, {"error": "invalid_grant", "error_description": "The subject token is not valid."})
        return self._issue("anybody")

    def _by_metadata(self, request, _key):
        if request.headers.get("Metadata-Flavor") != "Google":
            return Response(403, body=b"Missing Metadata-Flavor:Google header.")
        return self._issue("anybody")

    @staticmethod
    def _project(request, _key):
        if request.headers.get("Metadata-Flavor") != "Google":
            return Response(403, body=b"Missing Metadata-Flavor:Google header.")
        return Response(200, body=PROJECT.encode())


def _decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _json(status, body):
    return Response(status, Headers({"Content-Type": "application/json"}), msgspec.json.encode(body))
