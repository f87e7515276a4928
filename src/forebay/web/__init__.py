"""What Forebay shows over HTTP: health, readiness, metrics.

Belongs here: read-only pages made from facts that other rooms keep, as `Handler`s. Does not belong here: anything
that changes something, and the facts themselves.
"""
