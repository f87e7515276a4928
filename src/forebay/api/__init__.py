"""Forebay's own kinds as Kubernetes stores them, and the generator that writes their CRDs.

Belongs here: the five kinds of `forebay.dev/v1alpha1` field by field, the metadata all Kubernetes objects share, and
everything needed to print the CRDs. Does not belong here: what the fields make Forebay do, or any call to an API.
"""
