"""The law of input for what users configure: no class, pool or NodeProvisioner that a real API server admits breaks a
tick, or the configuration of providers.
"""

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.codec import decode
from forebay.api.gpu_node_class import GPU_NODE_CLASS
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.node_provisioner import NODE_PROVISIONER
from forebay.engine.sources.configuration import claimed_twice, group_configs, source_configs
from forebay.model.sources import Capabilities, Delivery, Found, Join, ListedGroup, Listing, Source, SourceKey
from forebay.net.redaction import Redactor
from forebay.net.transport import NeverSent
from forebay.providers.plugin import ProviderContext, ProviderNotServed
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.cluster.test_admitted import (
    DISRUPTIONS,
    DOLLARS,
    NOW,
    QUANTITIES,
    SPANS,
    admitted,
    team,  # noqa: F401 (a fixture)
)
from tests.unit.demand.builders import pod
from tests.unit.offload.test_offer_choice import offer

HOME = "forebay-system"
#: Those of the other laws are refused as labels and taints, as a rule.
KEYS = st.sampled_from(["team", "example.com/" + "k" * 63, "example.com/A.b_c"])
TEXTS = st.sampled_from(["", "a", "A.b_c-1", "x" * 63, "9007199254740993"])
EXPRESSIONS = st.builds(
    lambda key, operator, value: {
        "key": key,
        "operator": operator,
        **({"values": [value]} if "In" in operator else {}),
    },
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    TEXTS,
)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(KEYS, TEXTS, max_size=2),
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
    },
)
NUMBERS = st.sampled_from([1, 2, 50, 100, 2**31 - 1])
AMOUNTS = QUANTITIES.filter(lambda text: len(text) <= 32)
SMALL = st.sampled_from([1, 2, 50, 100])
WORDS = st.sampled_from(["us-east-1", "x" * 60, "a b", "\x1b[2J", "ü", "{{.NodeName}}", "$(reboot)"])
URLS = st.sampled_from(
    [
        "http://power.lan/on",
        "https://power.lan/on?x=%41#y",
        "https://[::1]:8443/a",
        "http://user:secret@host/",
        "https://xn--bcher-kva.example/ü",
        "http://host:99999/",
        "http://host:0/",
        "http://host/{{.x}}",
    ]
)
NAMES = st.fixed_dictionaries(
    {"name": st.sampled_from(["s", "a.b"])}, optional={"namespace": st.sampled_from(["infra", "a"])}
)
REFERENCES = st.builds(lambda named, key: {**named, "key": key}, NAMES, st.sampled_from(["k", "..", "A_b-c"]))
TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule"])}, optional={"value": TEXTS}
)
MACHINES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["box", "a.b", "9"]),
        "gpuCount": NUMBERS,
        "scaleUpEndpoint": URLS,
        "scaleDownEndpoint": st.just("http://power.lan/off"),
    },
    optional={
        "statusEndpoint": URLS,
        "timeout": SPANS,
        "bootTimeout": SPANS,
        "gpuType": WORDS,
        "gpuResourceName": st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "cpu", "a/b"]),
        "cpu": AMOUNTS,
        "memory": AMOUNTS,
        "labels": st.dictionaries(KEYS, TEXTS, max_size=2),
        "taints": st.lists(TAINTS, max_size=2),
        "hourlyPrice": DOLLARS,
        "headersSecretRef": NAMES,
        "hmacSecretRef": REFERENCES,
        "tls": st.sampled_from([{"insecureSkipVerify": True}, {"caSecretRef": {"name": "ca", "key": "ca.crt"}}, {}]),
    },
)
OWNED = st.lists(MACHINES, min_size=1, max_size=2, unique_by=lambda each: each["name"]).map(
    lambda machines: {"providers": [{"name": "webhook", "machines": machines}]}
)


def rented(*names):
    """Entries of one of these providers, in a class."""
    given = {"name": st.sampled_from(names), "credentialsRef": REFERENCES}
    more = {"regions": st.lists(WORDS, max_size=2, unique=True), "endpoint": URLS, "priority": SMALL}
    return st.fixed_dictionaries(given, optional=more).map(lambda entry: {"providers": [entry]})


def joined(providers, first_line):
    return st.builds(
        lambda found, word: {**found, "cloudInit": {"template": f"{first_line}\n# {word}"}}, providers, WORDS
    )


#: What may be in a class besides each other: machines of one's own, containers, rented machines that join.
SOURCES = (
    OWNED
    | rented("runpod", "acme")
    | joined(rented("lambdalabs", "gcp", "simulated"), "#cloud-config")
    | joined(rented("paperspace", "crusoe"), "#!/bin/sh")
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "maxNodes": NUMBERS,
        "maxHourlyCost": DOLLARS.filter(lambda value: value is not None),
        "resources": st.dictionaries(st.sampled_from(["nvidia.com/gpu", "cpu"]), AMOUNTS, max_size=2),
    },
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "instanceRequirements": st.fixed_dictionaries(
            {},
            optional={
                "gpuTypes": st.lists(WORDS, max_size=2),
                "regions": st.lists(WORDS, max_size=2),
                "spotAllowed": st.booleans(),
                "minVCPU": NUMBERS,
                "minGPUMemoryGiB": NUMBERS,
            },
        ),
        "limits": LIMITS,
        "allowedNamespaces": SELECTORS,
        "allowedPodNamespaces": SELECTORS,
        "tags": st.dictionaries(TEXTS, TEXTS, max_size=2),
    },
)
CLASSES = st.builds(dict.__or__, SOURCES, REST)
COMPARISONS = st.builds(
    lambda operator, value: {"key": "forebay.dev/gpu-count", "operator": operator, "values": [value]},
    st.sampled_from(["Gt", "Lt"]),
    st.sampled_from(["0", "1", "9007199254740993", "9" * 63]),
)
POOLS = st.fixed_dictionaries(
    {"nodeClassRef": st.just({"name": "odd"})},
    optional={
        "namespaceSelector": SELECTORS,
        "disruption": DISRUPTIONS,
        "limits": LIMITS,
        "minNodes": SMALL,
        "weight": SMALL,
        "maxHourlyPrice": DOLLARS.filter(lambda value: value is not None),
        "template": st.fixed_dictionaries(
            {},
            optional={
                "metadata": st.fixed_dictionaries({"labels": st.dictionaries(KEYS, TEXTS, max_size=2)}),
                "spec": st.fixed_dictionaries(
                    {},
                    optional={
                        "taints": st.lists(TAINTS, max_size=2),
                        "startupTaints": st.lists(TAINTS, max_size=2),
                        "requirements": st.lists(EXPRESSIONS | COMPARISONS, max_size=2),
                    },
                ),
            },
        ),
    },
)
SIZES = st.fixed_dictionaries(
    {"minGPUUtilizationPercent": SMALL},
    optional={
        "maxGPUUtilizationPercent": st.just(100),
        "minUnutilizedGPUNodes": NUMBERS,
        "maxNodes": NUMBERS,
        "scaleDownDelay": SPANS,
        "defragment": st.booleans(),
    },
)
GROUPS = st.fixed_dictionaries(
    {
        "existingInstanceGroupNames": st.lists(WORDS, min_size=1, max_size=2, unique=True),
        "provider": st.fixed_dictionaries(
            {"name": st.just("gcp"), "location": WORDS, "project": WORDS},
            optional={"endpoint": URLS, "credentialsRef": REFERENCES, "runDuration": SPANS},
        )
        | st.fixed_dictionaries({"name": st.just("simulated")}, optional={"endpoint": URLS}),
    },
    optional={"instanceTemplate": WORDS},
)
ONE_BY_ONE = st.fixed_dictionaries(
    {
        "nodeClassRef": st.just({"name": "odd"}),
        "provider": st.fixed_dictionaries(
            {"name": st.sampled_from(["lambdalabs", "simulated", "acme"]), "instanceType": WORDS}
        ),
    },
    optional={
        "labels": st.dictionaries(KEYS, TEXTS, max_size=2),
        "taints": st.lists(TAINTS, max_size=2, unique_by=lambda each: (each["key"], each["effect"])),
    },
)
PROVISIONERS = st.builds(dict.__or__, GROUPS | ONE_BY_ONE, SIZES)


class Unreachable:
    async def request(self, request):
        raise NeverSent("nobody is there", request)

    async def close(self):
        pass


def unread(*_):
    raise AssertionError("nothing is read while providers are built")


CONTEXT = ProviderContext(
    make_transport=lambda _: Unreachable(), secrets=unread, namespace=HOME, cluster="uid", redactor=Redactor()
)


def stored(rig, path, kind, spec, namespace=""):
    metadata = {"name": "odd"} | ({"namespace": namespace} if namespace else {})
    body = {"apiVersion": "forebay.dev/v1alpha1", "kind": kind.kind, "metadata": metadata, "spec": spec}
    found = admitted(rig, f"/apis/forebay.dev/v1alpha1{path}", body)
    event(f"admitted: {found is not None}")
    return None if found is None else decode(kind, json.dumps(found).encode())


def built(configs):
    """Builds all of them, as far as they can be: what cannot is told by its class. Returns their keys."""

    async def build():
        found = []
        for each in configs:
            with suppress(ProviderNotServed):
                await each.build().close()
            found.append(each.key)
        return found

    return asyncio.run(build())


def sources(keys):
    """Sources that have answered, with an offer each."""
    capabilities = Capabilities(deliveries=(Delivery.NODE,), joins=frozenset(Join))
    found = {key: Source(key=key, capabilities=capabilities, offers=(offer(provider=key.provider),)) for key in keys}
    assert all(isinstance(key, SourceKey) for key in found)
    return found


@pytest.mark.law
@given(CLASSES)
def test_no_class_that_is_admitted_breaks_a_tick_or_the_configuration_of_providers(own_rig, spec):
    node_class = stored(own_rig, "/gpunodeclasses", GPU_NODE_CLASS, spec)
    if node_class is None:
        return
    keys = built(source_configs((node_class,), CONTEXT))
    pool = decode(
        GPU_NODE_POOL,
        b'{"metadata": {"name": "p", "namespace": "forebay-system"}, "spec": {"nodeClassRef": {"name": "odd"}}}',
    )

    result = tick(
        Snapshot(
            now=NOW,
            classes=(node_class,),
            pools=(pool,),
            pending=(pod(),),
            sources=sources(keys),
            claimed_twice=claimed_twice((node_class,)),
        )
    )

    assert result.errors == {}


@pytest.mark.law
@given(POOLS)
def test_no_pool_that_is_admitted_breaks_a_tick_that_buys_for_it(own_rig, team, spec):  # noqa: F811 (a fixture)
    pool = stored(own_rig, f"{team}/gpunodepools", GPU_NODE_POOL, spec)
    if pool is None:
        return
    node_class = decode(
        GPU_NODE_CLASS,
        b'{"metadata": {"name": "odd"}, "spec": {"providers": [{"name": "simulated"}], "allowedNamespaces": {},'
        b' "allowedPodNamespaces": {}}}',
    )

    result = tick(
        Snapshot(
            now=NOW,
            classes=(node_class,),
            pools=(pool,),
            pending=(pod(),),
            sources=sources([SourceKey("odd", "simulated")]),
        )
    )

    assert result.errors == {}


@pytest.mark.law
@given(PROVISIONERS)
def test_no_provisioner_that_is_admitted_breaks_a_tick_or_the_configuration_of_providers(own_rig, spec):
    provisioner = stored(own_rig, "/nodeprovisioners", NODE_PROVISIONER, spec)
    if provisioner is None:
        return
    keys = built(group_configs((provisioner,), CONTEXT))
    groups = tuple(
        ListedGroup(name=name, target=0, offer=offer()) for name in provisioner.spec.existing_instance_group_names
    )
    listing = Listing(asked=NOW, found=Found(groups=groups))
    listed = {key: replace(each, listing=listing) for key, each in sources(keys).items()}
    for known in (sources(keys), listed):
        result = tick(Snapshot(now=NOW, provisioners=(provisioner,), pending=(pod(),), sources=known))

        assert result.errors == {}
