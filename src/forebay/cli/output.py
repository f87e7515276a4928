"""Output that commands share: JSON for scripts, tables and paragraphs for people."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The last column is not wrapped to fewer characters than this: it would take too many lines.
_NARROWEST: Final = 24


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="text for people, json for scripts (default: text)",
    )


def print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns as kubectl does, so that they can be cut and sorted.

    Nothing is truncated. On a terminal the last column is wrapped to the width of the terminal.
    """
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    taken = sum(widths[:-1]) + 3 * (len(widths) - 1)
    space = (width := terminal_width()) and width - taken
    for row in (header, *rows):
        lines = textwrap.wrap(row[-1], space) if space and space >= _NARROWEST else [row[-1]]
        for number, line in enumerate(lines or [""]):
            cells = row[:-1] if number == 0 else [""] * (len(row) - 1)
            padded = (cell.ljust(wide) for cell, wide in zip(cells, widths, strict=False))
            print("   ".join((*padded, line)).rstrip())


def print_paragraph(text: str, *, indent: int = 0, hanging: int = 0) -> None:
    """Print text wrapped to the terminal; elsewhere in one line, which is easier to grep."""
    width = terminal_width()
    first, rest = " " * indent, " " * (indent + hanging)
    print(textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest) if width else first + text)


def terminal_width() -> int | None:
    """Columns of the terminal; None where standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
