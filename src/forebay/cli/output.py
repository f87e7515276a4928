"""What all commands say alike: JSON for scripts, tables for people."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
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
