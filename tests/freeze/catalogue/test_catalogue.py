"""The catalogue: programs and shapes, each frozen and thawed, beside CRIU alone. None may be lost."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from catalogue_entry import Lost, NotFetched, Unavailable
from catalogue_judge import Judged, check, judge, judge_bare
from program_entries import PROGRAMS
from server_entries import SERVERS
from shape_entries import SHAPES

ENTRIES = (*SHAPES, *SERVERS, *PROGRAMS)


def _marked(entry):
    mark = pytest.mark.soak if entry.soak else pytest.mark.slow
    return pytest.param(entry, id=entry.name, marks=() if entry.quick else mark)


def _row(record_property, entry, iriscw, bare):
    def cells(judged):
        return {
            "outcome": judged.outcome,
            "seconds": list(judged.seconds),
            "size_bytes": judged.size_bytes,
            "detail": judged.detail,
        }

    record_property("catalogue", {"name": entry.name, "iriscw": cells(iriscw), "bare": cells(bare)})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("entry", [_marked(entry) for entry in ENTRIES])
def test_nothing_is_lost(entry, stage, record_property):
    """It comes back whole, or is refused while it runs, as is written down for it."""
    try:
        on_bare = stage()
        bare = judge_bare(entry, on_bare)
        on_bare.end()
        try:
            judged = judge(entry, stage())
        except Lost as error:
            _row(record_property, entry, Judged("LOST", detail=str(error)), bare)
            raise
    except Unavailable as error:
        if os.environ.get("CI") and isinstance(error, NotFetched):
            raise
        pytest.skip(f"{entry.name}: {error}")
    _row(record_property, entry, judged, bare)
    check(entry, judged)


def test_no_name_stands_twice():
    """Each entry has a name of its own, and there are as many as were asked for."""
    names = [entry.name for entry in ENTRIES]
    assert sorted({*names}) == sorted(names)
    assert len(names) >= 60


QUEUES = ("unread in a terminal, raw", "unread in a terminal, by lines", "closed terminal")


@pytest.mark.slow
@pytest.mark.parametrize("entry", [pytest.param(each, id=each.name) for each in SHAPES if each.name in QUEUES])
def test_a_copy_changes_nothing(entry, stage):
    """CRIU takes out what waits in terminals; a tree that runs on has it as it was, and a copy of it, too."""
    for left in (2, 1, 0):
        try:
            judged = judge(entry, stage(), copied=True)
        except Lost as error:  # it was copied just when it had a file open that it has renamed since
            if not left or "said.new" not in str(error):
                raise
        else:
            check(entry, judged)
            break
