"""The conformance servers there are: one line each."""

from collections.abc import Callable
from typing import NamedTuple

from tests.contract.providers.conformance import JOIN_LINE, ConformanceServer
from tests.contract.providers.crusoe import server as crusoe
from tests.contract.providers.gcp import server as gcp
from tests.contract.providers.lambdalabs import server as lambdalabs
from tests.contract.providers.paperspace import server as paperspace
from tests.contract.providers.runpod import server as runpod


class TrialCloud(NamedTuple):
    """A server as it is started by hand."""

    make: Callable[[], ConformanceServer]
    #: Path of the API under the server's base URL.
    path: str = ""
    #: Whether its machines join the cluster. Without: it runs containers.
    has_machines: bool = True
    join_line: str = JOIN_LINE
    #: First line of what its machines run.
    shebang: str = "#cloud-config"
    #: Instance groups that it has at first: name, kind of machine, names of the members.
    groups: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


CLOUDS: dict[str, TrialCloud] = {
    "crusoe": TrialCloud(crusoe.trial, path="/v1", shebang="#!/bin/sh"),
    "gcp": TrialCloud(
        lambda: gcp.ComputeEngine(gcp.goods(boot=10, driver=0), key="trial-key"),
        groups=(("l4-pool", "g2-standard-8", ("l4-pool-a1b2", "l4-pool-c3d4")), ("h100-pool", "a3-highgpu-8g", ())),
    ),
    "lambdalabs": TrialCloud(lambdalabs.trial, path="/api/v1"),
    "paperspace": TrialCloud(paperspace.trial, path="/v1", shebang="#!/bin/sh"),
    "runpod": TrialCloud(runpod.trial, has_machines=False),
}
