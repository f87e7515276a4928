"""Metadata of objects as they are on the wire."""

from datetime import datetime

import msgspec


class WireMetadata(msgspec.Struct, rename="camel"):
    """What every object has."""

    name: str
    uid: str
    resource_version: str
    creation_timestamp: datetime
    namespace: str = ""
