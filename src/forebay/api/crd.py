"""The CustomResourceDefinition of a kind, as a document and as YAML."""

from typing import Any

from forebay.api.declaration import CustomKind, PrinterColumn
from forebay.api.schema import MoreRules, object_schema

Json = dict[str, Any]


def custom_resource_definition(kind: CustomKind[Any], more_rules: MoreRules) -> Json:
    """The definition of a kind. `more_rules` are those that its types do not state: they concern single providers."""
    version: Json = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name, "labels": {"app.kubernetes.io/part-of": "forebay"}},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "categories": ["forebay"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version | {"schema": {"openAPIV3Schema": object_schema(kind.type, more_rules)}}],
        },
    }


def _column(column: PrinterColumn) -> Json:
    shown = {"name": column.name, "type": str(column.type), "jsonPath": column.path}
    return shown | {"priority": 1} if column.wide else shown


def crd_yaml(document: Json) -> str:
    import yaml  # noqa: PLC0415 (slow to import, and only printing needs it)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (shared parts are written out each time)
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # CEL rules are full of quotes: as a block they need no escapes.
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=">" if "'" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=118, allow_unicode=True)
