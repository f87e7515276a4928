"""Ownership of a machine that several classes name."""

from datetime import UTC, datetime

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.machines import Machine
from forebay.api.meta import ObjectMeta
from forebay.engine.sources.configuration import claimed_twice, source_configs
from forebay.engine.sources.environment import EnvironmentClasses


def machine(name):
    return Machine(name=name, gpu_count=1, scale_up_endpoint="http://p/on", scale_down_endpoint="http://p/off")


def node_class(name, *machines, day=1):
    return GPUNodeClass(
        metadata=ObjectMeta(name=name, creation_timestamp=datetime(2026, 3, day, tzinfo=UTC)),
        spec=GPUNodeClassSpec(providers=(ProviderEntry(name="webhook", machines=machines),)),
    )


def sources(classes, environment=None):
    return [each.key.node_class for each in source_configs(classes, None, environment)]


def test_a_machine_stays_with_the_oldest_class_that_names_it():
    old, new = node_class("old", machine("box")), node_class("a-new-one", machine("box"), day=2)
    assert sources([new, old]) == ["old"]
    assert claimed_twice([new, old]) == {"a-new-one": {"box": "GPUNodeClass old"}}


def test_a_class_keeps_the_machines_that_only_it_names():
    old, new = node_class("old", machine("box")), node_class("new", machine("box"), machine("other"), day=2)
    assert sources([new, old]) == ["old", "new"]


def test_the_environment_owns_a_machine_before_any_class():
    old, own = node_class("old", machine("box")), node_class("environment", machine("box"), day=9)
    environment = EnvironmentClasses(entries={"environment": own.spec.providers})
    assert sources([old, own], environment) == ["environment"]
    assert claimed_twice([old, own], environment) == {"old": {"box": "the operator's environment variables"}}


def test_of_two_classes_of_one_age_the_first_by_name_owns_a_machine():
    assert sources([node_class("b", machine("box")), node_class("a", machine("box"))]) == ["a"]
