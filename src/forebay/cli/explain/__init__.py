"""`forebay explain`: why a pod waits, why a node was launched, and what comes next.

Belongs here: reading what an explanation needs from a cluster, and printing it. Does not belong here: the
explanation itself (`reporting`).
"""
