"""Ledgers in the cluster: usage of budgets and the bill for machines, kept current and stored.

Belongs here: updating accounts and bill from the informers, storing their chunks as ConfigMaps, reading them back.
Does not belong here: what counts and how much (`budgets`).
"""
