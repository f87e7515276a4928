"""All that one tick knows: an immutable picture of the cluster at one instant."""

from datetime import datetime

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    #: The one clock reading of the tick.
    now: datetime
    classes: tuple[GPUNodeClass, ...]
    pools: tuple[GPUNodePool, ...]
