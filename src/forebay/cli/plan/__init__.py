"""`forebay plan`: what the operator would buy now, and why.

Belongs here: where the demand and the offers come from (a cluster, manifests, a saved snapshot, a price table) and
how a plan is printed. Does not belong here: planning (`planning`), and the plan as values (`reporting`).
"""
