"""Renders the chart with `helm`, as users do."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests import needs

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/forebay"

#: As in the predecessor's README.
PREDECESSORS_VALUES: dict[str, Any] = {
    "image": {"repository": "registry.example.com/forebay", "tag": "latest"},
    "nodeGroups": [
        {
            "name": "gpu-worker-1",
            "gpuCount": 4,
            "scaleUpEndpoint": "http://power-api/gpu-worker-1/start",
            "scaleDownEndpoint": "http://power-api/gpu-worker-1/stop",
        },
        {
            "name": "gpu-worker-2",
            "gpuCount": 8,
            "scaleUpEndpoint": "http://power-api/gpu-worker-2/start",
            "scaleDownEndpoint": "http://power-api/gpu-worker-2/stop",
        },
    ],
}

#: Without a cluster, helm assumes a version of its own.
KUBE_VERSION = ("--kube-version", "1.34.0")


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    program = needs.helm()
    assert program is not None
    given = [] if values is None else ["--values", "-"]
    # Helm must not read the configuration of the machine's user.
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        [program, *arguments, *given],
        input=None if values is None else json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )


def rendered(
    values: dict[str, Any] | None = None,
    *,
    release: str = "forebay",
    namespace: str = "forebay-system",
    serves: str | None = None,
    hooks: bool = False,
) -> list[dict[str, Any]]:
    """Manifests of an installation; with `hooks`, those that exist only during uninstallation. `serves` is a kind that
    the cluster serves beyond those Helm assumes.
    """
    known = () if serves is None else ("--api-versions", serves)
    answer = helm("template", release, str(CHART), *KUBE_VERSION, "--namespace", namespace, *known, values=values or {})
    assert answer.returncode == 0, answer.stderr
    found = [each for each in yaml.safe_load_all(answer.stdout) if each is not None]
    return [each for each in found if ("helm.sh/hook" in each["metadata"].get("annotations", {})) is hooks]


def refusal(values: dict[str, Any]) -> str:
    answer = helm("template", "forebay", str(CHART), *KUBE_VERSION, values=values)
    assert answer.returncode != 0, "Helm accepted these values"
    return answer.stderr


def the(kind: str, manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """The one of this kind that is not about joining machines, or about readers of pages and objects."""
    found = [each for each in manifests if each["kind"] == kind]
    others = ("-join", "-bootstrap", "-kubeadm", "-reader", "-view")
    (only,) = (each for each in found if not each["metadata"]["name"].endswith(others))
    return only


def pod(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment", manifests)["spec"]["template"]["spec"]
    return spec


def environment(manifests: list[dict[str, Any]]) -> dict[str, str]:
    (container,) = pod(manifests)["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def machine(name: str, **fields: Any) -> dict[str, Any]:
    endpoints = {"scaleUpEndpoint": f"http://power/{name}/on", "scaleDownEndpoint": f"http://power/{name}/off"}
    return {"name": name, "gpuCount": 1, **endpoints, **fields}
