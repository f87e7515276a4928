"""Faults that every provider meets, and the Secrets of a cluster."""

from enum import StrEnum

from forebay.providers.secrets import UnusableSecret


class LaunchFault(StrEnum):
    """A fault of the next launch."""

    BAD_CREDENTIALS = "the credentials are refused"
    RATE_LIMITED = "too many requests"
    REFUSED = "the request is refused"
    SERVER_ERROR = "the server fails"
    FAILS_AFTER_ACTING = "the server acts and then fails"
    UNREACHABLE = "nothing can be sent"
    LOST_REQUEST = "the request is lost on its way"
    LOST_ANSWER = "the answer is lost on its way"
    SILENCE = "no answer arrives in time"


class FakeSecrets:
    """A SecretReader with the Secrets of a cluster."""

    def __init__(self, held):
        self.held = held
        self.reads = 0

    async def get(self, namespace, name):
        self.reads += 1
        if (namespace, name) not in self.held:
            raise UnusableSecret(f"there is no Secret {namespace}/{name}: create it")
        return dict(self.held[namespace, name])
