"""A certificate for a socket on this machine, made when it is opened and trusted by its kubeconfig alone.

kubectl sends no token over plain HTTP.
"""

import ssl

from forebay.net.server_certificate import self_signed


def loopback_context() -> tuple[ssl.SSLContext, str]:
    """A server's TLS context for 127.0.0.1 and localhost, and the certificate that clients must trust, as PEM."""
    return self_signed("forebay-embedded", ("localhost", "127.0.0.1"))
