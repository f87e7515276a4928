"""The provider `lambdalabs`: rents virtual machines of Lambda Cloud, which join by cloud-init user data.

Belongs here: the API (version 1.10) as Forebay uses it, and what its errors mean. docs/providers/lambdalabs.md is for
users.
"""
