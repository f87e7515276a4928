import msgspec
import pytest

from forebay.api.crd import crd_yaml
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.kinds import KINDS
from forebay.api.parts import Part
from forebay.api.schema import NoSchema, object_schema
from forebay.install.crds import custom_resource_definitions
from tests.unit.api.structural import faults

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}


def version(kind):
    return CRDS[kind]["spec"]["versions"][0]


def schema(kind):
    return version(kind)["schema"]["openAPIV3Schema"]


def paths(node, path=""):
    for name, inner in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, inner
        below = inner
        while "items" in below or "additionalProperties" in below:
            below = below.get("items") or below["additionalProperties"]
        yield from paths(below, here)


@pytest.mark.parametrize("kind", CRDS)
def test_schemas_are_structural(kind):
    assert list(faults(schema(kind))) == []


def test_the_structural_check_finds_violations():
    wrong = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "string", "default": "x"}, "c": {"$ref": "#/d"}, "e": {"type": "array"}},
    }
    assert len(list(faults(wrong))) == 5


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_is_explained(kind):
    unexplained = [path for path, field in paths(schema(kind)) if not field.get("description") and path != "metadata"]
    assert unexplained == []
    assert schema(kind)["description"].startswith(("A ", "An "))


@pytest.mark.parametrize("kind", CRDS)
def test_every_list_map_and_text_that_users_write_is_bounded(kind):
    """Bounds are what lets the API server estimate the cost of the rules."""
    bounds = {"array": "maxItems", "string": "maxLength"}
    unbounded = [
        path
        for path, field in paths(schema(kind)["properties"]["spec"])
        if field.get("type") in bounds and bounds[field["type"]] not in field and "enum" not in field
    ]
    assert unbounded == []


def test_kinds_names_and_scopes():
    named = {
        crd["metadata"]["name"]: (crd["spec"]["scope"], crd["spec"]["names"]["shortNames"]) for crd in CRDS.values()
    }
    assert named == {
        "gpunodeclasses.forebay.dev": ("Cluster", ["gnc"]),
        "gpunodepools.forebay.dev": ("Namespaced", ["gnp"]),
        "nodeprovisioners.forebay.dev": ("Cluster", ["np"]),
        "gpuworkloadbudgets.forebay.dev": ("Namespaced", ["gwb", "gwbs"]),
        "gpuinstances.forebay.dev": ("Cluster", ["gi"]),
    }


@pytest.mark.parametrize("kind", CRDS)
def test_every_kind_reports_conditions_and_the_generation_it_acted_on(kind):
    assert version(kind)["subresources"] == {"status": {}}
    status = schema(kind)["properties"]["status"]["properties"]
    assert status["observedGeneration"]["format"] == "int64"
    assert status["conditions"]["x-kubernetes-list-type"] == "map"
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("kind", CRDS)
def test_columns_and_selectable_fields_point_at_fields(kind):
    known = {f".{path}" for path, _ in paths(schema(kind))} | {".metadata.creationTimestamp"}
    columns = [column["jsonPath"] for column in version(kind)["additionalPrinterColumns"]]
    selectable = [entry["jsonPath"] for entry in version(kind).get("selectableFields", [])]
    for path in columns + selectable:
        plain = path.replace('[?(@.type=="Ready")]', "").replace('[?(@.type=="QuotaExceeded")]', "").replace("[0]", "")
        assert plain.removesuffix(r".nvidia\.com/gpu") in known, path


def test_budgets_keep_the_columns_of_their_predecessor():
    columns = version("GPUWorkloadBudget")["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Consumed", "Remaining", "Window", "Action", "Pods", "Age"]


PREDECESSORS = {
    "GPUNodeClass": """spec.providers.name spec.providers.priority spec.providers.enabled spec.providers.regions
        spec.providers.credentialsRef.name spec.providers.credentialsRef.key spec.providers.credentialsRef.namespace
        spec.talosConfig.image spec.talosConfig.machineConfigTemplate spec.talosConfig.kubeletImage
        spec.tailscaleConfig.hostname spec.tailscaleConfig.tags spec.tailscaleConfig.ephemeral
        spec.tailscaleConfig.acceptRoutes spec.tailscaleConfig.advertiseRoutes spec.tailscaleConfig.controlURL
        spec.tailscaleConfig.oauthCredentialsSecretRef.name spec.tailscaleConfig.oauthCredentialsSecretRef.namespace
        spec.tailscaleConfig.oauthCredentialsSecretRef.clientIdKey
        spec.tailscaleConfig.oauthCredentialsSecretRef.clientSecretKey
        spec.instanceRequirements.gpuTypes spec.instanceRequirements.regions spec.instanceRequirements.spotAllowed
        spec.instanceRequirements.minVCPU spec.instanceRequirements.minMemoryGiB
        spec.instanceRequirements.minGPUMemoryGiB spec.limits.maxNodes spec.limits.maxHourlyCost
        spec.limits.resources spec.tags status.activeNodes status.providers status.availableGPUs
        status.lastInventoryUpdate status.nextInventoryUpdate
        spec.providers.machines.name spec.providers.machines.gpuCount
        spec.providers.machines.scaleUpEndpoint spec.providers.machines.scaleDownEndpoint""",
    "GPUNodePool": """spec.nodeClassRef.group spec.nodeClassRef.kind spec.nodeClassRef.name
        spec.template.metadata.labels spec.template.metadata.annotations spec.template.spec.requirements.key
        spec.template.spec.requirements.operator spec.template.spec.requirements.values spec.template.spec.taints
        spec.template.spec.startupTaints spec.disruption.consolidationPolicy spec.disruption.consolidateAfter
        spec.disruption.expireAfter spec.limits.resources spec.maxHourlyPrice spec.weight
        status.resources status.nodeCount""",
    "GPUWorkloadBudget": """spec.selector.matchLabels spec.selector.matchExpressions spec.quota.gpuHours
        spec.quota.windowHours spec.enforcement.action spec.enforcement.gracePeriodSeconds spec.gpuResourceName
        status.consumedGpuHours status.remainingGpuHours status.trackedPods status.lastEnforcementAt""",
    "NodeProvisioner": """spec.existingInstanceGroupNames spec.minGPUUtilizationPercent spec.minUnutilizedGPUNodes
        spec.scaleDownDelay status.currentSize status.targetSize""",
}


@pytest.mark.parametrize("kind", PREDECESSORS)
def test_users_of_the_predecessors_find_their_fields(kind):
    known = {path for path, _ in paths(schema(kind))}
    assert set(PREDECESSORS[kind].split()) - known == set()


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("GPUNodePool", "spec.maxHourlyPrice", 10),
        ("GPUNodePool", "spec.weight", 10),
        ("GPUWorkloadBudget", "spec.enforcement.gracePeriodSeconds", 30),
        ("GPUWorkloadBudget", "spec.gpuResourceName", "nvidia.com/gpu"),
        ("GPUWorkloadBudget", "spec.accounting", "Observed"),
        ("GPUNodeClass", "spec.providers.machines.timeout", "5s"),
    ],
)
def test_defaults_users_rely_on(kind, path, value):
    assert dict(paths(schema(kind)))[path]["default"] == value


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("GPUInstance", "spec"),
        ("GPUWorkloadBudget", "spec.gpuResourceName"),
        ("NodeProvisioner", "spec.provider.name"),
    ],
)
def test_immutable_fields(kind, path):
    rules = dict(paths(schema(kind)))[path]["x-kubernetes-validations"]
    assert "self == oldSelf" in [rule["rule"] for rule in rules]


def test_states_of_an_instance_are_those_of_the_design():
    states = dict(paths(object_schema(GPU_INSTANCE.type)))["status.state"]["enum"]
    machine = ["Requested", "Launching", "Launched", "Joined", "Ready", "Draining", "Terminating", "Gone"]
    assert sorted(states) == sorted([*machine, "Running", "Finished"])


def test_raw_json_keeps_unknown_fields():
    class Free(Part, frozen=True, kw_only=True):
        """Anything."""

        anything: msgspec.Raw

    assert object_schema(Free)["properties"]["anything"]["x-kubernetes-preserve-unknown-fields"] is True


@pytest.mark.parametrize("unfit", [float, int | list[str], set[str]])
def test_types_without_a_structural_schema_are_refused(unfit):
    Odd = msgspec.defstruct("Odd", [("value", unfit)], module="tests")  # noqa: N806 (a class)
    with pytest.raises(NoSchema):
        object_schema(Odd)


def test_every_kind_has_its_own_name():
    assert len({kind.plural for kind in KINDS}) == len(KINDS) == 5


class _Inner(Part, frozen=True, kw_only=True):
    size: int = 3


class _Deep(Part, frozen=True, kw_only=True):
    inner: _Inner = _Inner()


class _Plain(Part, frozen=True, kw_only=True):
    size: int | None = None


class _Outer(Part, frozen=True, kw_only=True):
    name: str
    inner: _Inner = _Inner()
    deep: _Deep = _Deep()
    plain: _Plain = _Plain()
    text: str = ""
    count: int = 0


def test_an_empty_default_is_stored_only_where_defaults_inside_depend_on_it():
    """The API server fills in defaults only inside objects that are there."""
    fields = object_schema(_Outer)["properties"]
    assert {name for name, field in fields.items() if "default" in field} == {"inner", "deep", "count"}
    assert fields["deep"]["default"] == {}
    assert fields["inner"]["properties"]["size"]["default"] == 3


class _Made(Part, frozen=True, kw_only=True):
    bare: str
    last: list[str] = msgspec.field(default_factory=lambda: ["a"])


def test_a_field_has_the_default_that_its_factory_makes():
    fields = object_schema(_Made)["properties"]
    assert fields["last"]["default"] == ["a"]
    assert "default" not in fields["bare"]


def test_a_printed_definition_is_readable_beyond_ascii():
    assert crd_yaml({"description": "from 1 … to 2"}) == "description: from 1 … to 2\n"
