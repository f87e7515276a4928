"""Names that hold the identity of a machine, and the order of one, as Crusoe's JSON. There are no tags."""

import hashlib
import re
from typing import Any, Final

from forebay.providers.base import LaunchRequest, Rejected

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SCRIPT: Final = "#!"


def name_prefix(cluster: str) -> str:
    """What the names of all machines of this cluster begin with."""
    return f"forebay-{hashlib.sha256(cluster.encode()).hexdigest()[:10]}-"


def vm_name(request: LaunchRequest) -> str:
    return f"{name_prefix(request.cluster)}{request.uid}"


def owner_of(name: str, cluster: str) -> str | None:
    """UID of the record that a machine's name holds."""
    owner = name.removeprefix(name_prefix(cluster))
    return owner if owner and owner != name else None


def order(request: LaunchRequest, ssh_public_key: str) -> dict[str, Any]:
    """The body of the request. Raises `Rejected` for a boot payload that Crusoe would not run."""
    offer = request.offer
    body: dict[str, Any] = {
        "name": vm_name(request),
        "type": offer.instance_type,
        "location": offer.zone or offer.region or "",
        "ssh_public_key": ssh_public_key,
        # A reservation is the user's own, and not Forebay's to use up.
        "reservation_specification": {"selection_strategy": "on_demand"},
    }
    if request.image is not None and _UUID.fullmatch(request.image):
        body["custom_image"] = request.image
    else:
        body["image"] = request.image or _usual_image(request)
    if request.boot is not None:
        script = request.boot.text.reveal()
        if not script.startswith(_SCRIPT):
            raise Rejected(
                'Crusoe runs startup scripts and reads no cloud-init config. Begin the template with "#!/bin/sh", or '
                "use k3sConfig or kubeadmConfig."
            )
        body["startup_script"] = script
    return body


def _usual_image(request: LaunchRequest) -> str:
    """Crusoe's images with a GPU driver: one for each kind of machine."""
    if request.offer.gpu_resource.startswith("amd."):
        return "ubuntu-rocm:latest"
    kind = "sxm" if "sxm" in request.offer.instance_type else "pcie"
    return f"ubuntu22.04-nvidia-{kind}-docker:latest"
