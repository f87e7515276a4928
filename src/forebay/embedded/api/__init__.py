"""The embedded API server: a Kubernetes API over an in-memory store.

Belongs here: the store with its versions and watches, what each kind defaults and validates, CRDs with schemas and
CEL, patches, subresources, garbage collection, discovery. Does not belong here: controllers, and what only kubectl
asks for.
"""
