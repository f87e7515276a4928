"""Remote pods: what a kubelet does for pods that run in containers elsewhere.

Belongs here: binding a pod to the virtual node, and reading what its container needs. Does not belong here: what a pod
becomes (`offload`), launching its container (`engine.apply`), and the provider's API (`providers`).
"""
