"""What all commands say alike: JSON for scripts, tables and paragraphs for people."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Less room than this for the last column, and it is not wrapped: the lines would be too many.
_NARROWEST: Final = 24


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="text for people, json for scripts"
    )


def print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need, in kubectl's manner, so that they can be cut and sorted. Nothing is cut off; on a
    terminal the last column is wrapped within its width.
    """
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    before = sum(widths[:-1]) + 3 * (len(widths) - 1)
    room = (width := terminal_width()) and width - before
    for row in (header, *rows):
        lines = textwrap.wrap(row[-1], room) if room and room >= _NARROWEST else [row[-1]]
        for number, line in enumerate(lines or [""]):
            cells = row[:-1] if number == 0 else [""] * (len(row) - 1)
            padded = (cell.ljust(wide) for cell, wide in zip(cells, widths, strict=False))
            print("   ".join((*padded, line)).rstrip())


def print_paragraph(text: str, *, indent: int = 0, hanging: int = 0) -> None:
    """Wrapped on a terminal; one line elsewhere, where it is grep that reads."""
    width = terminal_width()
    first, rest = " " * indent, " " * (indent + hanging)
    print(textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest) if width else first + text)


def terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
