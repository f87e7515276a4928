"""RunPod: containers with GPUs, by its REST API v2. They run pods of Jobs; none becomes a node.

Belongs here: its wire format, its catalogue as offers, its errors, log streams and registry credentials. Does not
belong here: which pod runs there, and what its status means (`offload`, `engine`).
"""
