"""What judges the catalogue finds what it is there to find."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from catalogue_entry import WHOLE, Entry, Stage, Without, refused
from catalogue_judge import Judged, check
from catalogue_report import lines_of, rows_of
from process_attributes import differences
from shape_entries import said, shape
from shape_program import PAUSE_S


def attributes(**changes):
    """Return those of a process with one thread."""
    thread = {"number": 7, "nice": "0", **changes.pop("thread", {})}
    return {7: {"folder": "/", "locks": [], "threads": [thread], **changes}}


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (attributes(), []),
        (attributes(folder="/tmp"), ["folder"]),
        (attributes(thread={"nice": "1"}), ["nice"]),
        (attributes(threads=[]), ["threads"]),
        ({}, ["processes"]),
    ],
)
def test_each_change_of_an_attribute_is_found(after, names):
    """That of a process, of a thread, and that one of them is missing."""
    assert sorted(differences(attributes(), after)) == names


@pytest.mark.parametrize(
    ("verdict", "judged", "fits"),
    [
        (WHOLE, Judged("whole"), True),
        (WHOLE, Judged("refused"), False),
        (refused("gate"), Judged("refused", detail="the gate is shut"), True),
        (refused("gate"), Judged("refused", detail="no room"), False),
        (refused(), Judged("whole"), False),
        (Without({"locks"}), Judged("without"), True),
        (Without({"locks"}), Judged("refused"), False),
    ],
)
def test_another_outcome_than_the_expected_one_fails(verdict, judged, fits):
    """A refusal where it has to come back, the other way round, and a refusal for another reason."""
    entry = Entry("name", begin=None, verdict=verdict)
    if fits:
        check(entry, judged)
    else:
        with pytest.raises(AssertionError):
            check(entry, judged)


class Report:
    """What pytest tells of a test."""

    def __init__(self, *properties):
        self.user_properties = properties


def test_the_table_tells_both_and_what_was_lost():
    """A row for each entry, by name, a count of outcomes, and why something was lost."""
    good = {"outcome": "whole", "seconds": [0.25, 0.5], "size_bytes": 2_000_000, "detail": ""}
    bad = {"outcome": "LOST", "seconds": [], "size_bytes": 0, "detail": "it does not go on"}
    rows = rows_of(
        [
            Report(("catalogue", {"name": "two", "iriscw": good, "bare": bad}), ("other", 1)),
            Report(("catalogue", {"name": "one", "iriscw": good, "bare": good})),
        ]
    )
    head, one, two, count, detail = lines_of(rows)
    assert head.split()[0] == "entry"
    assert one.split() == ["one", "whole", "0.25/0.50", "whole", "0.25/0.50", "2.0"]
    assert two.split() == ["two", "whole", "0.25/0.50", "LOST", "-", "2.0"]
    assert count == "2 entries: 2 whole, 0 without, 0 refused, 0 LOST"
    assert detail.startswith("two: bare: LOST")


def test_a_shape_rests_while_it_is_looked_at(tmp_path):
    """It says so, does nothing until it is let go, and then counts on."""
    stage = Stage(tmp_path)
    try:
        shown = shape("plain").begin(stage)
        with shown.at_rest():
            resting = said(tmp_path)
            assert resting["resting"]
            time.sleep(10 * PAUSE_S)
            assert said(tmp_path) == resting
        shown.goes_on()
    finally:
        stage.end()
