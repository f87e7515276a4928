"""Inputs of `forebay simulate`: a trace, a table of offers, and how the simulated world behaves."""

import argparse
import gzip
import io
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from forebay.api.values import NotADuration, duration
from forebay.cli.parser import UserError
from forebay.cli.plan.inputs import read_offers
from forebay.model.gpu_models import matching_models
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Offer, OfferKey
from forebay.planning.candidates import CandidateContext, candidates
from forebay.planning.plan import Candidate
from forebay.providers.registry import deliveries
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.what_if import with_table
from forebay.simulate.policies import SpendingLimits, at_prices
from forebay.simulate.price_history import HistoryError, PriceHistory, PricesFrom, read_history
from forebay.simulate.reclaim_history import ReclaimError, reclaim_rate
from forebay.simulate.replay import ReplayTerms
from forebay.simulate.traces import Trace, TraceError, read_trace

#: Bytes of a trace after unpacking.
_MOST_UNPACKED: Final = 512 << 20
_GZIP: Final = b"\x1f\x8b"
_MOST_RECLAIMS: Final = 3600


def _read_table(name: str) -> io.StringIO:
    """The text of a file, plain or gzip. Raises `UserError`."""
    try:
        data = Path(name).read_bytes()
        if data.startswith(_GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(_MOST_UNPACKED + 1)
        if len(data) > _MOST_UNPACKED:
            raise UserError(f"{name} unpacks to more than {_MOST_UNPACKED >> 20} MiB: too large for a trace")
        # Spreadsheets begin a file with a byte order mark, which would be part of the first column's name.
        return io.StringIO(data.decode("utf-8-sig"), newline="")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: {error}") from error


def read_prices(names: Sequence[str], since: datetime | None, seconds: int, offers: Sequence[Offer]) -> "ReplayPrices":
    """What histories say of the offers. The trace begins at `since`; None: as late as they cover it whole."""
    changes: list[PricesFrom] = []
    for name in names:
        try:
            changes += read_history(_read_table(name), offers).changes
        except HistoryError as error:
            raise UserError(f"{name}: {error}") from error
    if not changes:
        return ReplayPrices((), None)
    changes.sort(key=lambda each: each.at)
    merged = tuple(
        PricesFrom(at, {key: price for each in group for key, price in each.prices.items()})
        for at, group in groupby(changes, key=lambda each: each.at)
    )
    start = max(merged[0].at, merged[-1].at - seconds) if since is None else int(since.timestamp())
    return ReplayPrices(PriceHistory(merged).since(start), datetime.fromtimestamp(start, UTC))


class ReplayPrices(NamedTuple):
    changes: tuple[PricesFrom, ...]
    #: The moment of the first pod of the trace.
    start: datetime | None


def cheapest_ever(found: Sequence[Candidate], changes: Sequence[PricesFrom]) -> Sequence[Candidate]:
    """The candidates at the lowest price that each ever has."""
    lowest: dict[OfferKey, UsdPerHour | None] = {}
    for change in changes:
        for key, price in change.prices.items():
            known = lowest.get(key)
            lowest[key] = price if known is None or (price is not None and price < known) else known
    return at_prices(found, lowest)


def read_pods(name: str, after: int, before: int) -> Trace:
    try:
        found = read_trace(_read_table(name))
    except TraceError as error:
        raise UserError(f"{name}: {error}") from error
    return trimmed(found, name, after, before)


def trimmed(found: Trace, name: str, after: int, before: int) -> Trace:
    """The pods of that time, in seconds from the first of them. Raises `UserError` where there is none."""
    kept = [each for each in found.pods if after <= each.submitted < before]
    if not kept:
        when = " in that time" if found.pods else " and ran for at least a second"
        raise UserError(f"{name} has no pod that requests a GPU{when}")
    first = kept[0].submitted
    return Trace(pods=tuple(each._replace(submitted=each.submitted - first) for each in kept), skipped=found.skipped)


def read_candidates(arguments: argparse.Namespace) -> Sequence[Candidate]:

    models = {model for name in arguments.gpu for model in matching_models(name)}
    offers = [
        row.offer
        for row in read_offers(arguments.offers)
        if (not arguments.provider or row.offer.provider in arguments.provider)
        and (not arguments.gpu or row.offer.gpu_type in models)
    ]
    now = datetime.now(UTC)
    snapshot = with_table(Snapshot(now=now), offers, deliveries(), spot=arguments.spot)
    found = candidates(snapshot.sources, (), (), CandidateContext(now=now)).candidates
    if not found:
        raise UserError(f"{arguments.offers} has no offer of a machine that is left by --provider, --gpu and --spot")
    return found


def read_reclaims(arguments: argparse.Namespace) -> tuple[float, str | None]:
    """Reclaims of a spot machine in an hour, and how they were measured where a file was given."""
    try:
        rate = float(arguments.reclaims)
    except ValueError:
        models = {model for name in arguments.gpu for model in matching_models(name)}
        try:
            found = reclaim_rate(_read_table(arguments.reclaims), models)
        except ReclaimError as error:
            raise UserError(f"--reclaims: {arguments.reclaims}: {error}") from error
        _check_spot(arguments, found.hourly)
        return found.hourly, (
            f"Spot machines are reclaimed {found.hourly:.3f} times an hour on average, as measured: "
            f"{found.reclaims:,} times in {found.machine_hours:,.0f} machine-hours of {found.records:,} records."
        )
    if not 0 <= rate <= _MOST_RECLAIMS:
        raise UserError(f"--reclaims is a number from 0 to {_MOST_RECLAIMS}, and not {arguments.reclaims}")
    _check_spot(arguments, rate)
    return rate, None


def _check_spot(arguments: argparse.Namespace, rate: float) -> None:
    if rate and not arguments.spot:
        raise UserError("--reclaims is about spot machines, and no other is ever reclaimed: add --spot")


def terms_of(arguments: argparse.Namespace, reclaims: float) -> ReplayTerms:

    quota, window = None, timedelta(days=1)
    if arguments.budget is not None:
        hours, _, text = arguments.budget.partition("/")
        try:
            quota, window = int(hours), duration(text)
        except (ValueError, NotADuration):
            raise UserError(f"--budget is GPU_HOURS/WINDOW, such as 500/24h, and not {arguments.budget!r}") from None
        if quota < 1 or not window:
            raise UserError("--budget: hours and window must be more than 0")
    return ReplayTerms(
        boot=int(arguments.boot.total_seconds()),
        idle=int(arguments.idle.total_seconds()),
        reclaims=reclaims,
        seed=arguments.seed,
        quota=quota,
        window=int(window.total_seconds()),
    )


def limits_of(arguments: argparse.Namespace) -> SpendingLimits:

    try:
        hourly = None if arguments.max_hourly_cost is None else UsdPerHour(arguments.max_hourly_cost)
    except ValueError as error:
        raise UserError(f"--max-hourly-cost: {error}") from error
    return SpendingLimits(arguments.max_nodes, hourly)
