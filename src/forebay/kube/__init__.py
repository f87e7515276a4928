"""Kubernetes over a `Transport`: configuration, client, informers, leader election, events.

Belongs here: everything that knows the Kubernetes API, and the decoding of its JSON into the types of `model`.
Does not belong here: what Forebay wants from the cluster. This room takes no decisions.
"""
