"""HTTP pages of the operator: liveness, readiness, metrics, and the dashboard; and who may read them.

Belongs here: read-only pages, as `Handler`s, made from values that other rooms provide. Does not belong here: anything
that changes state, and the values themselves (`reporting`, `engine`).
"""
