"""Putting Forebay into a cluster and taking it out again.

Belongs here: the operator's permissions with their reasons, its manifests, the admission policies, and the
uninstaller. Does not belong here: the CRDs (`api`), what the operator does while it runs (`engine`), the Helm chart
(`deploy/`, which is generated from here where it can be).
"""
