"""Budgets: usage in GPU-hours and dollars against a quota, forecasts, admission, enforcement, and the bill.

Belongs here: exact intervals of usage and their durable form (`ledger`), what each budget has left and until when,
which pod waits or stops, and which pods pay for a machine. Does not belong here: what capacity costs (`planning`), how
a pod is evicted (`engine`), and any I/O.
"""
