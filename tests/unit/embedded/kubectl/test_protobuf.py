"""Protobuf bodies as kubectl sends them, and the refusal of unsupported ones."""

import pytest

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.kubectl import protobuf


def field(number, content):
    """A length-delimited field, shorter than 128 bytes."""
    content = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(content)]) + content


def flag(number, value):
    return bytes([number << 3, value])


def envelope(api_version, kind, raw):
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


def entry(key, value):
    return field(1, key) + field(2, value)


def test_a_config_map_as_kubectl_creates_it():
    # Go writes empty strings and generation 0, which mean that the field is not set.
    meta = field(1, "c") + field(2, "") + field(3, "team") + flag(7, 0) + field(8, b"") + field(11, entry("a", "b"))

    found = protobuf.decode_protobuf(envelope("v1", "ConfigMap", field(1, meta) + field(2, entry("k", "v"))))

    assert found == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "team", "labels": {"a": "b"}},
        "data": {"k": "v"},
    }


def test_bytes_become_base64_and_int_or_string_either():
    secret = protobuf.decode_protobuf(envelope("v1", "Secret", field(2, entry("k", b"\x00\x01"))))
    assert secret["data"] == {"k": "AAE="}

    percent = field(2, field(3, flag(1, 1) + flag(2, 0) + field(3, "30%")))
    assert protobuf.decode_protobuf(envelope("policy/v1", "PodDisruptionBudget", percent))["spec"] == {
        "maxUnavailable": "30%"
    }
    number = field(2, field(1, flag(1, 0) + flag(2, 2) + field(3, "")))
    assert protobuf.decode_protobuf(envelope("policy/v1", "PodDisruptionBudget", number))["spec"] == {"minAvailable": 2}


def test_the_zero_value_of_a_pointer_is_kept():
    found = protobuf.decode_protobuf(envelope("batch/v1", "Job", field(2, flag(1, 0) + flag(10, 0))))

    assert found["spec"] == {"parallelism": 0, "suspend": False}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}", "has no Kubernetes protobuf header"),
        (envelope("v1", "Endpoints", b""), "kind Endpoints is not supported"),
        (envelope("v1", "ConfigMap", field(9, "")), "field 9 of ConfigMap"),
        (envelope("v1", "ConfigMap", b"\x0a\x7f"), "damaged"),
        (b"k8s\x00\xff", "damaged"),
        (b"k8s\x00", "damaged"),
    ],
)
def test_an_unsupported_body_is_refused_with_a_way_out(content, why):
    with pytest.raises(ApiFailure) as refused:
        protobuf.decode_protobuf(content)

    assert refused.value.code == 415
    assert why in refused.value.message
    assert "kubectl create -f -" in refused.value.message
