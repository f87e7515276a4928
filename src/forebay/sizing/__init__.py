"""Sizing of instance groups: how many nodes the groups of a NodeProvisioner should have, and which nodes go.

Belongs here: the target size, how many nodes waiting pods need, and which nodes one pass taints, untaints and deletes.
Does not belong here: how a member is launched, drained and proven gone (`lifecycle`), and any I/O.
"""
