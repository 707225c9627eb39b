"""Lines come out as they went in, wherever the stream is cut, and never grow beyond their limit."""

import json

import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.kube.lines import Lines, LineTooLong
from raised import that


@given(
    st.lists(st.text(max_size=20).map(json.dumps)),
    st.lists(st.integers(1, 7), min_size=1),
    st.booleans(),
)
def test_cuts_anywhere_change_nothing(texts, sizes, ended):
    """Chunks may end within a line, within a character, or bring nothing."""
    lines = [text.encode() for text in texts]
    stream = b"\n".join(lines) + (b"\n" if ended else b"")
    cutter, found, begin, turn = Lines(1000), [], 0, 0
    while begin < len(stream):
        size = sizes[turn % len(sizes)]
        found += cutter.feed(stream[begin : begin + size])
        found += cutter.feed(b"")
        begin, turn = begin + size, turn + 1
    complete = lines if ended else lines[:-1]
    assert found == complete
    assert cutter.held_bytes == (0 if ended or not lines else len(lines[-1]))


def test_empty_lines_are_left_out():
    """Some proxies send them to keep a connection alive."""
    assert list(Lines(10).feed(b"\n\r\n \na\n\n")) == [b"a"]


def test_the_limit_is_a_limit():
    """A line of that length is one; a longer one is refused, though it has not ended."""
    assert list(Lines(3).feed(b"abc\n")) == [b"abc"]
    with pytest.raises(LineTooLong, check=that(comes_from="lines.Lines._hold", names="3")):
        list(Lines(3).feed(b"abcd\n"))
    dripping = Lines(3)
    for drop in (b"a", b"b", b"c"):
        assert list(dripping.feed(drop)) == []
    with pytest.raises(LineTooLong):
        list(dripping.feed(b"d"))


def test_a_long_line_costs_its_length():
    """A megabyte that drips in byte by byte is not put together each time."""
    lines = Lines(2**20)
    for _ in range(2**16):
        assert not list(lines.feed(b"x"))
    assert lines.held_bytes == 2**16
    assert [len(line) for line in lines.feed(b"\n")] == [2**16]
