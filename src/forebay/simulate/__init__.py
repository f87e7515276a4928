"""Worlds that run in virtual time.

Belongs here: the event loop whose clock jumps, and what is simulated on it. Does not belong here: any behaviour that
the operator also has in production; a simulation runs the real code.
"""
