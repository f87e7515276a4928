"""The vocabulary: pods, nodes, offers, labels, quantities and money as frozen values, exact in their units.

Belongs here: quantities, requirements, workloads, nodes, offers, reasons, and what can be computed from one of them
alone. Does not belong here: I/O, clocks, JSON of any API, decisions, or an import of any other room.
"""
