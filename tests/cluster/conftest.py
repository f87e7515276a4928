"""Whole processes against a real control plane."""

from tests.rig.plugin import rig

__all__ = ["rig"]
