"""The one seam: everything Forebay says to the outside goes through a `Transport`.

Belongs here: the `Transport` protocol and its errors, the aiohttp and in-process transports, the wrappers that add one
concern each (rate budget, redaction), serving a handler on a socket, the loop's wall clock.
Does not belong here: what is said. No Kubernetes, no provider, no URL of either.
"""
