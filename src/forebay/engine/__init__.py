"""The operator's shell: observe the cluster, run the tick, apply its decisions, wait for the next change.

Belongs here: the operator and its loop, the informers it watches, the snapshot taken from them, metrics; in rooms
of their own the application of decisions (`apply`), the providers at work (`sources`) and the ledgers (`ledger`).
Does not belong here: decisions (`reconcile`), how Kubernetes or a provider is spoken to (`kube`, `providers`).
"""
