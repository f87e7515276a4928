"""The shared control plane, for every suite in this folder."""

from tests.rig.plugin import rig

__all__ = ["rig"]
