"""HTTP pages of the operator: liveness, readiness, metrics.

Belongs here: read-only pages, as `Handler`s, made from values that other rooms provide. Does not belong here: anything
that changes state, and the values themselves.
"""
