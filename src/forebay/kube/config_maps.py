"""ConfigMaps: only their `binaryData` is decoded."""

import msgspec

from forebay.api.meta import Object
from forebay.kube.resources import Resource


class ConfigMap(Object, frozen=True):
    #: Base64 on the wire, bytes here.
    binary_data: dict[str, bytes] = msgspec.field(default_factory=dict)


CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=ConfigMap)
