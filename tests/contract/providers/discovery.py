"""Google's discovery documents, where they lie beside the project: what a `PublishedSpec` is for other clouds."""

import re
from functools import cache
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tests.contract.providers.json_schema import problems
from tests.contract.providers.published import SPECS

#: Keywords of a discovery schema that json_schema.py checks too.
_KEPT = ("type", "format", "enum", "pattern")


@cache
def discovered(*paths, ignoring=()):
    """The documents under ../shared/specs, as one; None where one is absent. `ignoring`: paths that they lack."""
    if not all((SPECS / path).exists() for path in paths):
        return None
    return DiscoveryDocuments([msgspec.json.decode((SPECS / path).read_bytes()) for path in paths], ignoring)


class DiscoveryDocuments:
    """Several APIs. Every check returns texts, none where what was sent is valid."""

    def __init__(self, documents, ignoring):
        self._ignoring = re.compile("|".join(ignoring)) if ignoring else None
        self._methods = []
        for document in documents:
            schemas = {"schemas": {name: _schema(each) for name, each in document["schemas"].items()}}
            for method in _methods(document):
                path = f"/{document['servicePath']}{method.get('flatPath') or method['path']}"
                pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\+\w+\}", ".+", path)) + "$")
                self._methods.append((pattern, method, schemas, document.get("parameters", {})))

    def request_problems(self, request):
        found = self._method(request)
        if found is None:
            return [] if self._is_ignored(request) else [f"no document has {request.method} {_path(request)}"]
        method, schemas, everywhere = found
        named = {
            name: each for name, each in (everywhere | method["parameters"]).items() if each["location"] == "query"
        }
        given = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
        wrong = [f"query {name} is not known" for name in given.keys() - named.keys()]
        for name in given.keys() & named.keys():
            schema = _schema(named[name])
            value = int(given[name]) if schema.get("type") == "integer" and given[name].isdigit() else given[name]
            wrong += problems(value, schema, schemas, path=f"query {name}")
        if "request" in method and request.body:
            wrong += problems(msgspec.json.decode(request.body), _schema(method["request"]), schemas)
        elif request.body:
            wrong.append("a body that the method does not have")
        return wrong

    def response_problems(self, request, status, body):
        found = self._method(request)
        if found is None or status >= 300:
            return []
        method, schemas, _ = found
        return problems(body, _schema(method["response"]), schemas)

    def _method(self, request):
        for pattern, method, schemas, everywhere in self._methods:
            if method["httpMethod"] == request.method and pattern.match(_path(request)):
                return method, schemas, everywhere
        return None

    def _is_ignored(self, request):
        return self._ignoring is not None and self._ignoring.search(_path(request)) is not None


def _path(request):
    return urlsplit(request.url).path


def _methods(part):
    for resource in part.get("resources", {}).values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource)


def _schema(part):
    """A discovery schema as JSON Schema."""
    if "$ref" in part:
        return {"$ref": f"#/schemas/{part['$ref']}"}
    schema = {key: part[key] for key in _KEPT if key in part}
    if schema.get("type") == "any":
        del schema["type"]
    if "properties" in part:
        schema["properties"] = {name: _schema(each) for name, each in part["properties"].items()}
    if "items" in part:
        schema["items"] = _schema(part["items"])
    if "additionalProperties" in part:
        schema["additionalProperties"] = _schema(part["additionalProperties"])
    return schema
