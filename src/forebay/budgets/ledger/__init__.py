"""Ledger of what was used, in a form that outlives pods and operator processes.

Belongs here: the ledger, the profile that gives usage in any window, the chunks a ledger is stored in and the
order in which they are written. Does not belong here: what a budget allows (`budgets`), and where chunks are stored
(`engine.ledger`).
"""
