"""`forebay explain`: why a pod waits, why a machine is here, and what comes next.

Belongs here: reading what an explanation needs from a cluster, and drawing it. Does not belong here: the
explanation itself (`reporting`).
"""
