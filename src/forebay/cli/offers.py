"""`forebay offers`: what can be rented or powered on, cheapest GPU first."""

import argparse
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_document, print_line, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.model.quantities import UsdPerHour
    from forebay.planning.offer_table import Row

NONE_MATCHES = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="from_file", metavar="FILE", help="a table of offers (CSV, plain or gzip; - is standard input)"
    )
    parser.add_argument(
        "--gpu", action="append", default=[], metavar="MODEL", help="GPU model by any of its names; may be repeated"
    )
    parser.add_argument("--min-vram", metavar="GIB", help="least memory of one GPU")
    parser.add_argument(
        "--region",
        action="append",
        default=[],
        metavar="NAME",
        help="region or zone, with * and ? if need be: us-*; may be repeated",
    )
    parser.add_argument("--max-price", metavar="USD", help="highest price of the whole machine per hour")
    parser.add_argument(
        "--spot", action=argparse.BooleanOptionalAction, help="only spot offers, or none of them (default: both)"
    )
    parser.add_argument("--limit", metavar="N", help="show the first N only")
    add_output_option(parser)


def all_rows(arguments: argparse.Namespace, settings: Settings) -> tuple[list["Row"], list[str]]:
    """All offers, and notes about providers whose offers are unknown."""
    from forebay.cli.plan.inputs import read_cluster, read_offers
    from forebay.reporting.offers import live_rows

    if arguments.from_file is not None:
        return read_offers(arguments.from_file), []
    given = read_cluster(settings)
    snapshot = given.snapshot
    notes = [*given.notes, *(f"GPUNodeClass {key.node_class}: {why}" for key, why in snapshot.unusable.items())]
    rows, unknown = live_rows(snapshot)
    return rows, [*notes, *unknown]


def chosen_rows(rows: Iterable["Row"], arguments: argparse.Namespace) -> list["Row"]:
    """The rows that pass every filter of the command line, cheapest GPU first."""
    from forebay.reporting.offers import OfferFilter, matching

    rows = list(rows)
    wanted = OfferFilter(
        models=_models(arguments.gpu, rows),
        min_vram=_number(arguments.min_vram, "--min-vram"),
        places=tuple(arguments.region),
        max_price=_price(arguments.max_price),
        spot=arguments.spot,
    )
    return matching(rows, wanted)[: _limit(arguments.limit)]


def _models(names: Sequence[str], rows: Sequence["Row"]) -> frozenset[str]:
    from forebay.model.gpu_models import canonical, gpu_model, matching_models, nearest_models

    offered = {canonical(row.offer.gpu_type, row.offer.gpu_memory_gib) for row in rows if row.offer.gpu_type}
    for name in names:
        if gpu_model(name) is None and name not in offered:
            raise UserError(f'--gpu: "{name}" is not a known GPU model{nearest_models(name, offered)}')
    return frozenset(model for name in names for model in matching_models(name))


def _number(text: str | None, option: str) -> Fraction | None:
    if text is None:
        return None
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        number = Fraction(-1)
    if number < 0:
        raise UserError(f'{option}: "{text}" is not a number of at least 0')
    return number


def _price(text: str | None) -> "UsdPerHour | None":
    from forebay.model.quantities import UsdPerHour

    if text is None:
        return None
    try:
        price = UsdPerHour(text)
    except ValueError as error:
        raise UserError(f"--max-price: {error}") from error
    if price < UsdPerHour.zero():
        raise UserError(f"--max-price: {text} is negative: give a price of at least 0")
    return price


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UserError(f'--limit: "{text}" is not a whole number of at least 1')
    return int(text)


def show(rows: Sequence["Row"]) -> None:
    header = ("GPU/H", "ALL/H", "GPUS", "VRAM", "CAPACITY", "WHERE", "PROVIDER", "TYPE")
    print_table(header, [_cells(row) for row in rows])


def _cells(row: "Row") -> tuple[str, ...]:
    from forebay.reporting.offers import capacity, place, price_per_gpu

    offer = row.offer
    count = f"{float(row.gpus):g}"
    return (
        str(price_per_gpu(row)).removesuffix("/h") if row.gpus else "-",
        str(offer.price).removesuffix("/h"),
        f"{count} x {offer.gpu_type}" if offer.gpu_type else count,
        f"{offer.gpu_memory_gib}G" if offer.gpu_memory_gib is not None else "-",
        capacity(offer),
        place(offer),
        offer.provider,
        offer.instance_type,
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.reporting.offers import document

    rows, notes = all_rows(arguments, settings)
    found = chosen_rows(rows, arguments)
    if arguments.output != "text":
        print_document(document(found, notes), arguments.output)
    else:
        if found:
            show(found)
        else:
            why = "no provider has any" if not rows else f"none of {len(rows)} passes the filters"
            print_line(f"No offers: {why}.")
        for note in notes:
            print_line(f"Note: {note}")
    return 0 if found else NONE_MATCHES


COMMAND = Command(
    name="offers",
    summary="what can be rented or powered on, cheapest GPU first",
    description="Show the offers of the providers that GPUNodeClasses name, or of a table, cheapest GPU first:\n\n"
    "  forebay offers --gpu h100 --region 'us-*'\n"
    "  forebay offers --from prices.csv.gz --min-vram 40 --max-price 2 --no-spot\n\n"
    "Exit codes: 0 some offers match; 1 none matches; 2 bad input, or no cluster.",
    options=add_options,
    run=run,
)
