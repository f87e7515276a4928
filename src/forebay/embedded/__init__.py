"""A Kubernetes API in memory, behind the same `Transport` as the real one, for the demo and for deterministic tests.

Belongs here: the object store and its watch, the HTTP face, CRD schemas, and the small controllers that make pods run
(scheduler, kubelet, Jobs, ReplicaSets, disruption budgets). All of it is honest: what it does not do, it refuses.
Does not belong here: anything an operator in production needs, and any knowledge of Forebay's own kinds.
"""
