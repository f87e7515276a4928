"""What was used, in a form that outlives pods and operators.

Belongs here: the ledger of one budget, the profile that answers for any window, the chunks it is stored in and the
order in which they are written. Does not belong here: what a budget allows (`budgets`), and where chunks are stored
(`engine.ledger`).
"""
