"""Simulations in virtual time: the event loops, simulated machines and markets, and replays of traces.

Belongs here: event loops with a virtual clock, what is simulated on them, and traces replayed against the planner. Does
not belong here: any behaviour of the operator; a simulation runs the production code.
"""
