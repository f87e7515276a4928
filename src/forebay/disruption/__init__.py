"""Scale-down: which nodes to terminate or power off, and when.

Belongs here: idle, expired and drifted nodes, the order in which they go, and how many may go at a time. Does not
belong here: how a node is drained and terminated once that is decided (`lifecycle`), and any I/O.
"""
