"""The objects of a second copy: what is written is read back, and nothing else is."""

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import JournalCorrupt
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.segments import Head, Segment, Snapshot, _encode, base_name, number_of, segment_name

entries = st.lists(
    st.builds(
        Entry,
        st.integers(1, 2**53),
        st.text(max_size=5),
        st.sampled_from([str(EntryKind.RECORD), str(EntryKind.SNAPSHOT), str(EntryKind.FORGET)]),
        st.text(max_size=9),
    ),
    max_size=5,
).map(tuple)
numbers = st.integers(1, 10**12 - 1)
texts = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=64)


@given(st.builds(Segment, numbers, texts, texts, numbers, entries))
def test_a_segment_is_read_as_it_was_written(segment):
    """Every field, whatever is in it."""
    assert Segment.decode(segment_name(segment.number), segment.encode()) == segment


@given(numbers, texts, numbers, entries)
def test_a_base_is_read_as_it_was_written(number, digest, through, kept):
    """It is a base itself."""
    snapshot = Snapshot(Head(number, digest, through, number), kept)
    assert Snapshot.decode(base_name(number), snapshot.encode()) == snapshot


@given(st.lists(numbers))
def test_names_sort_as_their_numbers(found):
    """However many digits they have."""
    assert sorted(map(segment_name, found)) == [segment_name(number) for number in sorted(found)]
    assert [number_of(segment_name(number)) for number in found] == found


SEGMENT = Segment(7, "me", "0" * 64, 3, (Entry(3, "/a", "r", "{}"),))


@given(st.data())
def test_any_damage_is_found(data):
    """A byte that is another one, or a part that is missing, makes the object none."""
    whole = SEGMENT.encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), whole[:at], whole[at + 1 :], b""):
        with pytest.raises(JournalCorrupt):
            Segment.decode(segment_name(7), damaged)


def test_what_is_something_else_is_refused():
    """Another number, a base for a segment, a name that is none."""
    for name, data in [
        (segment_name(8), SEGMENT.encode()),
        (segment_name(7), Snapshot(Head(7, "", 3, 7), ()).encode()),
        ("segments/x", SEGMENT.encode()),
        ("segments/7", SEGMENT.encode()),
        (segment_name(7), _encode("segment", {"number": 7}, ())),
    ]:
        with pytest.raises(JournalCorrupt):
            Segment.decode(name, data)
    with pytest.raises(JournalCorrupt):
        Snapshot.decode(base_name(7), SEGMENT.encode())
