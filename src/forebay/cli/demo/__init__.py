"""`forebay demo`: the operator on simulated machines, live in the terminal.

Belongs here: the demo's cluster and machines, what is recorded while it runs, and how that is drawn. Does not
belong here: anything the operator itself needs.
"""
