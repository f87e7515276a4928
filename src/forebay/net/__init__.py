"""The `Transport` seam: every outgoing request of Forebay goes through a `Transport`.

Belongs here: the `Transport` protocol and its errors, the aiohttp and in-process transports, the wrappers that add one
concern each (rate budget, repeated reads, redaction), serving a handler on a socket, the loop's wall clock.
Does not belong here: anything about Kubernetes or a provider.
"""
