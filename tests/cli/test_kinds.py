"""What options hold."""

import click
import pytest

from iriscw.cli.kinds import Assignment, Duration, NodeCpu, Size


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Size(), "268435456", 2**28),
        (Size(), "1.5GiB", 3 * 2**29),
        (Size(), "0", 0),
        (Duration(), "90s", 90.0),
        (Assignment(), "A=b=c", ("A", "b=c")),
        (NodeCpu(), "250m", "250m"),
    ],
)
def test_texts_become_values(kind, text, value):
    """Digits alone are bytes; values that were read already stay as they are."""
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (Size(), "12Q", "unknown unit"),
        (Size(), "9" * 30, "is more than|is not a size"),
        (Size(1), "0", "less than 1B"),
        (Duration(), "90", "is not a length of time"),
        (Assignment(), "A", "not NAME=VALUE"),
        (Assignment(), "=b", "not NAME=VALUE"),
        (NodeCpu(), "0", "0 cores run nothing"),
        (NodeCpu(), "x", "is not a number of CPU cores"),
    ],
)
def test_slips_are_named(kind, text, said):
    """What cannot be is told with what would be right."""
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(text, None, None)
