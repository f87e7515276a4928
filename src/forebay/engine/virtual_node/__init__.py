"""Remote pods: what a kubelet does for pods that run in containers elsewhere.

Belongs here: the virtual node, binding pods to it, reading what their containers need, writing their status. Does not
belong here: what a pod becomes (`offload`), launching its container (`engine.apply`), the provider's API (`providers`).
"""
