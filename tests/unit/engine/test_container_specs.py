"""The container of a record as it is launched: what was recorded, and the secrets that were not."""

import pytest
from msgspec.structs import replace

from forebay.api.instance_order import ContainerRecord
from forebay.engine.apply.container_specs import ContainerNotReady, container_spec
from forebay.model.secret_text import SecretText
from tests.unit.demand.builders import record


def test_a_recorded_container_gets_its_secrets_at_launch_and_none_where_it_has_none():
    made = record()
    ordered = replace(made, spec=replace(made.spec, container=ContainerRecord(image="work:1", command=("run",))))
    key = SecretText("planted")

    spec = container_spec(ordered, {"KEY": key})
    assert (spec.image, spec.command, spec.secret_env) == ("work:1", ("run",), {"KEY": key})
    assert container_spec(ordered).secret_env == {}


def test_a_record_without_a_container_is_refused_with_a_sentence():
    with pytest.raises(ContainerNotReady, match="GPUInstance n1 does not say which container to run"):
        container_spec(record())
