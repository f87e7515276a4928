"""Simulations in virtual time: the event loops, and simulated machines with a power switch.

Belongs here: event loops with a virtual clock, and what is simulated on them. Does not belong here: any behaviour of
the operator; a simulation runs the production code.
"""
