"""The shared control plane, for the tests of the rig itself. Most of them need none."""

from tests.rig.plugin import rig

__all__ = ["rig"]


def pytest_itemcollected(item):
    if {"rig", "own_rig"} & set(item.fixturenames):
        item.add_marker("cluster")
