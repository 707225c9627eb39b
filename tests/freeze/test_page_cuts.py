"""Where files of pages are cut: the same memory has the same pieces, whatever else is mapped, however it is split."""

import itertools

from hypothesis import given, strategies as st

from iriscw.freeze.criu_images import AddressSpan, Pagemap
from iriscw.freeze.page_cuts import cuts_of, page_cuts

PAGE = 4096
WINDOW = 8 * PAGE


def pagemap_of(ranges):
    """Return the pagemap of ranges of (first page, pages), which do not overlap."""
    spans, offset = [], 0
    for first, count in sorted(ranges):
        spans.append(AddressSpan(first * PAGE, (first + count) * PAGE, offset, lazy=False))
        offset += count * PAGE
    return Pagemap(1, tuple(spans))


def pieces(pagemap):
    """Return the addresses of each piece."""
    addresses = [at for span in pagemap.spans for at in range(span.start, span.end, PAGE)]
    borders = [0, *cuts_of(pagemap, WINDOW), pagemap.size_bytes]
    assert borders == sorted(set(borders)) or not addresses
    return [tuple(addresses[a // PAGE : b // PAGE]) for a, b in itertools.pairwise(borders) if a < b]


@st.composite
def memories(draw):
    """Draw ranges of pages that do not overlap."""
    at, found = 0, []
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40)), min_size=1, max_size=8)):
        found.append((at + gap, count))
        at += gap + count
    return found


@given(memories())
def test_no_piece_crosses_a_window_or_a_gap(memory):
    """And together they are the file."""
    found = pieces(pagemap_of(memory))
    for piece in found:
        assert piece[-1] - piece[0] == (len(piece) - 1) * PAGE
        assert piece[0] // WINDOW == piece[-1] // WINDOW
    assert sum(map(len, found)) == sum(count for _, count in memory)


@given(memories(), st.data())
def test_how_ranges_are_split_does_not_matter(memory, data):
    """CRIU splits one mapping into several ranges by what it knows of their pages."""
    split = []
    for first, count in memory:
        at = data.draw(st.integers(0, count))
        split += [(first, at), (first + at, count - at)]
    assert pieces(pagemap_of([each for each in split if each[1]])) == pieces(pagemap_of(memory))


@given(memories(), memories())
def test_what_else_is_mapped_does_not_matter(memory, more):
    """Pieces of memory whose neighbours did not change are the same."""
    before = pieces(pagemap_of([(first + 1_000_000, count) for first, count in memory]))
    after = pieces(pagemap_of([*more, *((first + 1_000_000, count) for first, count in memory)]))
    assert after[-len(before) :] == before


def test_what_cannot_be_read_is_not_cut():
    """A pagemap of another dump, or two of one file."""
    assert page_cuts({"pagemap-1.img": b"none"}, page_size=PAGE, window_bytes=WINDOW) == {}
