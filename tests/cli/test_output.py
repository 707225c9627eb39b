"""Tables, JSON and YAML."""

import enum
import json

import attrs
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from iriscw.cli.output import age, amount, cell, counts, plain, size, table, to_json, to_yaml

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=8)
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab:#- ", max_size=4), inner)
)


class Colour(enum.Enum):
    """For the tests."""

    RED = "red"


@attrs.frozen
class Thing:
    """For the tests."""

    name: str
    colour: Colour
    parts: tuple[int, ...] = ()
    by: dict[Colour, int] = attrs.field(factory=dict)


@given(PLAIN)
def test_yaml_says_what_json_says(value):
    """Whatever is written as YAML is read as the same value."""
    assert YAML(typ="safe", pure=True).load(to_yaml(value)) == value
    assert json.loads(to_json(value)) == value


def test_values_become_plain():
    """Attributes, enums, tuples and keys become what JSON knows."""
    thing = Thing("x", Colour.RED, (1,), {Colour.RED: 2})
    assert plain([thing]) == [{"name": "x", "colour": "red", "parts": [1], "by": {"red": 2}}]


def test_columns_line_up():
    """Columns are as wide as their widest cell, and lines end without spaces."""
    assert table(["A", "LONG"], [["xyz", "1"], ["y", ""]]) == "A    LONG\nxyz  1\ny\n"
    assert table(["A", "B"], []) == "A  B\n"


def test_cells_stay_on_their_line():
    """Line feeds cannot break a table, and an empty cell can be cut."""
    assert cell("a\nb  c") == "a b c"
    assert cell("") == "-"


def test_ages():
    """Ages have one unit, and what never was has none."""
    second = 1000
    ages = [age(1, 1 + delay * second) for delay in (0, 119, 120, 7200, 172_800)]
    assert ages == ["0s", "119s", "2m", "2h", "2d"]
    assert age(0, 5) == "-"
    assert age(10, 5) == "0s"


def test_amounts_and_counts():
    """Amounts and counts are short."""
    assert amount(1500, 2**30) == "1.5 CPU, 1GiB"
    assert amount(1000, 0, 8, "H100") == "1 CPU, 0B, 8 H100"
    assert size(3 * 2**40) == "3TiB"
    assert counts({Colour.RED: 2, "x": 0}) == "2 red"
