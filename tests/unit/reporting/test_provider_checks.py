"""`forebay providers`: what the conditions of classes say about each provider."""

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.parts import Truth
from forebay.reporting.provider_checks import provider_checks


def node_class(*providers, generation=2, conditions=()):
    fields = {
        "metadata": {"name": "gpu", "generation": generation},
        "spec": {"providers": [{"name": name, "enabled": enabled} for name, enabled in providers]},
        "status": {"conditions": list(conditions)},
    }
    return msgspec.convert(fields, GPUNodeClass)


def condition(provider, status, generation=2):
    return {
        "type": f"{provider.capitalize()}Ready",
        "status": status,
        "reason": "Checked",
        "message": "It answered.",
        "lastTransitionTime": "2026-05-04T12:00:00Z",
        "observedGeneration": generation,
    }


def test_a_provider_is_as_its_class_says_for_this_generation():
    found = provider_checks(
        [
            node_class(
                ("lambda", True),
                ("runpod", True),
                ("vast", True),
                conditions=[condition("lambda", "True"), condition("runpod", "False"), condition("vast", "True", 1)],
            )
        ]
    )

    assert [(each.provider, each.ready, each.passed) for each in found] == [
        ("lambda", Truth.TRUE, True),
        ("runpod", Truth.FALSE, False),
        ("vast", Truth.UNKNOWN, False),
    ]
    assert found[2].message.startswith("The operator has not checked it yet.")


def test_a_provider_that_its_class_disables_is_not_checked_and_is_no_failure():
    (found,) = provider_checks([node_class(("lambda", False), conditions=[condition("lambda", "False")])])

    assert (found.enabled, found.ready, found.passed, found.message) == (
        False,
        Truth.UNKNOWN,
        True,
        "Disabled in the class.",
    )
