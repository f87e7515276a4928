"""What all commands say alike: JSON for scripts, tables for people."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="text for people, json for scripts"
    )


def print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need, in kubectl's manner, so that they can be cut and sorted. Nothing is cut off."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def age(span: timedelta) -> str:
    """As kubectl shows ages: the two largest units at most, one where it says enough."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 120:  # noqa: PLR2004 (kubectl's own steps)
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:  # noqa: PLR2004
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    if minutes < 180:  # noqa: PLR2004
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 8:  # noqa: PLR2004
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if hours < 48:  # noqa: PLR2004
        return f"{hours}h"
    days, hours = divmod(hours, 24)
    if days < 8:  # noqa: PLR2004
        return f"{days}d{hours}h" if hours else f"{days}d"
    return f"{days}d"
