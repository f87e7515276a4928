"""The operator's shell: observe the cluster, run a tick, apply its decisions, wait for the next change.

Belongs here: the operator and its loop, the informers, the snapshot taken from them, metrics; and three rooms of
their own: applying decisions (`apply`), providers in use (`sources`), ledgers (`ledger`).
Does not belong here: making decisions (`reconcile`), clients of Kubernetes and of providers (`kube`, `providers`).
"""
