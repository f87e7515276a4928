"""docs/architecture.md speaks of what is there."""

import importlib
import re
from pathlib import Path

import pytest

import forebay

PAGE = (Path(__file__).parents[2] / "docs/architecture.md").read_text()
ROOMS = sorted(
    path.stem
    for path in Path(forebay.__file__).parent.iterdir()
    if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").exists())
)
NAMED = sorted(set(re.findall(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`", PAGE)))


def found(name):
    """The module, and in it what the rest of the name leads to."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            here = importlib.import_module(".".join(("forebay", *parts[:length])))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            here = getattr(here, part)
        return here
    raise AttributeError(name)


@pytest.mark.parametrize("name", NAMED)
def test_every_name_on_the_page_exists(name):
    assert found(name) is not None


def test_the_page_names_enough_to_be_worth_checking():
    assert len(NAMED) > 50


def test_every_room_is_in_the_table():
    assert [room for room in ROOMS if f"| `{room}` |" not in PAGE] == []


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        found("reconcile.tick.no_such_thing")


def test_the_tick_is_told_in_its_own_order():
    source = (Path(forebay.__file__).parent / "reconcile/tick.py").read_text()
    body = source[source.index("def tick(") :]
    section = PAGE[PAGE.index("## The tick") : PAGE.index("## The walk of one pod")]
    calls = [
        name for name in re.findall(r"`reconcile\.\w+\.(\w+)`", section) if f" {name}(" in body or f"*{name}(" in body
    ]

    assert len(calls) > 12
    order = [body.index(f"{name}(") for name in calls]
    assert order == sorted(order)
