"""The cheapest capacity for the pods that need it, with proof of how near to the cheapest it is.

Belongs here: candidates, fit, greedy and exact planning, the lower bound, the sentence why. Does not belong here:
which pods count (`demand`), what a purchase does afterwards (`lifecycle`), prices from the network (`providers`),
any I/O.
"""
