"""The provider `paperspace`: rents virtual machines of Paperspace, which join by a startup script.

Belongs here: the API (v1) as Forebay uses it, its startup scripts, and the list prices that the API does not have.
docs/providers/paperspace.md is for users.
"""
