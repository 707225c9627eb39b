"""Tables, JSON and YAML."""

import enum
import json
import sys

import attrs
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from iriscw.cli.output import (
    age,
    amount,
    cell,
    counts,
    is_coloured,
    plain,
    size,
    table,
    terminal_columns,
    to_json,
    to_yaml,
)

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


def test_the_last_column_is_cut_to_the_terminal():
    """A line is as long as the terminal at most; without one nothing is cut."""
    heads, rows = ["A", "REASON"], [["x" * 10, "y" * 50], ["z", "short"]]
    lines = table(heads, rows, 52).splitlines()
    assert [len(line) for line in lines[1:]] == [52, 17]
    assert lines[1].endswith("y\N{HORIZONTAL ELLIPSIS}")
    assert len(table(heads, rows).splitlines()[1]) == 62


def test_a_long_text_has_a_line_of_its_own():
    """Where a terminal has little room beside the other columns, what does not fit there follows, indented."""
    heads, rows = ["A", "REASON"], [["x" * 10, "y" * 50], ["z", "short"]]
    assert table(heads, rows, 30) == (
        f"A           REASON\n{'x' * 10}\n    {'y' * 25}\N{HORIZONTAL ELLIPSIS}\nz           short\n"
    )


def test_columns_without_room_are_left_out():
    """From the right, and the table says which; names are whole, and a narrow terminal has one line more."""
    heads, rows = ["ID", "STATE", "GROUP", "AGE", "WHY"], [["i" * 12, "s" * 12, "g" * 12, "3d", "none"]]
    assert table(heads, rows, 46, kept=("GROUP",)) == (
        "ID            STATE     GROUP         AGE  WHY\n"
        f"{'i' * 12}  {'s' * 7}\N{HORIZONTAL ELLIPSIS}  {'g' * 12}  3d\n    none\n"
    )
    assert table(heads, rows, 32, kept=("GROUP",)) == (
        f"ID            GROUP         WHY\n{'i' * 12}  {'g' * 12}  none\n(no room for STATE, AGE: -o json\nhas all)\n"
    )


@given(
    st.lists(st.lists(st.text("abc", min_size=1, max_size=40), min_size=6, max_size=6), min_size=1, max_size=3),
    st.integers(1, 120),
    st.booleans(),
)
def test_a_name_is_never_cut(rows, columns, whole):
    """Whatever the width is, cells of the first column and of those that are kept stand in their line as they are, and
    a line is longer than the terminal only where names leave no room.
    """
    text = table(["A", "B", "C", "D", "E", "F"], rows, columns, kept=("C", "E"), whole=whole)
    lines = text.partition("\n(")[0].splitlines()
    named = [(row[0], row[2], row[4]) for row in rows]
    found = [line.split() for line in lines[1:] if not line.startswith(" ")]
    assert [[name for name in names if name in words] for names, words in zip(named, found, strict=True)] == [
        [*names] for names in named
    ]
    if sum(max(map(len, cells)) + 2 for cells in zip(*named, strict=True)) + 1 <= columns >= 20:
        assert max(map(len, text.splitlines())) <= columns


def test_pipes_get_the_whole(monkeypatch):
    """Nothing is cut where standard output is not a terminal; a terminal says how wide it is."""
    assert terminal_columns() is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "93")
    assert terminal_columns() == 93


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


def test_colours_are_for_terminals(monkeypatch):
    """Which can show them, and whose users want them."""
    assert not is_coloured({"TERM": "xterm"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert [
        is_coloured(each) for each in ({"TERM": "xterm"}, {"TERM": "dumb"}, {}, {"TERM": "xterm", "NO_COLOR": "1"})
    ] == [
        True,
        False,
        False,
        False,
    ]
