"""What the settings of `run` mean: rules, intervals and addresses. Every mistake is a `SettingsError`."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forebay.api.names import OPERATOR_NAMESPACE
from forebay.api.values import NotADuration, duration
from forebay.engine.loop import LoopTiming
from forebay.model.quantities import UsdPerHour
from forebay.offload.departure import OffloadRules
from forebay.providers.webhook.groups import VARIABLES
from forebay.reconcile.snapshot import OperatorRules
from forebay.settings import Settings, SettingsError, all_settings

if TYPE_CHECKING:
    from forebay.web.ports import Ports

_MOST_DIGITS: Final = 9
_SHORTEST_INTERVAL: Final = timedelta(seconds=1)
_LARGEST_PORT: Final = 65535
_PREFIX: Final = "FOREBAY_"
#: What Kubernetes tells every pod of a namespace about a Service whose name begins with forebay.
_OF_A_SERVICE: Final = re.compile(r"FOREBAY(_\w+)?_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_\w+)?)$")


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; `:port` means every interface, as in Go."""
    host, colon, port = text.rpartition(":")
    if not colon or not _is_host(host) or not (port.isascii() and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise SettingsError(f"{text!r} is not an address to listen on; give host:port or :port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (a pod's probes come from outside)


def _is_host(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        return True
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return not set(text) & set("[]:/@ ")


def check_settings(settings: Settings) -> None:
    """Raises one `SettingsError` that lists everything that is wrong with the settings of `run`."""
    problems = []
    for setting in all_settings():
        try:
            if setting.name == "reconcile_interval":
                timing_of(settings)
            elif setting.form is not None:
                _CHECKS[setting.form](setting.name, getattr(settings, setting.name))
        except SettingsError as error:
            problems.append(str(error))
    problems += [] if problems else _shared_addresses(settings)
    if problems:
        raise SettingsError("; ".join(problems))


def _shared_addresses(settings: Settings) -> list[str]:
    """Two ports of one address: only plain metrics may be served beside the probes."""
    listeners = [each for each in all_settings() if (each.form or "").startswith("address")]
    found, owners = [], dict[tuple[str, int], str]()
    for each in listeners:
        text = getattr(settings, each.name)
        if text == "0" or (address := listen_address(text))[1] == 0:
            continue
        owner = owners.setdefault(address, each.name)
        if owner != each.name and {owner, each.name} != {"health_server_address", "metrics_bind_address"}:
            first = next(one.option for one in listeners if one.name == owner)
            found.append(f"{first} and {each.option} are both {text}: choose another port for one of them")
    return found


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """A sentence for each variable `FOREBAY_...` that no setting has: a typing error would otherwise go unnoticed."""
    known = {each.variable.removeprefix(_PREFIX) for each in all_settings()}
    machine = tuple(VARIABLES)
    found = []
    for name in sorted(environment):
        ours = name.startswith(_PREFIX) and not name.endswith(machine) and not _OF_A_SERVICE.match(name)
        if not ours or (rest := name.removeprefix(_PREFIX)) in known:
            continue
        near = difflib.get_close_matches(rest, known, 1)
        meant = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
        found.append(f"{name} is no setting and has no effect{meant}")
    return found


def ports_of(settings: Settings) -> "Ports":
    """The ports that settings state. Raises `SettingsError` for an address that cannot be parsed."""
    from forebay.web.ports import Address, Ports  # noqa: PLC0415 (brings aiohttp's server)

    def address(text: str) -> Address | None:
        return None if text == "0" else Address(*listen_address(text))

    directory = settings.metrics_cert_path
    names = (settings.metrics_cert_name, settings.metrics_cert_key)
    return Ports(
        health=Address(*listen_address(settings.health_server_address)),
        metrics=address(settings.metrics_bind_address),
        metrics_secure={"auto": None, "true": True, "false": False}[settings.metrics_secure],
        web=address(settings.web_address),
        certificate=None if directory is None else (Path(directory) / names[0], Path(directory) / names[1]),
    )


def rules_of(settings: Settings) -> OperatorRules:
    """The rules that settings state. Raises `SettingsError` for a value that cannot be parsed."""
    resources = (settings.gpu_resources or "").replace(",", " ").split()
    return OperatorRules(
        namespace=settings.namespace or OPERATOR_NAMESPACE,
        gpu_resources=frozenset(resources) or None,
        budgets=settings.budgets == "on",
        idle_delay=_duration("idle_delay", settings.idle_delay),
        adoption_grace=_duration("adoption_grace", settings.adoption_grace),
        power_on_interval=_duration("power_on_interval", settings.power_on_interval),
        scale_down_interval=_duration("scale_down_interval", settings.scale_down_interval),
        offload=OffloadRules(
            max_pending=_duration("max_pending_time", settings.max_pending_time),
            pending_threshold=_count("pending_job_threshold", settings.pending_job_threshold),
            max_gpu_price=_price("max_gpu_price", settings.max_gpu_price),
        ),
    )


def dry_run_time(settings: Settings) -> timedelta | None:
    """How long a pod is assumed to run, in a dry run; None where this is none."""
    return _duration("dry_run_run_time", settings.dry_run_run_time) if settings.dry_run == "on" else None


def timing_of(settings: Settings) -> LoopTiming:
    """The intervals that settings state. Raises `SettingsError` for a value that cannot be parsed."""
    interval = _duration("reconcile_interval", settings.reconcile_interval)
    if interval < _SHORTEST_INTERVAL:
        raise SettingsError(f"--reconcile-interval: {settings.reconcile_interval!r} is less than a second")
    return LoopTiming(resync=interval.total_seconds())


def _duration(setting: str, text: str) -> timedelta:
    try:
        return duration(text)
    except NotADuration as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error


def _address(setting: str, text: str) -> tuple[str, int]:
    try:
        return listen_address(text)
    except SettingsError as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error


def _address_or_none(setting: str, text: str) -> tuple[str, int] | None:
    return None if text == "0" else _address(setting, text)


def _count(setting: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise SettingsError(
            f"--{setting.replace('_', '-')}: {text!r} is not a whole number from 0 to {10**_MOST_DIGITS - 1}"
        )
    return int(text)


def _price(setting: str, text: str) -> UsdPerHour:
    try:
        price = UsdPerHour(text)
    except ValueError as error:
        raise SettingsError(f"--{setting.replace('_', '-')}: {error}") from error
    if price <= UsdPerHour.zero():
        raise SettingsError(f"--{setting.replace('_', '-')}: {text!r} is not more than 0")
    return price


#: How the text of a setting is read, by its form.
_CHECKS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "duration": _duration,
    "count": _count,
    "price": _price,
    "address": _address,
    "address or 0": _address_or_none,
}
