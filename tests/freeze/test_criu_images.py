"""Images, as CRIU writes them and as somebody else might."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.criu_images import (
    FILES_MAGIC,
    IN_PARENT,
    LAZY,
    PAGEMAP_MAGIC,
    PRESENT,
    TREE_MAGIC,
    NotFiles,
    NotPagemap,
    NotTree,
    Span,
    read_pagemap,
    strays,
    unresolved_peers,
)
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


def unix_socket(inode: int, peer: int) -> bytes:
    """Write an entry of ``files.img``, with a field that nobody knows."""
    return entry((1, 5), (2, inode), (16, [(1, 9), (2, inode), (3, 1), (8, peer), (99, b"x")]))


PLAIN_FILE = entry((1, 1), (2, 4), (3, [(1, 4), (6, b"/etc/hostname")]))


def test_sockets_whose_other_end_is_in_no_image_are_found():
    """A pair, one that listens and one that waits for it in the tree are whole; one that waits elsewhere is not."""
    whole = FILES_MAGIC + PLAIN_FILE + unix_socket(1, 2) + unix_socket(2, 1) + unix_socket(3, 0) + unix_socket(4, 3)
    assert unresolved_peers(whole) == ()
    assert unresolved_peers(whole + unix_socket(5, 77) + PLAIN_FILE) == (5,)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (PAGEMAP_MAGIC, "does not begin"),
        (FILES_MAGIC + unix_socket(1, 2)[:-1], "cut off"),
        (FILES_MAGIC + b"\xff\xff\xff\xff", "cut off"),
        (FILES_MAGIC + entry((1, 5), (16, b"\x08")), "cut off"),
    ],
)
def test_what_is_no_list_of_files_is_refused(data, why):
    """An image that nobody understands is none that says all is well."""
    with pytest.raises(NotFiles, match=why):
        unresolved_peers(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_of_files_or_refused(data):
    """No other error, whatever is in the file."""
    try:
        unresolved_peers(FILES_MAGIC + data)
    except NotFiles:
        return


def tree(*tasks: tuple[int, int, int]) -> bytes:
    """Write a ``pstree.img``: of each task its number, that of its parent, and that of its session."""
    return TREE_MAGIC + b"".join(
        entry((1, pid), (2, parent), (3, pid), (4, session), (5, pid)) for pid, parent, session in tasks
    )


@pytest.mark.parametrize(
    ("tasks", "lost"),
    [
        pytest.param([(10, 0, 10), (11, 10, 10), (12, 11, 10), (13, 10, 13), (14, 13, 13)], (), id="plain"),
        pytest.param([(10, 0, 7), (11, 10, 7), (12, 11, 7)], (), id="led from outside"),
        pytest.param([(10, 0, 10), (11, 10, 11), (12, 11, 10)], (), id="its parent left the session"),
        pytest.param([(10, 0, 10), (11, 10, 9), (12, 11, 9)], (11,), id="the root adopted it, with its child"),
        pytest.param([(1, 0, 1), (11, 1, 9)], (), id="the first of a namespace adopts"),
        pytest.param([(1, 0, 1), (11, 1, 1), (12, 11, 9)], (12,), id="somebody else in a namespace adopted it"),
        pytest.param([(10, 0, 10), (11, 10, 11), (12, 10, 11)], (12,), id="its leader is no ancestor"),
        pytest.param([(10, 0, 7), (11, 10, 11), (12, 11, 7)], (12,), id="its parent left the session of others"),
        pytest.param([(10, 0, 10), (11, 12, 9), (12, 11, 8)], (11, 12), id="a circle"),
        pytest.param([(10, 0, 10), (11, 99, 9)], (11,), id="a parent that is none of them"),
    ],
)
def test_who_does_not_come_back_where_it_was_is_found(tasks, lost):
    """By who leads its session, and who its parent is."""
    assert strays(tree(*tasks)) == lost


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (TREE_MAGIC, "no task"),
        (tree((1, 0, 1))[:-1], "cut off"),
        (TREE_MAGIC + b"\xff\xff\xff\xff", "cut off"),
        (TREE_MAGIC + b"\x01\x00\x00\x00\x08", "cut off"),
    ],
)
def test_what_is_no_list_of_tasks_is_refused(data, why):
    """It is not taken for one in which all is well."""
    with pytest.raises(NotTree, match=why):
        strays(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_of_tasks_or_refused(data):
    """No other error, whatever is in the file."""
    try:
        strays(TREE_MAGIC + data)
    except NotTree:
        return
