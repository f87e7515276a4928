"""Which pods need new capacity, and the reason why the others do not.

Belongs here: which pods count as demand, which of these fit on free or launching capacity, and which pods a new node
was launched for. Does not belong here: what to buy for the rest (`planning`), and any I/O.
"""
