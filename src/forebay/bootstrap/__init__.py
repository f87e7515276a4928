"""How a rented machine joins the cluster, as text: what it is told at its first boot.

Belongs here: boot payloads, written from a class, a record and the values of join credentials. Does not belong here:
making those credentials (`join`), and handing the payload to a provider (`engine`).
"""
