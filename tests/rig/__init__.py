"""A real control plane on loopback, for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK.

`binaries` finds the programs and `build` makes them (`make rig`); `control_plane.Rig` runs them; `keeper` shares one
control plane among the workers of a test run; `plugin` holds the pytest fixtures. Nothing here knows Forebay.
"""

from tests.rig.binaries import RigMissing
from tests.rig.control_plane import Part, Rig, RigFailed, Tier

__all__ = ["Part", "Rig", "RigFailed", "RigMissing", "Tier"]
