"""Control servers of tailnets: keys with which machines enter, and the devices that they become.

Belongs here: one module per API, each speaking the protocol of `base`.
Does not belong here: which machine gets which key, and when it is revoked (`join.tailscale_credentials`).
"""
