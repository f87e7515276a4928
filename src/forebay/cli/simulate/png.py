"""A drawing as a PNG image, by Pillow (the extra `plots`)."""

import io
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageDraw, ImageFont

from forebay.cli.simulate.plot import Box, Curve, Drawing, Label, Rule

if TYPE_CHECKING:
    from forebay.cli.simulate.plot import Line

#: Pixels of one unit of the drawing. It is drawn larger still and made smaller, which smooths its lines.
_SCALE: Final = 2
_FINER: Final = 2
_DASH, _SPACE = 6.0, 5.0
_TEXT, _TITLE, _GRID, _BACKGROUND = "#57606a", "#24292f", "#d0d7de", "#ffffff"
_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}


def png(drawn: Drawing) -> bytes:
    factor = _SCALE * _FINER
    image = Image.new("RGB", (drawn.width * factor, drawn.height * factor), _BACKGROUND)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(13 * factor)
    for shape in drawn.shapes:
        match shape:
            case Box():
                corners = (shape.x, shape.y, shape.x + shape.side, shape.y + shape.side)
                pen.rectangle([each * factor for each in corners], fill=shape.colour)
            case Rule():
                pen.line([each * factor for each in (shape.x, shape.y, shape.end, shape.y)], fill=_GRID, width=factor)
            case Curve():
                for line in _dashes(shape.points) if shape.dashed else [shape.points]:
                    points = [(x * factor, y * factor) for x, y in line]
                    pen.line(points, fill=shape.colour, width=max(round(shape.width * factor), 1), joint="curve")
            case Label():
                at = (shape.x * factor, shape.y * factor)
                colour = _TITLE if shape.title else _TEXT
                pen.text(at, shape.text, fill=colour, font=font, anchor=_ANCHORS[shape.anchor])
    small = image.resize((drawn.width * _SCALE, drawn.height * _SCALE), Image.Resampling.BOX)
    file = io.BytesIO()
    small.save(file, "PNG", optimize=True)
    return file.getvalue()


def _dashes(line: "Line") -> "Iterator[Line]":
    """The parts of a line that a dashed one shows."""
    dash: Line = line[:1]
    left, shown = _DASH, True
    for (x, y), (end_x, end_y) in pairwise(line):
        length = math.hypot(end_x - x, end_y - y)
        gone = 0.0
        while length - gone > left:
            gone += left
            point = (x + (end_x - x) * gone / length, y + (end_y - y) * gone / length)
            if shown:
                yield [*dash, point]
            shown = not shown
            dash, left = [point], _DASH if shown else _SPACE
        left -= length - gone
        if shown:
            dash.append((end_x, end_y))
    if shown and len(dash) > 1:
        yield dash
