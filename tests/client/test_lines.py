"""Lines put together from batches."""

import itertools

from hypothesis import given, strategies as st

from iriscw.client.lines import LINE_LIMIT_BYTES, MAX_CURSORS, LineReader
from iriscw.proto.iriscw.v1 import LogBatch


def read(reader, *batches):
    """Feed batches and give the texts."""
    return [line.text for batch in batches for line in reader.take(batch)]


def batch(offset, data, *, uid="a", at_end=False):
    """Make a batch."""
    return LogBatch(attempt_uid=uid, offset=offset, data=data, at_end=at_end)


@given(st.lists(st.text(alphabet="ab é", max_size=5), max_size=8), st.lists(st.integers(0, 40), max_size=6), st.data())
def test_lines_do_not_depend_on_the_cuts(lines, cuts, data):
    """However the bytes are cut, and whatever is sent twice, the same lines come out."""
    whole = "".join(f"{line}\n" for line in lines).encode()
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    reader = LineReader()
    found = []
    for start, end in itertools.pairwise(edges):
        again = data.draw(st.integers(0, start))
        found += read(reader, batch(again, whole[again:end]))
    assert found == lines


def test_the_end_completes_the_last_line():
    """A line without a line feed is given when its attempt ends, or when nothing more comes."""
    reader = LineReader()
    assert read(reader, batch(0, b"x"), batch(1, b"y", at_end=True)) == ["xy"]
    assert read(reader, batch(0, b"rest", uid="b")) == []
    assert [line.text for line in reader.finish()] == ["rest"]


def test_a_gap_ends_the_line_before_it():
    """What the store has dropped never glues two lines together."""
    reader = LineReader()
    assert read(reader, batch(0, b"one\ntw"), batch(100, b"later\n")) == ["one", "tw", "later"]


def test_gaps_are_told():
    """What is no longer kept is told before what follows it: where, and how much."""
    told = []
    reader = LineReader(lambda gap: told.append(str(gap)))
    assert read(reader, batch(10, b"a\n")) == ["a"]
    assert read(reader, batch(10, b"a\nb\n"), batch(20, b"c\n")) == ["b", "c"]
    assert read(reader, batch(7, b"", uid="gone", at_end=True)) == []
    assert told == [
        "task 0, attempt 0: the first 10 bytes of the log are no longer kept",
        "task 0, attempt 0: 6 bytes of the log, from byte 14 on, are no longer kept",
        "task 0, attempt 0: the first 7 bytes of the log are no longer kept",
    ]


def test_a_tail_misses_nothing_before_it():
    """Who asked for the end of a log is not told that it begins late."""
    told = []
    reader = LineReader(told.append, whole=False)
    assert read(reader, batch(10, b"a\n"), batch(12, b"b\n")) == ["a", "b"]
    assert told == []


def test_a_long_line_is_given_in_pieces():
    """A reader's memory stays bounded whatever a task writes."""
    reader = LineReader()
    found = read(reader, *(batch(at, b"x" * 50_000) for at in range(0, 500_000, 50_000)), batch(500_000, b"\nshort\n"))
    assert max(map(len, found)) == LINE_LIMIT_BYTES
    assert "".join(found) == "x" * 500_000 + "short"


def test_attempts_are_kept_apart():
    """Batches of two attempts may arrive mixed; each has its own cursor."""
    reader = LineReader()
    assert read(reader, batch(0, b"a"), batch(0, b"b", uid="b"), batch(1, b"a\n"), batch(1, b"b\n", uid="b")) == [
        "aa",
        "bb",
    ]
    assert {cursor.attempt_uid: cursor.offset for cursor in reader.cursors()} == {"a": 3, "b": 3}


def test_what_is_no_text_is_replaced():
    """Bytes that are no UTF-8 do not break a reader, nor do carriage returns."""
    assert read(LineReader(), batch(0, b"\xff ok\r\n")) == ["\ufffd ok"]


def test_a_request_has_room_for_so_many_cursors():
    """Of many attempts the latest go on where they were; of the others all comes again, and is left out."""
    reader = LineReader()
    for number in range(MAX_CURSORS + 5):
        list(reader.take(batch(0, b"a\n", uid=f"uid-{number}")))
    cursors = reader.cursors()
    assert len(cursors) == MAX_CURSORS
    assert cursors[0].attempt_uid == "uid-5"
    assert list(reader.take(batch(0, b"a\n", uid="uid-0"))) == []


PIECES = st.lists(st.sampled_from([b"a", b"\xc3\xa9", "✓".encode(), b"\xff", b"\n", b"\r"]), max_size=12)


@given(PIECES, st.lists(st.integers(0, 30)), st.data())
def test_pieces_make_up_the_same_lines(parts, cuts, data):
    """Whenever somebody looks at what has come so far, pieces put together are the lines; no letter is cut in two."""
    whole = b"".join(parts)
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    reader, found = LineReader(), []
    for start, end in itertools.pairwise(edges):
        found += list(reader.take(batch(start, whole[start:end])))
        if data.draw(st.booleans()):
            found += list(reader.so_far())
            assert not reader.unfinished
    found += list(reader.finish())
    text = "".join(line.text + ("\n" if line.ended else "") for line in found)
    plain = LineReader()
    lines = [*plain.take(batch(0, whole)), *plain.finish()]
    assert text.replace("\r", "") == "".join(f"{line.text}\n" for line in lines).replace("\r", "")


def test_a_long_line_is_one_line():
    """Its pieces say that it goes on; whether it came at once, or bit by bit."""
    whole = b"x" * (3 * LINE_LIMIT_BYTES) + b"\n"
    for step in (len(whole), LINE_LIMIT_BYTES, 1000):
        reader = LineReader()
        lines = [line for at in range(0, len(whole), step) for line in reader.take(batch(at, whole[at : at + step]))]
        assert "".join(line.text for line in lines) == "x" * (3 * LINE_LIMIT_BYTES)
        assert [line.ended for line in lines].count(True) == 1
        assert lines[-1].ended
