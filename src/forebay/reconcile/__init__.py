"""One tick as a pure function: `Snapshot` in, decisions with reasons out.

Belongs here: the snapshot, the tick and its steps (due steps, unmet demand, purchases, node changes, scale-down,
enforcement, reports, events), the decisions it may return, and snapshots as files. Does not belong here: the rules
themselves (`lifecycle`, `demand`, `budgets`, `planning`, `disruption`), how a decision is applied (`engine`), and any
I/O.
"""
