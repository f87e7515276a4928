"""A conformance server of Tailscale's API, version 2, as far as joining needs it.

The contract is condensed from Tailscale's published OpenAPI document (api.tailscale.com/api/v2, of September 2026): an
OAuth client gets a token for an hour; keys made with it must have tags that the client owns; the secret of a key is in
the answer to its creation and nowhere else; a description has at most 50 letters, digits, hyphens and spaces; what is
unknown is 404 with a message. Requests that break it fail the test, by an assertion.

    python -m tests.contract.tailnets --port 8099
"""

import re
from collections import deque
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import msgspec

from forebay.net import clock
from forebay.net.transport import AnswerLost, Response

CLIENT = ("k-client", "tskey-client-secret")
TAGS = ("tag:gpu", "tag:k8s")


class _Create(msgspec.Struct, forbid_unknown_fields=True):
    reusable: bool
    ephemeral: bool
    preauthorized: bool
    tags: list[str]


class _Devices(msgspec.Struct, forbid_unknown_fields=True):
    create: _Create


class _Capabilities(msgspec.Struct, forbid_unknown_fields=True):
    devices: _Devices


class _CreateKey(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    capabilities: _Capabilities
    key_type: str = "auth"
    expiry_seconds: int = 7776000
    description: str = ""


class TailscaleServer:
    """Keys, devices and tokens in memory. `faults` are taken by the next requests that they fit."""

    def __init__(self, *, owned_tags=TAGS, descriptions_listed=True):
        self.owned_tags = owned_tags
        self.descriptions_listed = descriptions_listed
        self.tokens = {}
        self.keys = {}
        self.devices = {}
        self.calls = []
        self.faults = deque()
        self.hidden = set()
        self._count = 0

    def fail(self, method, path, what):
        """The next request of this method and path fails: `what` is a status, "lost" or "expired"."""
        self.faults.append((method, path, what))

    def joins(self, secret, hostname):
        """What a machine does with a key: the device, or why it was refused."""
        key = next((each for each in self.keys.values() if each["key"] == secret), None)
        if key is None:
            return "invalid key"
        if key["used"]:
            return "authkey already used"
        if key["expires"] <= clock.now():
            return "authkey expired"
        key["used"] = True
        return self.device(hostname, key["create"].tags, ephemeral=key["create"].ephemeral)

    def device(self, hostname, tags=(), *, ephemeral=False):
        made = {"id": self._id("9"), "nodeId": self._id("n"), "hostname": hostname, "tags": list(tags)}
        self.devices[made["nodeId"]] = {**made, "name": f"{hostname}.example.ts.net", "isEphemeral": ephemeral}
        return made["nodeId"]

    async def answer(self, request):
        url = urlsplit(request.url)
        path = url.path.removeprefix("/api/v2")
        assert url.path.startswith("/api/v2/")
        self.calls.append((request.method, path))
        fault = next(
            (each for each in self.faults if (request.method, path.startswith(each[1])) == (each[0], True)), None
        )
        if fault is not None:
            self.faults.remove(fault)
            if isinstance(fault[2], int):
                return _answer(fault[2], {"message": "try again later"})
            if fault[2] == "expired":
                self.tokens.clear()
        response = self._answered(request, path, parse_qs(url.query))
        if fault is not None and fault[2] == "lost":
            raise AnswerLost(f"{request}: sent, but the connection broke", request)
        return response

    def _answered(self, request, path, query):
        if path == "/oauth/token":
            return self._token(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens.get(token, clock.now()) <= clock.now():
            return _answer(401, {"message": "API token invalid"})
        match request.method, path.strip("/").split("/"):
            case "POST", ["tailnet", "-", "keys"]:
                return self._create(request)
            case "GET", ["tailnet", "-", "keys"]:
                shown = [each for each in self.keys.values() if each["id"] not in self.hidden]
                return _answer(200, {"keys": [self._shown(each, listed=True) for each in shown]})
            case "GET", ["tailnet", "-", "keys", key_id] if key_id in self.keys:
                return _answer(200, self._shown(self.keys[key_id]))
            case "DELETE", ["tailnet", "-", "keys", key_id] if key_id in self.keys:
                del self.keys[key_id]
                return _answer(200, None)
            case "GET", ["tailnet", "-", "devices"]:
                assert query.get("fields", ["default"])[0] in {"all", "default"}
                return _answer(200, {"devices": list(self.devices.values())})
            case "DELETE", ["device", device_id] if device_id in self.devices:
                if self.devices[device_id].get("isExternal"):
                    return _answer(501, {"message": "not in this tailnet"})
                del self.devices[device_id]
                return _answer(200, None)
        return _answer(404, {"message": "not found"})

    def _token(self, request):
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        assert form["grant_type"] == "client_credentials"
        assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
        if (form["client_id"], form["client_secret"]) != CLIENT:
            return _answer(401, {"error": "invalid_client", "error_description": "API token invalid"})
        token = self._id("tskey-api-")
        self.tokens[token] = clock.now() + timedelta(hours=1)
        return _answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    def _create(self, request):
        assert request.headers["Content-Type"] == "application/json"
        wanted = msgspec.json.decode(request.body, type=_CreateKey)
        create = wanted.capabilities.devices.create
        assert wanted.key_type == "auth"
        assert re.fullmatch(r"[-A-Za-z0-9 ]{1,50}", wanted.description), wanted.description
        if not create.tags or not set(create.tags) <= set(self.owned_tags):
            return _answer(400, {"message": "requested tags are invalid or not permitted"})
        key_id = self._id("k")
        self.keys[key_id] = {
            "id": key_id,
            "key": f"tskey-auth-{key_id}-{self._id('s')}",
            "description": wanted.description,
            "expires": clock.now() + timedelta(seconds=wanted.expiry_seconds),
            "create": create,
            "used": False,
        }
        return _answer(200, {**self._shown(self.keys[key_id]), "key": self.keys[key_id]["key"]})

    def _shown(self, key, *, listed=False):
        shown = {"id": key["id"], "keyType": "auth", "expires": key["expires"].isoformat()}
        return shown if listed and not self.descriptions_listed else {**shown, "description": key["description"]}

    def _id(self, prefix):
        self._count += 1
        return f"{prefix}{self._count:04}CNTRL"


def _answer(status, body):
    return Response(status, {"Content-Type": "application/json"}, b"" if body is None else msgspec.json.encode(body))
