"""The vocabulary: the nouns of the domain as frozen values, exact in their units.

Belongs here: quantities, requirements and their algebra, workloads, nodes, and what can be computed from one of them
alone. Does not belong here: I/O, clocks, JSON of any API, decisions, or an import of any other room.
"""
