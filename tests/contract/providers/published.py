"""Published API specs (OpenAPI 3 and Swagger 2), where they lie beside the project. They are not ours to distribute."""

import re
from functools import cache
from urllib.parse import parse_qsl, urlsplit

import msgspec
import yaml

from tests.contract.providers.json_schema import problems
from tests.needs import SPECS


@cache
def published(path, prefix=""):
    """The spec of that path under ../shared/specs, None where it is absent. `prefix`: base path of its servers."""
    return PublishedSpec(SPECS / path, prefix) if (SPECS / path).exists() else None


class PublishedSpec:
    """One spec. Every check returns texts, none where what was sent is valid."""

    def __init__(self, path, prefix):
        text = path.read_bytes()
        self._document = yaml.safe_load(text) if path.suffix == ".yaml" else msgspec.json.decode(text)
        self._prefix = prefix
        self._paths = {
            re.compile(re.sub(r"\\\{[^/]+?\\\}", "[^/]+", re.escape(template)) + "$"): item
            for template, item in self._document["paths"].items()
        }

    def request_problems(self, request):
        """What is wrong with a request of a client."""
        operation, parameters = self._operation(request)
        if operation is None:
            return [f"the spec has no {request.method} {urlsplit(request.url).path}"]
        found = []
        named = {each["name"]: each for each in parameters if each["in"] == "query"}
        given = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
        found += [f"query {name} is not known" for name in given.keys() - named.keys()]
        found += [
            f"query {name} is missing" for name, each in named.items() if each.get("required") and name not in given
        ]
        for name in given.keys() & named.keys():
            schema = named[name].get("schema") or _parameter_schema(named[name])
            found += problems(_typed(given[name], schema), schema, self._document, path=f"query {name}")
        schema = self._body(operation, parameters)
        if schema is not None and request.body:
            found += problems(msgspec.json.decode(request.body), schema, self._document)
        elif schema is not None and (operation.get("requestBody") or {}).get("required"):
            found.append("the body is missing")
        return found

    def response_problems(self, request, status, body):
        """What is wrong with a response. A status that the spec does not know says nothing."""
        operation, _ = self._operation(request)
        responses = (operation or {}).get("responses", {})
        answer = responses.get(str(status)) or responses.get("default")
        if answer is None:
            return []
        while "$ref" in answer:
            answer = self._at(answer["$ref"])
        content = answer.get("content", {})
        schema = answer.get("schema") or next(iter(content.values()), {}).get("schema")
        return [] if schema is None else problems(body, schema, self._document)

    def _operation(self, request):
        path = urlsplit(request.url).path.removeprefix(self._prefix)
        matching = [item for pattern, item in self._paths.items() if pattern.match(path)]
        # A literal path comes before one with a parameter.
        for item in sorted(matching, key=lambda item: str(item).count("'path'")):
            if request.method.lower() in item:
                operation = item[request.method.lower()]
                named = [*item.get("parameters", ()), *operation.get("parameters", ())]
                return operation, [self._at(each["$ref"]) if "$ref" in each else each for each in named]
        return None, ()

    def _body(self, operation, parameters):
        if "requestBody" in operation:
            body = operation["requestBody"]
            return (self._at(body["$ref"]) if "$ref" in body else body)["content"]["application/json"]["schema"]
        return next((each["schema"] for each in parameters if each["in"] == "body"), None)

    def _at(self, reference):
        found = self._document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        return found


def _parameter_schema(parameter):
    """Swagger 2 writes the schema into the parameter itself."""
    return {key: parameter[key] for key in ("type", "enum", "format", "items") if key in parameter}


def _typed(text, schema):
    match schema.get("type"):
        case "integer" | "number" if re.fullmatch(r"-?\d+(\.\d+)?", text):
            return int(text) if text.lstrip("-").isdigit() else float(text)
        case "boolean" if text in {"true", "false"}:
            return text == "true"
        case "array":
            return text.split(",")
    return text
