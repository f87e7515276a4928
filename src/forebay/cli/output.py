"""Output that commands share: JSON and YAML for scripts, tables and paragraphs for people.

Nothing that others wrote reaches the terminal as it is: every function here makes its text `printable`. Colours are for
terminals alone, and not where NO_COLOR is set.
"""

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.reporting.printable import printable

#: The last column is not wrapped to fewer characters than this: it would take too many lines.
_NARROWEST: Final = 24
#: Blanks between columns; the fewer ones where only then a row fits on the terminal.
_GAP, _SMALL_GAP = 3, 2
#: Rows of a long table that a terminal shows.
_MOST_ROWS: Final = 50
#: Codes of the terminal (SGR).
_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"
#: Cells of tables that stand out, by their whole text: states, conditions and types of events.
_COLOURS: Final = {
    **dict.fromkeys(("Ready", "Running", "True"), _GREEN),
    **dict.fromkeys(("Requested", "Launching", "Launched", "Joined"), _YELLOW),
    **dict.fromkeys(("Draining", "Terminating", "Unknown", "Warning"), _YELLOW),
    **dict.fromkeys(("Gone", "Finished"), _DIM),
    "False": _RED,
    "spot": _YELLOW,
}
#: The reason before its sentence.
_REASON: Final = re.compile(r"[A-Z][A-Za-z]+(?=: )")


def add_output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "yaml"),
        default="text",
        help="text for people, json or yaml for scripts (default: text)",
    )


def print_document(document: Mapping[str, Any], output: str) -> None:
    """Print the document as `json` or `yaml`. Both escape what a terminal might act on."""
    if output == "yaml":
        import yaml

        yaml.safe_dump(document, sys.stdout, sort_keys=False, width=sys.maxsize)
        return
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, titles: bool = True) -> None:
    """Print aligned columns as kubectl does, so that they can be cut and sorted.

    Nothing is truncated. On a terminal the last column is wrapped to its width, and states have colours; where the
    columns do not fit, each row is a paragraph. `titles`: whether the header has titles; else it is a row as any other.
    """
    lines_of_cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in lines_of_cells) for column in range(len(header))]
    width, gap, space = terminal_width(), _GAP, None
    if width:
        spaces = {each: width - sum(widths[:-1]) - each * (len(widths) - 1) for each in (_GAP, _SMALL_GAP)}
        gap = next((each for each, left in spaces.items() if left >= min(widths[-1], _NARROWEST)), 0)
        if not gap and titles:
            _print_paragraphs(*lines_of_cells, width=width)
            return
        gap = gap or _GAP
        space = max(spaces[gap], _NARROWEST)
    for at, row in enumerate(lines_of_cells):
        style = _titled if titles and at == 0 else _styled
        lines = _wrapped(row[-1], space) if space else [row[-1]]
        for number, line in enumerate(lines or [""]):
            cells = row[:-1] if number == 0 else [""] * (len(row) - 1)
            padded = (style(cell) + " " * (wide - len(cell)) for cell, wide in zip(cells, widths, strict=False))
            print((" " * gap).join((*padded, style(line) if number == 0 else line)).rstrip())


def _print_paragraphs(header: Sequence[str], *rows: Sequence[str], width: int) -> None:
    """Print each row as `TITLE cell   TITLE cell ...`, broken between cells; cells that say nothing are left out."""
    outer = " " * (len(header[0]) - len(header[0].lstrip()))
    for row in rows:
        line, used = outer, len(outer)
        for title, cell in zip(map(str.strip, header), map(str.strip, row), strict=True):
            if cell in {"", "-"}:
                continue
            if used > len(outer):
                if used + _GAP + len(title) + 1 + len(cell) > width:
                    print(line)
                    line, used = f"{outer}  ", len(outer) + 2
                else:
                    line, used = line + " " * _GAP, used + _GAP
            first, *rest = _wrapped(cell, max(_NARROWEST, width - used - len(title) - 1))
            line, used = f"{line}{_titled(title)} {_styled(first)}", used + len(title) + 1 + len(first)
            for each in _wrapped(" ".join(rest), max(_NARROWEST, width - len(outer) - 4)):
                print(line)
                line, used = f"{outer}    {each}", len(outer) + 4 + len(each)
        print(line)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many characters, broken between words: names, which have hyphens, stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False)


def print_long_table(header: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> None:
    """A table that may have thousands of rows: on a terminal its first ones, elsewhere all of them."""
    shown = rows[:_MOST_ROWS] if terminal_width() else rows
    print_table(header, shown)
    if more := len(rows) - len(shown):
        print_line(f"{more:,} more {what}: pipe the output into less, or see --output json")


def _titled(cell: str) -> str:
    return coloured(cell, _BOLD)


def _styled(cell: str) -> str:
    if (code := _COLOURS.get(cell)) is not None:
        return coloured(cell, code)
    reason = _REASON.match(cell)
    return cell if reason is None else coloured(reason[0], _BOLD) + cell[reason.end() :]


def coloured(text: str, code: str) -> str:
    """The text between codes of the terminal; as it is where there is no terminal, or its user wants no colours."""
    if not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def print_line(text: str, *, error: bool = False) -> None:
    """Print one line, as it is: for text that must not be wrapped."""
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)


def print_title(text: str) -> None:
    """Print a line that says what the lines below it are about."""
    print(_titled(printable(text)))


def print_paragraph(text: str, *, indent: int = 0, hanging: int = 0) -> None:
    """Print text wrapped to the terminal; elsewhere in one line, which is easier to grep."""
    width = terminal_width()
    text = printable(text)
    first, rest = " " * indent, " " * (indent + hanging)
    if not width:
        print(first + text)
        return
    wrapper = textwrap.TextWrapper(
        width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
    print(wrapper.fill(text))


def terminal_width() -> int | None:
    """Columns of the terminal; None where standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
