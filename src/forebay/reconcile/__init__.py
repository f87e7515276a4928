"""One tick as a pure function: `Snapshot` in, decisions with reasons out.

Belongs here: the snapshot, the tick and its steps (due steps, demand, purchases, consolidation, enforcement,
reports), the decisions it may return, and snapshots as files. Does not belong here: the rules themselves
(`lifecycle`, `demand`, `budgets`, `planning`, `disruption`), how a decision is carried out (`engine`), and any I/O.
"""
