"""Slices and scale groups on the wire."""

import attrs

from iriscw.client.wire import slice_status as read_slice
from iriscw.fleet import wire
from iriscw.fleet.model import Availability, SliceRow, SliceState, Trouble
from iriscw.runtime.vocabulary import MILLISECOND


def test_tables_are_complete() -> None:
    """Every state has a word on the wire."""
    assert wire._SLICE_STATES.keys() == set(SliceState)
    assert wire._AVAILABILITIES.keys() == set(Availability)


def test_a_slice_says_when_it_should_be_ready() -> None:
    """To clients as well, as far as that is known."""
    row = SliceRow("s", "g", SliceState.BOOTING, Trouble.NONE, "", 1, 1, expected_at=7 * MILLISECOND)
    assert read_slice(wire.slice_status(row, [])).expected_at_ms == 7
    assert read_slice(wire.slice_status(attrs.evolve(row, expected_at=None), [])).expected_at_ms == 0
