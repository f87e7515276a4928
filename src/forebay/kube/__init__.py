"""Kubernetes over a `Transport`: configuration, client, informers, leader election, events.

Belongs here: everything that knows how the API server speaks, and the decoding of its JSON into the words of `model`.
Does not belong here: what Forebay wants from the cluster. No decision is taken in this room.
"""
