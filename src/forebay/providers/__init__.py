"""Providers of capacity: one folder per provider, and the contract they share.

Belongs here: `base.py` (the protocol and its errors), `own.py` (one line per provider), `registry.py` (these and those
that other packages add) and a folder for each, which speaks its API through a `Transport`. Providers do not know each
other, nor Kubernetes, nor when they are called.
"""
