"""Crusoe Cloud: virtual machines with GPUs, by its API v1 with signed requests.

Belongs here: Crusoe's signature, account file, wire types, packaged prices and calls.
Does not belong here: how a machine joins, and anything that another provider needs too.
"""
