"""The embedded API server: a Kubernetes API over an in-memory store.

Belongs here: the store with its resource versions and watches, defaults and validation of each kind, CRDs with schemas
and CEL, patches, server-side apply, subresources, garbage collection, discovery, reviews.
Does not belong here: controllers, and what only kubectl asks for. Four modules reach into `kubectl` for that: `handler`
(OpenAPI), `reads` (tables), `request_parts` (protobuf bodies) and `custom_resources` (JSON paths of printer columns).
"""
