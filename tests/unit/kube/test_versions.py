"""Which versions of Kubernetes are supported, in a sentence."""

import pytest

from forebay.kube.versions import NEWEST_TESTED, OLDEST_SUPPORTED, minor_version, unsupported_text
from tests.rig.binaries import CONTROL_PLANES


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.36", (1, 36)),
        ("v1.36.4", (1, 36)),
        ("v1.34.1-gke.1029000", (1, 34)),
        ("v1.35.4+k3s1", (1, 35)),
        ("v1.36+", (1, 36)),
        ("v0.0.0-master+$Format:%H$", (0, 0)),
        ("", None),
        ("latest", None),
        ("1", None),
        ("v1.x", None),
    ],
)
def test_versions_are_read_as_vendors_write_them(text, version):
    assert minor_version(text) == version


@pytest.mark.parametrize("version", ["v1.34.0", "v1.35.4+k3s1", "v1.36.4"])
def test_supported_versions_need_no_sentence(version):
    assert unsupported_text(version) is None


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("v1.33.13", "Kubernetes v1.33.13 is too old: Forebay needs 1.34 or later. Upgrade the cluster."),
        (
            "v1.37.0",
            (
                "Kubernetes v1.37.0 is newer than what this Forebay is tested with (Kubernetes 1.34 to 1.36): look for "
                "a newer Forebay."
            ),
        ),
        (
            "?",
            "The API server reports no version that can be read ('?'); Forebay is tested with Kubernetes 1.34 to 1.36.",
        ),
    ],
)
def test_other_versions_are_told_in_one_sentence(version, sentence):
    assert unsupported_text(version) == sentence


def test_what_is_supported_is_what_the_tests_run_against():
    tested = sorted(minor_version(each) for each in CONTROL_PLANES)
    assert (tested[0], tested[-1]) == (OLDEST_SUPPORTED, NEWEST_TESTED)
