"""Ownership of a machine that several classes name."""

from datetime import UTC, datetime

import msgspec
import pytest

from forebay.api.gpu_node_class import EndpointsFrom, GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.machines import Machine
from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.engine.sources.configuration import claimed_twice, group_configs, source_configs
from forebay.engine.sources.environment import EnvironmentClasses
from forebay.model.sources import Delivery, SourceKey
from forebay.net.redaction import Redactor
from forebay.providers.plugin import ProviderContext, ProviderNotServed


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


def test_the_class_that_forebay_keeps_is_seen_from_outside_and_no_other_may_call_by_the_environment():
    entry = ProviderEntry(name="webhook", machines=(machine("box"),), endpoints_from=EndpointsFrom.ENVIRONMENT)
    kept = GPUNodeClass(
        metadata=ObjectMeta(name="copied", creation_timestamp=datetime(2026, 3, 1, tzinfo=UTC)),
        spec=GPUNodeClassSpec(providers=(entry,)),
    )
    context = ProviderContext(
        make_transport=lambda _: None,
        secrets=None,
        namespace="forebay-system",
        cluster="c",
        redactor=Redactor(),
        clock=lambda: datetime(2026, 3, 2, tzinfo=UTC),
    )
    (seen,) = source_configs([kept], context, None)
    assert seen.build().capabilities().deliveries == (Delivery.POWER,), "a command has no environment of the operator's"
    (misplaced,) = source_configs([kept], context, EnvironmentClasses(entries={}))
    with pytest.raises(ProviderNotServed, match="endpointsFrom: Environment"):
        misplaced.build()


def test_of_two_classes_of_one_age_the_first_by_name_owns_a_machine():
    assert sources([node_class("b", machine("box")), node_class("a", machine("box"))]) == ["a"]


def provisioner(name, *groups, day=1):
    spec = NodeProvisionerSpec(
        existing_instance_group_names=groups, min_unutilized_gpu_nodes=1, provider=GroupProvider(name="simulated")
    )
    meta = ObjectMeta(name=name, creation_timestamp=datetime(2026, 3, day, tzinfo=UTC))
    return NodeProvisioner(metadata=meta, spec=spec)


def test_the_groups_of_each_provisioner_are_a_source_unless_an_older_one_names_them():
    context = ProviderContext(
        make_transport=lambda _: None, secrets=None, namespace="forebay", cluster="uid", redactor=Redactor()
    )
    old, new = provisioner("old", "a", "b"), provisioner("new", "b", "c", day=2)
    late = provisioner("late", "c", day=3)

    found = list(group_configs([late, new, old], context))

    assert [(each.key.node_class, each.enabled, each.priority) for each in found] == [
        (SourceKey.of_provisioner(name, "simulated").node_class, True, 0) for name in ("new", "old")
    ]
    assert len({each.digest for each in found}) == 2


async def test_a_class_with_a_template_that_is_wrong_has_a_source_without_launches_until_it_is_corrected():
    # Its machines must be listed and terminated all the same: they are billed.
    def rented(template):
        spec = {
            "providers": [{"name": "lambdalabs", "credentialsRef": {"name": "key", "key": "token"}}],
            "cloudInit": {"template": template},
        }
        return GPUNodeClass(metadata=ObjectMeta(name="rented"), spec=msgspec.convert(spec, GPUNodeClassSpec))

    context = ProviderContext(
        secrets=None,
        make_transport=lambda _tls: None,
        clock=lambda: datetime(2026, 3, 1, tzinfo=UTC),
        namespace="forebay",
        cluster="c-1",
        redactor=Redactor(),
    )
    (wrong,) = source_configs([rented("#cloud-config\nhostname: {{.Nodename}}")], context)
    assert wrong.build().capabilities().needs_join
    assert "The template uses Nodename, which has no value here" in wrong.problem
    (right,) = source_configs([rented("#cloud-config\nhostname: {{.NodeName}}")], context)
    assert (right.problem, right.digest == wrong.digest) == (None, True)
