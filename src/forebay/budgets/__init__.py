"""GPU-hours and dollars against what was allowed: usage in a window, the ledger, forecasts, whom to hold or to stop.

Belongs here: exact intervals, their durable form, what each budget has left and when it will have none, and which pod
is to leave or to wait. Does not belong here: what capacity costs (`planning`), how a pod is evicted, and any I/O.
"""
