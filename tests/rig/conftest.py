"""The shared control plane, for the tests of the rig itself."""

from tests.rig.plugin import rig

__all__ = ["rig"]
