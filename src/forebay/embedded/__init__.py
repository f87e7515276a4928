"""A small Kubernetes cluster in memory, behind the same `Transport` as a real one, for the demo and for tests.

Belongs here: the API server (`api`), the small controllers that make pods run (`controllers`: scheduler, kubelet,
Jobs, ReplicaSets, disruption budgets), and what only kubectl asks for (`kubectl`). A request for something that is not
implemented is refused with an error that says so.
Does not belong here: anything an operator in production needs, and any knowledge of Forebay's own kinds.
"""
