"""The instance that a launch asks for, as Compute Engine's JSON."""

import re
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from forebay.providers.base import BootKind, LaunchRequest, Rejected
from forebay.providers.gcp.machines import Ordered, ordered
from forebay.providers.gcp.offers import BOOT_DISK_GB

#: Labels that hold the identity.
CLUSTER_LABEL: Final = "forebay-cluster"
OWNER_LABEL: Final = "forebay-instance"
REQUEST_NAMESPACE: Final = uuid5(NAMESPACE_URL, "forebay.dev/gcp")
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9_-]")
_MOST_LABELS: Final = 64
_LONGEST_LABEL: Final = 63
#: Google's bounds of maxRunDuration, in seconds.
_SHORTEST_RUN: Final = 30
_LONGEST_RUN: Final = 120 * 24 * 3600
_UBUNTU: Final = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-"


def label_text(text: str) -> str:
    """The text as Google's labels allow it: lower case, digits, dashes and underscores."""
    return _NOT_IN_LABEL.sub("-", text.lower())[:_LONGEST_LABEL]


def request_id(request: LaunchRequest) -> str:
    """Id under which Google does a request once only. Each attempt has its own: a failed one would stay failed."""
    return str(uuid5(REQUEST_NAMESPACE, f"{request.cluster}/{request.uid}/{request.attempt}"))


def instance_name(request: LaunchRequest) -> str:
    """Name of the instance, which is also its host name: that of its node, where Google allows it."""
    wanted = request.node_name or request.name
    if _NAME.fullmatch(wanted):
        return wanted
    plain = re.sub(r"[^a-z0-9-]", "-", wanted.lower())
    return f"n-{plain}"[:_LONGEST_LABEL].rstrip("-")


def instance_body(request: LaunchRequest, project: str) -> dict[str, Any]:
    """The body of the insert. Raises `Rejected` where the class asks for what Google cannot boot."""
    offer, what = request.offer, ordered(request.offer.instance_type)
    zone = f"zones/{offer.zone}"
    labels = _labels(request)
    body: dict[str, Any] = {
        "name": instance_name(request),
        "description": f"Rented by Forebay for GPUInstance {request.name}.",
        "machineType": f"{zone}/machineTypes/{what.machine_type}",
        "labels": labels,
        "disks": [
            {
                "boot": True,
                # Nothing may be left of the machine.
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": _image(request, project),
                    "diskSizeGb": str(BOOT_DISK_GB),
                    "diskType": f"{zone}/diskTypes/{what.disk_type}",
                    "labels": labels,
                },
            }
        ],
        "networkInterfaces": [
            {
                "network": "global/networks/default",
                # An ephemeral address: it ends with the instance.
                "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
            }
        ],
        "scheduling": _scheduling(request),
    }
    if request.boot is not None:
        key = "startup-script" if request.boot.kind is BootKind.SCRIPT else "user-data"
        body["metadata"] = {"items": [{"key": key, "value": request.boot.text.reveal()}]}
    if what.accelerator is not None:
        body["guestAccelerators"] = [_attached(what, zone)]
    return body


def _attached(what: Ordered, zone: str) -> dict[str, Any]:
    kind, count = what.accelerator or ("", 0)
    return {"acceleratorType": f"{zone}/acceleratorTypes/{kind}", "acceleratorCount": count}


def _scheduling(request: LaunchRequest) -> dict[str, Any]:
    scheduling: dict[str, Any] = {
        "provisioningModel": "SPOT" if request.offer.spot else "STANDARD",
        # Machines with GPUs cannot be moved, and one that failed is replaced by Forebay.
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }
    if request.max_run_time is not None:
        seconds = min(max(int(request.max_run_time.total_seconds()), _SHORTEST_RUN), _LONGEST_RUN)
        scheduling["maxRunDuration"] = {"seconds": str(seconds)}
    if request.offer.spot or request.max_run_time is not None:
        # Deleted, not stopped: the disk of a stopped machine is billed.
        scheduling["instanceTerminationAction"] = "DELETE"
    return scheduling


def _labels(request: LaunchRequest) -> dict[str, str]:
    own = {CLUSTER_LABEL: label_text(request.cluster), OWNER_LABEL: label_text(request.uid)}
    tags = {_label_key(key): label_text(value) for key, value in sorted(request.tags.items())}
    room = _MOST_LABELS - len(own)
    return dict([*tags.items()][:room]) | own


def _label_key(key: str) -> str:
    text = label_text(key)
    return text if text[:1].isalpha() else f"t-{text}"[:_LONGEST_LABEL]


def _image(request: LaunchRequest, project: str) -> str:
    image = request.image
    if image is None:
        if request.boot is not None and request.boot.kind is BootKind.TALOS:
            raise Rejected(
                "Google has no public Talos image. Upload one to the project (talos.dev: Platforms, GCP) and set "
                "talosConfig.image to its name."
            )
        arm = request.offer.labels.get("kubernetes.io/arch") == "arm64"
        return f"{_UBUNTU}{'arm64' if arm else 'amd64'}"
    if image.startswith("projects/"):
        return image
    if _NAME.fullmatch(image):
        return f"projects/{project}/global/images/{image}"
    if image.startswith("family/") and _NAME.fullmatch(image.removeprefix("family/")):
        return f"projects/{project}/global/images/{image}"
    raise Rejected(
        f'The image "{image}" is none of Google\'s. Name one of the project, family/NAME, or '
        "projects/PROJECT/global/images/NAME."
    )
