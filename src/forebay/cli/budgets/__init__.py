"""`forebay budgets`: what every budget has used, what is left, and when none will be.

Belongs here: reading budgets and ledgers from a cluster, and drawing them. Does not belong here: the figures
(`reporting`).
"""
