"""Which pods need capacity, or the reason they do not.

Belongs here: what counts as demand, what free and coming capacity will already take, and which pods a ready node was
promised to. Does not belong here: what to buy for the rest (`planning`), and any I/O.
"""
