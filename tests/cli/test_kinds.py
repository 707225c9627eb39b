"""What options hold."""

import click
import pytest

from iriscw.cli.kinds import Assignment, Duration, NodeCpu, SizeType, StateType
from iriscw.jobs.model import JobState
from raised import that


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SizeType(), "268435456", 2**28),
        (SizeType(), "1.5GiB", 3 * 2**29),
        (SizeType(), "0", 0),
        (Duration(), "90s", 90.0),
        (Assignment(), "A=b=c", ("A", "b=c")),
        (NodeCpu(), "250m", "250m"),
        (StateType(), "running", JobState.RUNNING),
    ],
)
def test_texts_become_values(kind, text, value):
    """Digits alone are bytes; values that were read already stay as they are."""
    assert kind.convert(text, None, None) == value
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (SizeType(), "12Q", that(comes_from="quantities._unit_bytes")),
        (SizeType(), "9" * 30, that(comes_from="quantities.parse_size")),
        (SizeType(1), "0", that(names="1B")),
        (Duration(), "90", that(comes_from="quantities._length_ms")),
        (Duration(), "90", that(names=("90s", "90m"))),
        (StateType(), "FAIL", that(names="FAILED")),
        (StateType(), "suspended", that(names="RUNNING")),
        (StateType(), "Q", that(names=("RUNNING", "UNSCHEDULABLE"))),
        (Assignment(), "A", that(names="NAME=VALUE")),
        (Assignment(), "=b", that(names="NAME=VALUE")),
        (NodeCpu(), "0", that(names="0")),
        (NodeCpu(), "x", that(names="CPU")),
    ],
)
def test_slips_are_named(kind, text, said):
    """What cannot be is told with what would be right."""
    with pytest.raises(click.BadParameter, check=said):
        kind.convert(text, None, None)
