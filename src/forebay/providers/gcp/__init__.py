"""Google Compute Engine: single instances, by the Compute Engine API v1 and the Cloud Billing catalog.

Belongs here: Google's credentials, calls, operations, errors, machine types and prices; instance groups use the same.
Does not belong here: how a machine joins, and anything that another provider needs too.
"""
