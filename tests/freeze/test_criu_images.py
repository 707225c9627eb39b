"""Pagemaps, as CRIU writes them and as somebody else might."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.criu_images import IN_PARENT, LAZY, PAGEMAP_MAGIC, PRESENT, NotPagemap, Span, read_pagemap
from iriscw.freeze.criu_protobuf import encode

PAGE = 4096


def entry(*fields) -> bytes:
    """Write one entry."""
    data = encode(fields)
    return len(data).to_bytes(4, "little") + data


def pagemap(*entries: bytes) -> bytes:
    """Write a pagemap of ``pages-7.img``."""
    return PAGEMAP_MAGIC + entry((1, 7)) + b"".join(entries)


def test_pages_lie_one_after_the_other():
    """What is not present takes no room in the file; sizes of old and of new CRIUs count; no flags mean present."""
    read = read_pagemap(
        pagemap(
            entry((1, 0x10000), (2, 2), (4, PRESENT)),
            entry((1, 0x20000), (2, 1), (4, 0)),
            entry((1, 0x30000), (2, 1), (4, PRESENT | LAZY), (5, 3)),
            entry((1, 0x40000), (2, 1)),
        ),
        PAGE,
    )
    assert read.pages == 7
    assert read.spans == (
        Span(0x10000, 0x12000, 0, lazy=False),
        Span(0x30000, 0x33000, 2 * PAGE, lazy=True),
        Span(0x40000, 0x41000, 5 * PAGE, lazy=False),
    )
    assert read.size_bytes == 6 * PAGE


def test_a_pagemap_without_pages_has_none():
    """A process may have no memory of its own."""
    assert read_pagemap(pagemap(), PAGE).size_bytes == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (PAGEMAP_MAGIC, "no beginning"),
        (pagemap(entry((1, 0x10000), (2, 1), (4, IN_PARENT))), "another dump"),
        (pagemap(entry((1, 0x10000), (2, 1), (3, True))), "another dump"),
        (pagemap(entry((1, 0x10000), (2, 1), (4, LAZY))), "never written"),
        (pagemap(entry((1, 0x10001), (2, 1), (4, PRESENT))), "a range"),
        (pagemap(entry((1, 0x10000), (2, 0), (4, PRESENT))), "a range"),
        (pagemap(entry((1, 0x10000), (2, 1), (4, PRESENT), (5, 1 << 50))), "a range"),
        (pagemap(entry((1, 0x10000), (2, 1)))[:-1], "cut off"),
        (pagemap(b"\xff\xff\xff\xff"), "cut off"),
        (pagemap(b"\x01\x00\x00\x00\x08"), "cut off"),
    ],
)
def test_what_is_no_pagemap_is_refused(data, why):
    """Nothing is guessed about where a page lies."""
    with pytest.raises(NotPagemap, match=why):
        read_pagemap(data, PAGE)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    """No other error, whatever is in the file."""
    try:
        read_pagemap(PAGEMAP_MAGIC + data, PAGE)
    except NotPagemap:
        return
