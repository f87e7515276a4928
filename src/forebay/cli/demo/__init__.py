"""`forebay demo`: the operator on a simulated lab, shown live in the terminal.

Belongs here: the demo's cluster, machines and Jobs, the recording of a run, and its display. Does not belong here:
anything that the operator itself needs.
"""
