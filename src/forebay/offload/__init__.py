"""A Job's own pod runs elsewhere: which Jobs may leave the cluster, and how their pods become containers.

Belongs here: the marks of Jobs, when a Job leaves, the container that a pod becomes, how its exit code comes back, and
the pod status that a remote container stands for. Does not belong here: reading Secrets and ConfigMaps, binding pods
and writing their status (`engine`), and speaking to a provider (`providers`).
"""
