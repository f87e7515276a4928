"""What the marks of a Job (`runpod.io/...`) ask for, read once and refused where they cannot be read."""

from collections.abc import Mapping
from typing import Final

import msgspec

from forebay.api.names import (
    CLOUD_TYPE_ANNOTATION,
    DATACENTER_IDS_ANNOTATION,
    GPU_TYPES_ANNOTATION,
    MANAGED_MARK,
    MAX_PRICE_ANNOTATION,
    OFFLOAD_ANNOTATION,
    REGISTRY_AUTH_ANNOTATION,
    REMOTE_PORTS_ANNOTATION,
    REQUIRED_GPU_MEMORY_ANNOTATION,
    TEMPLATE_ID_ANNOTATION,
)
from forebay.model.containers import ContainerPort
from forebay.model.quantities import UsdPerHour

#: GiB of GPU memory where a Job does not say, as the RunPod Job controller has it.
DEFAULT_GPU_MEMORY_GIB: Final = 16
_CLOUDS: Final = frozenset({"SECURE", "COMMUNITY"})
_LAST_PORT: Final = 65535
_LONGEST_QUOTE: Final = 100


class InvalidMark(ValueError):
    """A mark that cannot be read. The text names it and says what to write."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What a Job asks of its remote container."""

    #: Leave at once, however long the Job has waited.
    forced: bool = False
    gpu_memory_gib: int = DEFAULT_GPU_MEMORY_GIB
    #: None: the usual one of the provider.
    cloud: str | None = None
    #: Empty: any.
    data_centers: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    template: str | None = None
    registry_auth: str | None = None
    #: With the protocol that the provider serves them by (http, tcp).
    ports: tuple[ContainerPort, ...] = ()
    #: Most that one GPU may cost; None: what --max-gpu-price says.
    max_price: UsdPerHour | None = None


def is_managed(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a Job may leave: marked by label or annotation, with anything but "false"."""
    found = annotations.get(MANAGED_MARK, labels.get(MANAGED_MARK))
    return found is not None and found.strip().lower() != "false"


def read_marks(annotations: Mapping[str, str]) -> Marks:
    """The marks of a Job. Raises `InvalidMark`."""
    cloud = annotations.get(CLOUD_TYPE_ANNOTATION, "").strip().upper() or None
    if cloud is not None and cloud not in _CLOUDS:
        raise InvalidMark(f"Annotation {CLOUD_TYPE_ANNOTATION} is {shortened(cloud)!r}: write SECURE or COMMUNITY.")
    return Marks(
        forced=annotations.get(OFFLOAD_ANNOTATION, "").strip().lower() == "true",
        gpu_memory_gib=_memory(annotations.get(REQUIRED_GPU_MEMORY_ANNOTATION)),
        cloud=cloud,
        data_centers=_words(annotations, DATACENTER_IDS_ANNOTATION),
        gpu_types=_words(annotations, GPU_TYPES_ANNOTATION),
        template=annotations.get(TEMPLATE_ID_ANNOTATION, "").strip() or None,
        registry_auth=annotations.get(REGISTRY_AUTH_ANNOTATION, "").strip() or None,
        ports=tuple(map(_port, _words(annotations, REMOTE_PORTS_ANNOTATION))),
        max_price=_price(annotations.get(MAX_PRICE_ANNOTATION)),
    )


def shortened(text: str) -> str:
    """The text of a user, for a sentence that stays readable however long that is."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def _words(annotations: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = annotations.get(name, "").strip()
    words = tuple(word for each in text.split(",") if (word := each.strip()))
    if text and not words:
        raise InvalidMark(
            f"Annotation {name} is {shortened(text)!r} and names nothing: write what you want, or remove it."
        )
    return words


def _memory(text: str | None) -> int:
    if text is None:
        return DEFAULT_GPU_MEMORY_GIB
    number = text.strip()
    if not number.isascii() or not number.isdecimal() or len(number) > 6:  # noqa: PLR2004 (a petabyte)
        raise InvalidMark(
            f"Annotation {REQUIRED_GPU_MEMORY_ANNOTATION} is {shortened(text)!r}: write a whole number of GiB."
        )
    return int(number)


def _price(text: str | None) -> UsdPerHour | None:
    if text is None:
        return None
    try:
        price = UsdPerHour(text.strip())
    except ValueError:
        price = UsdPerHour("0")
    if price <= UsdPerHour("0"):
        raise InvalidMark(
            f"Annotation {MAX_PRICE_ANNOTATION} is {shortened(text)!r}: write US dollars per hour, such as 0.5."
        )
    return price


def _port(text: str) -> ContainerPort:
    number, _, protocol = text.partition("/")
    protocol = protocol or "tcp"
    # The length first: Python refuses to read thousands of digits.
    valid = (
        number.isascii()
        and number.isdecimal()
        and len(number) <= len(str(_LAST_PORT))
        and 0 < int(number) <= _LAST_PORT
    )
    if not valid or protocol not in {"http", "tcp"}:
        raise InvalidMark(
            f"Annotation {REMOTE_PORTS_ANNOTATION} has {shortened(text)!r}: write ports as 8888/http or 22/tcp."
        )
    return ContainerPort(port=int(number), protocol=protocol.upper())
