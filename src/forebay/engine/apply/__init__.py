"""Applying decisions: one function per decision type.

Belongs here: writes to Kubernetes (records, nodes, pods, budgets, events) and calls to providers, each with the
precondition that makes it safe to repeat. Does not belong here: what to do (`reconcile` and the rooms below it).
"""
