"""Writes src/forebay/embedded/api/builtin_types.json from the OpenAPI documents of a real API server.

    KUBECONFIG=... python -m tests.contract.kube.published_types

The result holds, for each built-in type, its fields, their types, and how lists merge: one line per type, in the
notation that forebay.embedded.api.builtin reads.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from forebay.embedded.api.kinds import BUILT_IN_KINDS

OUTPUT = Path(__file__).parents[3] / "src/forebay/embedded/api/builtin_types.json"
SCHEMAS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
PLAIN = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "time",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    # A schema or a boolean, or any value; a list of schemas is not structural.
    f"{SCHEMAS}.JSONSchemaPropsOrBool": "any",
    f"{SCHEMAS}.JSONSchemaPropsOrArray": f"{SCHEMAS}.JSONSchemaProps",
    f"{SCHEMAS}.JSONSchemaPropsOrStringArray": "any",
    f"{SCHEMAS}.JSON": "any",
}

Json = dict[str, Any]


def fetch(path: str) -> Json:
    answer = subprocess.run(["kubectl", "get", "--raw", path], check=True, capture_output=True)
    return json.loads(answer.stdout)


def notation(field: Json) -> str:
    """`[]Container|patch:name|keys:name`, `{}string|atomic`, `string!` (always written, even when empty)."""
    marks = []
    strategy = field.get("x-kubernetes-patch-strategy", "")
    if "merge" in strategy:
        marks.append(f"patch:{field.get('x-kubernetes-patch-merge-key', '')}")
    elif "replace" in strategy:
        marks.append("patch-replace")
    kind = field.get("x-kubernetes-list-type")
    if kind == "map":
        marks.append("keys:" + ",".join(field["x-kubernetes-list-map-keys"]))
    elif kind == "set":
        marks.append("set")
    elif field.get("x-kubernetes-map-type") == "atomic":
        marks.append("atomic")
    return "|".join([shape(field), *marks])


def shape(field: Json) -> str:
    while "allOf" in field:
        [field] = field["allOf"]
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return PLAIN.get(name, name)
    match field.get("type"):
        case "array":
            return "[]" + shape(field["items"])
        case "object" if "additionalProperties" in field:
            return "{}" + shape(field["additionalProperties"])
        case "string":
            return "bytes" if field.get("format") == "byte" else "string"
        case None | "object":
            return "any"
        case other:
            return other


def refers(text: str) -> str | None:
    name = text.partition("|")[0].rstrip("!").replace("[]", "").replace("{}", "")
    return name if "." in name else None


def main() -> None:
    schemas: Json = {}
    roots = sorted({f"apis/{kind.api_version}" if kind.group else "api/v1" for kind in BUILT_IN_KINDS})
    for root in roots:
        schemas |= fetch(f"/openapi/v3/{root}")["components"]["schemas"]
    kinds = {}
    for name, schema in schemas.items():
        for one in schema.get("x-kubernetes-group-version-kind", ()):
            version = f"{one['group']}/{one['version']}".lstrip("/")
            kinds[version, one["kind"]] = name
    todo = [kinds[kind.api_version, kind.kind] for kind in BUILT_IN_KINDS]
    todo += [kinds[pair] for pair in (("v1", "Binding"), ("policy/v1", "Eviction"), ("autoscaling/v1", "Scale"))]
    tops = {f"{v}/{k}": n for (v, k), n in kinds.items() if n in todo}
    types: Json = {}
    while todo:
        name = todo.pop()
        if name in types:
            continue
        schema = schemas[name]
        needed = set(schema.get("required", ()))
        fields = {}
        for field, inner in schema.get("properties", {}).items():
            text = notation(inner)
            always = field in needed and inner.get("default") is not None and inner.get("type") != "array"
            fields[field] = text.replace("|", "!|", 1) if always and "|" in text else text + "!" * always
        atomic = schema.get("x-kubernetes-map-type") == "atomic"
        types[name] = {**({"": "atomic"} if atomic else {}), **fields}
        todo += [one for one in map(refers, fields.values()) if one]
    last = [name.rpartition(".")[2] for name in types]
    short = {
        name: ".".join(name.split(".")[-3:]) if last.count(end) > 1 else end
        for name, end in zip(types, last, strict=True)
    }

    def shorten(text: str) -> str:
        name = refers(text)
        return text.replace(name, short[name]) if name else text

    lines = [
        f'  "{short[name]}": ' + json.dumps({field: shorten(text) for field, text in sorted(fields.items())})
        for name, fields in sorted(types.items(), key=lambda pair: short[pair[0]])
    ]
    head = ",\n".join(f'  "{kind}": "{short[name]}"' for kind, name in sorted(tops.items()))
    OUTPUT.write_text("{\n" + head + ",\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{OUTPUT}: {len(types)} types, {OUTPUT.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
