"""Planning: the cheapest capacity for the pods that need it, with a lower bound that proves how cheap it is.

Words: a *pod group* is a set of interchangeable pods; a *candidate* is an offer as one pool would buy it; a *candidate
group* is a set of candidates that no pod can tell apart; a *pattern* is one way to fill a node; a *column* is a pattern
in the linear program; the *inventory* is what is left of stock and limits.

Belongs here: candidates, caps, placement in zones, greedy and exact planning, the lower bound, the sentences that
explain a plan. Does not belong here: which pods count (`demand`), what a purchase does afterwards (`lifecycle`), prices
from the network (`providers`), any I/O.
"""
