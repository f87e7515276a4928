"""What a machine needs from outside to join the cluster: credentials made for it alone, and taken away again.

Belongs here: one module per kind of credential, each speaking the protocol of `base`.
Does not belong here: who rents the machine (`providers`), what the machine boots, and which step comes when
(`lifecycle`).
"""
