"""A store on a clock that only `advance` moves, and an in-process HTTP client of it."""

import json
from datetime import UTC, datetime, timedelta

from forebay.embedded.api.bootstrap import open_store
from forebay.embedded.api.handler import ApiHandler
from forebay.embedded.api.kinds import CRD_KIND
from forebay.net.transport import Headers, Request


class Clock:
    def __init__(self):
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def advance(self, **span):
        self.now += timedelta(**span)


def a_store(clock=None):
    return open_store(clock=clock or Clock(), seed=1)


def named(name, **more):
    return {"metadata": {"name": name, "namespace": "default"}, **more}


def a_pod(name, **spec):
    return named(name, spec={"containers": [{"name": "main", "image": "i:1"}], **spec})


def owned_by(owner, obj, **more):
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    references = [*obj["metadata"].get("ownerReferences", ()), {**reference, "uid": owner["metadata"]["uid"], **more}]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}


def a_crd(properties, **version):
    spec = {
        "group": "example.dev",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": properties},
                            "status": {"type": "object"},
                        },
                    }
                },
                "subresources": {"status": {}},
                **version,
            }
        ],
    }
    return {"metadata": {"name": "things.example.dev"}, "spec": spec}


def define(store, properties, **version):
    store.create(CRD_KIND, a_crd(properties, **version))
    return store.kinds.at("example.dev", "v1", "things")


class Api:
    """A client of a store's handler; `answer` returns (status, JSON)."""

    def __init__(self, store):
        self.store = store
        self.handler = ApiHandler(store)

    async def ask(self, method, path, body=None, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(method=method, url=f"http://embedded{path}", headers=Headers(fields), body=content)
        return await self.handler(request)

    async def answer(self, method, path, body=None, **headers):
        response = await self.ask(method, path, body, **headers)
        content = await response.read()
        if response.headers["Content-Type"].startswith("text/plain"):
            return response.status, {"message": content.decode()}
        return response.status, json.loads(content)
