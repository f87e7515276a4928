"""The CustomResourceDefinitions of Forebay's kinds, with the rules about the providers that Forebay knows."""

from typing import Any

from forebay.api.crd import crd_yaml, custom_resource_definition
from forebay.api.kinds import KINDS
from forebay.providers.admission import provider_rules


def custom_resource_definitions() -> list[dict[str, Any]]:
    rules = provider_rules()
    return [custom_resource_definition(kind, rules) for kind in KINDS]


def crds_yaml() -> str:
    """All CRDs as one YAML stream, ready for `kubectl apply -f -`."""
    return "---\n".join(map(crd_yaml, custom_resource_definitions()))
