"""Where the programs are, and which versions we build when they are nowhere."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"

#: The Go module of the control plane that tests run against, and of the oldest minor that Forebay supports.
CONTROL_PLANES: Mapping[str, str] = {"1.36": "control-plane", "1.34": "control-plane-1.34"}
NEWEST, OLDEST = "1.36", "1.34"

#: Program -> (the Go module that pins it, the package to build, the module whose version it reports).
PROGRAMS: Mapping[str, tuple[str, str, str]] = {
    "etcd": ("control-plane", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("control-plane", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes"),
    "kube-controller-manager": ("control-plane", "k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes"),
    "kube-scheduler": ("control-plane", "k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes"),
    "kubectl": ("control-plane", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"),
}
#: Programs of others that machines join with, for `make parts`; the control plane needs none of them.
PARTS: Mapping[str, tuple[str, str, str]] = {
    "talosval": ("talos", ".", "github.com/siderolabs/talos/pkg/machinery"),
    "kubeadm": ("control-plane", "k8s.io/kubernetes/cmd/kubeadm", "k8s.io/kubernetes"),
    "tailscaled": ("tailscale", "tailscale.com/cmd/tailscaled", "tailscale.com"),
    "tailscale": ("tailscale", "tailscale.com/cmd/tailscale", "tailscale.com"),
    "headscale": ("headscale", "github.com/juanfont/headscale/cmd/headscale", "github.com/juanfont/headscale"),
}
ALL: Mapping[str, tuple[str, str, str]] = {**PROGRAMS, **PARTS}

HOW_TO_GET = (
    "run `make rig` (about 9 minutes, once), "
    "or set KUBEBUILDER_ASSETS or FOREBAY_RIG_BIN to a directory that has its programs"
)


class RigMissing(Exception):
    """A program of the control plane is nowhere to be found. The message says how to get it."""


def minor() -> str:
    """The minor of Kubernetes that this run is about: FOREBAY_RIG_KUBERNETES, else the newest."""
    chosen = os.environ.get("FOREBAY_RIG_KUBERNETES") or NEWEST
    if chosen not in CONTROL_PLANES:
        raise ValueError(f"FOREBAY_RIG_KUBERNETES is {chosen!r}; there is a rig for {', '.join(CONTROL_PLANES)}")
    return chosen


def policies_version() -> str:
    """Version of MutatingAdmissionPolicies that the server serves, with `policies_flags`."""
    return "v1" if minor() == NEWEST else "v1beta1"


def policies_flags() -> list[str]:
    """Flags with which the API server serves MutatingAdmissionPolicies: before 1.36 nobody gets them without."""
    beta = [
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    ]
    return [] if minor() == NEWEST else beta


def go_module(program: str) -> Path:
    """The directory of the Go module that pins the program."""
    directory = ALL[program][0]
    return GO_MODULES / (CONTROL_PLANES[minor()] if directory == "control-plane" else directory)


def pinned_version(program: str) -> str:
    """The version that our `go.mod` pins, as its module spells it (`v1.36.4`)."""
    module = ALL[program][2]
    text = (go_module(program) / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{go_module(program).name}/go.mod does not pin {module}")
    return found[1]


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "forebay" / "rig"


def cache_directory(program: str = "etcd") -> Path:
    """The cache of exactly the pinned versions: a bumped pin never meets an old binary."""
    if program in PARTS:
        return cache_root() / f"{program}-{pinned_version(program)}"
    versions = {name: pinned_version(name) for name in ("kube-apiserver", "etcd", "kwok")}
    return cache_root() / f"{versions['kube-apiserver']}-etcd-{versions['etcd']}-kwok-{versions['kwok']}"


def given_directories() -> list[Path]:
    """What the user pointed at, before our own cache."""
    return [Path(os.environ[name]) for name in ("FOREBAY_RIG_BIN", "KUBEBUILDER_ASSETS") if os.environ.get(name)]


def find(program: str) -> Path | None:
    # One by one: an envtest directory (KUBEBUILDER_ASSETS) has no scheduler and no controller-manager.
    for directory in [*given_directories(), cache_directory(program)]:
        path = directory / program
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def locate(*programs: str) -> dict[str, Path]:
    """The paths of all `programs`; `RigMissing` names those that are not there."""
    found = {program: find(program) for program in programs}
    missing = [program for program, path in found.items() if path is None]
    if missing:
        raise RigMissing(f"the control plane lacks {', '.join(missing)}: {HOW_TO_GET}")
    return {program: path for program, path in found.items() if path is not None}
