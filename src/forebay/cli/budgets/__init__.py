"""`forebay budgets`: usage, quota and forecast of every budget.

Belongs here: reading budgets and ledgers from a cluster, and printing them. Does not belong here: the
figures (`reporting`).
"""
