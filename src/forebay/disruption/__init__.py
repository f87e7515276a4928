"""What to give back, and when.

Belongs here: idle and expired machines, the order in which they go, how many may go at one time. Does not belong
here: how a machine goes once that is decided (`lifecycle`), and any I/O.
"""
