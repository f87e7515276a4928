"""Installing Forebay in a cluster and removing it.

Belongs here: the operator's permissions with their reasons, its manifests, the admission policies, and the
uninstaller. Does not belong here: the CRDs (`api`), what the operator does while it runs (`engine`), the Helm chart
(`deploy/`, which is generated from here where possible).
"""
