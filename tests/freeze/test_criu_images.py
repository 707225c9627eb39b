"""Images, as CRIU writes them and as somebody else might."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.criu_images import (
    CORE_MAGIC,
    FILES_MAGIC,
    IN_PARENT,
    LAZY,
    MM_MAGIC,
    PAGEMAP_MAGIC,
    PRESENT,
    TREE_MAGIC,
    AddressSpan,
    NotFiles,
    NotImage,
    NotPagemap,
    NotTree,
    death_signal,
    mended,
    privately_mapped,
    raw_entries,
    read_pagemap,
    socket_names,
    strays,
    threads_of,
    unresolved_peers,
    waiting_on,
    without_death_signal,
)
from iriscw.freeze.criu_protobuf import decode, encode, message
from raised import that

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
        AddressSpan(0x10000, 0x12000, 0, lazy=False),
        AddressSpan(0x30000, 0x33000, 2 * PAGE, lazy=True),
        AddressSpan(0x40000, 0x41000, 5 * PAGE, lazy=False),
    )
    assert read.size_bytes == 6 * PAGE


def test_a_pagemap_without_pages_has_none():
    """A process may have no memory of its own."""
    assert read_pagemap(pagemap(), PAGE).size_bytes == 0


def named_socket(kind: int, state: int, name: bytes, *more) -> bytes:
    """Write an entry of a Unix socket that has a name."""
    return entry((1, 5), (2, 1), (16, encode([(2, 1), (3, kind), (4, state), (11, name), *more])))


def test_the_names_by_which_sockets_are_reached_are_found():
    """One that listens, one for datagrams, one bound from its folder, one whose file is gone; not those of nobody."""
    stream, datagram, connected, listens = 1, 2, 1, 10
    data = FILES_MAGIC + PLAIN_FILE
    data += named_socket(stream, listens, b"/a\0") + named_socket(datagram, connected, b"/b\0")
    data += named_socket(stream, listens, b"c\0", (14, b"/folder")) + named_socket(stream, listens, b"/d\0", (15, 1))
    data += named_socket(stream, connected, b"/accepted\0") + named_socket(stream, listens, b"\0abstract")
    data += unix_socket(1, 2)
    assert socket_names(data) == ((b"/a", False), (b"/b", False), (b"/folder/c", False), (b"/d", True))
    with pytest.raises(NotFiles):
        socket_names(b"")
    with pytest.raises(NotFiles):
        socket_names(data[:-1])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", that(comes_from="criu_images.read_pagemap")),
        (PAGEMAP_MAGIC, that(comes_from="criu_images.read_pagemap")),
        (pagemap(entry((1, 0x10000), (2, 1), (4, IN_PARENT))), that(comes_from="criu_images.read_pagemap")),
        (pagemap(entry((1, 0x10000), (2, 1), (3, True))), that(comes_from="criu_images.read_pagemap")),
        (pagemap(entry((1, 0x10000), (2, 1), (4, LAZY))), that(comes_from="criu_images.read_pagemap")),
        (pagemap(entry((1, 0x10001), (2, 1), (4, PRESENT))), that(comes_from="criu_images.read_pagemap")),
        (pagemap(entry((1, 0x10000), (2, 0), (4, PRESENT))), that(comes_from="criu_images.read_pagemap")),
        (
            pagemap(entry((1, 0x10000), (2, 1), (4, PRESENT), (5, 1 << 50))),
            that(comes_from="criu_images.read_pagemap"),
        ),
        (pagemap(entry((1, 0x10000), (2, 1)))[:-1], that(comes_from="criu_images.raw_entries")),
        (pagemap(b"\xff\xff\xff\xff"), that(comes_from="criu_images.raw_entries")),
        (pagemap(b"\x01\x00\x00\x00\x08"), that(comes_from="criu_protobuf._read_varint")),
    ],
)
def test_what_is_no_pagemap_is_refused(data, why):
    """Nothing is guessed about where a page lies."""
    with pytest.raises(NotPagemap, check=why):
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
        (b"", that(comes_from="criu_images.unresolved_peers")),
        (PAGEMAP_MAGIC, that(comes_from="criu_images.unresolved_peers")),
        (FILES_MAGIC + unix_socket(1, 2)[:-1], that(comes_from="criu_images.unresolved_peers")),
        (FILES_MAGIC + b"\xff\xff\xff\xff", that(comes_from="criu_images.unresolved_peers")),
        (FILES_MAGIC + entry((1, 5), (16, b"\x08")), that(comes_from="criu_protobuf._read_varint")),
    ],
)
def test_what_is_no_list_of_files_is_refused(data, why):
    """An image that nobody understands is none that says all is well."""
    with pytest.raises(NotFiles, check=why):
        unresolved_peers(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_of_files_or_refused(data):
    """No other error, whatever is in the file."""
    try:
        unresolved_peers(FILES_MAGIC + data)
        socket_names(FILES_MAGIC + data)
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
        (b"", that(comes_from="criu_images.strays")),
        (TREE_MAGIC, that(comes_from="criu_images.strays")),
        (tree((1, 0, 1))[:-1], that(comes_from="criu_images.raw_entries")),
        (TREE_MAGIC + b"\xff\xff\xff\xff", that(comes_from="criu_images.raw_entries")),
        (TREE_MAGIC + b"\x01\x00\x00\x00\x08", that(comes_from="criu_protobuf._read_varint")),
    ],
)
def test_what_is_no_list_of_tasks_is_refused(data, why):
    """It is not taken for one in which all is well."""
    with pytest.raises(NotTree, check=why):
        strays(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_of_tasks_or_refused(data):
    """No other error, whatever is in the file."""
    try:
        strays(TREE_MAGIC + data)
    except NotTree:
        return


def image(magic, *entries):
    """Return an image with these entries."""
    return magic + b"".join(len(entry).to_bytes(4, "little") + entry for entry in entries)


def regular(number, size=9):
    """Return the entry of an open file."""
    return encode([(1, 1), (2, number), (3, [(1, number), (2, 0), (3, 7), (6, "log"), (8, size), (10, 0o600)])])


def timer(ticks, value, interval):
    """Return the entry of a timer's descriptor: nanoseconds."""
    return encode([(1, 17), (2, 5), (12, [(1, 5), (4, 1), (5, ticks), (7, 0), (8, value), (9, 0), (10, interval)])])


def files_in(data):
    """Return the entries of an image of files."""
    return [*raw_entries(data, 1 << 20)]


def test_sizes_of_open_files_are_left_out_but_of_those_with_pages_of_their_own() -> None:
    """A log may grow; a library has to be the same. All else stays to the letter."""
    pipe = encode([(1, 2), (2, 8), (18, [(1, 8), (2, 3)])])
    kept, forgiven, other = files_in(mended(image(FILES_MAGIC, regular(1), regular(2), pipe), {1}))
    assert (kept, other) == (regular(1), pipe)
    assert 8 not in message(decode(forgiven)[3])
    assert {**message(decode(forgiven)[3]), 8: 9} == message(decode(regular(2))[3])
    with pytest.raises(NotFiles):
        mended(image(CORE_MAGIC, regular(1)), ())
    with pytest.raises(NotFiles):
        mended(image(FILES_MAGIC, regular(1))[:-1], ())


@pytest.mark.parametrize(
    ("ticks", "value", "interval", "armed"),
    [(1, 0, 20, 20), (0, 0, 20, 0), (1, 5, 20, 5), (1, 0, 0, 0), (0, 7, 0, 7)],
)
def test_a_periodic_timer_that_nobody_has_read_is_armed(ticks, value, interval, armed) -> None:
    """The kernel would arm it at the next read. One that is armed, is not periodic, or was switched off stays so."""
    (entry,) = files_in(mended(image(FILES_MAGIC, timer(ticks, value, interval)), ()))
    found = message(decode(entry)[12])
    assert (found[7], found[8], found[10]) == (0, armed, interval)


EINTR = (1 << 64) - 4


def core(ax=EINTR, call=7, machine=1, mode=1, pending=(), shared=()):
    """Return the image of a thread, with what is pending for it and for its process."""
    registers = [(11, ax), (16, call), (17, 1000), (18, 51), (28, mode)]
    fields = [
        (1, machine),
        (2, [(1, 5), (2, registers)]),
        (3, [(6, "x"), (10, [*shared])]),
        (5, [(1, 2), (9, [*pending])]),
    ]
    return image(CORE_MAGIC, encode(fields))


SIGNAL = ((1, b"x"),)


@pytest.mark.parametrize("call", [7, 35, 202, 230])
def test_a_thread_that_waits_or_sleeps_makes_the_call_again(call) -> None:
    """At the instruction of two bytes before, with the number that it had."""
    (entry,) = files_in(waiting_on(core(call=call)))
    registers = message(message(decode(entry)[2])[2])
    assert (registers[11], registers[16], registers[17], registers[18]) == (call, call, 998, 51)


@pytest.mark.parametrize(
    "words",
    [
        {"ax": 3},
        {"call": 232},
        {"call": (1 << 64) - 1},
        {"machine": 3},
        {"mode": 2},
        {"pending": SIGNAL},
        {"shared": SIGNAL},
    ],
    ids=str,
)
def test_other_threads_are_as_criu_wrote_them(words) -> None:
    """Who is in another call, on another machine or in its other mode, or has a signal to take."""
    assert waiting_on(core(**words)) == core(**words)


def test_death_signals_and_private_mappings_are_read() -> None:
    """Of a thread, and of a process: what it executes is among its files."""
    assert death_signal(image(CORE_MAGIC, encode([(1, 1), (5, [(1, 2), (8, 15)])]))) == 15
    assert death_signal(core()) == 0
    marked = image(CORE_MAGIC, encode([(1, 1), (5, [(1, 2), (8, 15), (3, 4)])]))
    assert without_death_signal(marked) == image(CORE_MAGIC, encode([(1, 1), (5, [(1, 2), (3, 4)])]))
    maps = [
        (14, [(1, 0), (4, 7), (7, 1 | 1 << 6)]),
        (14, [(1, 1), (4, 8), (7, 1 | 1 << 7)]),
        (14, [(1, 2), (4, 9), (7, 1 << 6)]),
    ]
    assert privately_mapped(image(MM_MAGIC, encode([(1, 0), (12, 3), *maps]))) == (3, 7, 9)
    for reader in (death_signal, privately_mapped):
        with pytest.raises(NotImage):
            reader(image(FILES_MAGIC, b""))


def test_threads_of_the_first_task() -> None:
    """Each by itself, or many in one field."""
    one = encode([(1, 5), (2, 0), (3, 5), (4, 5), (5, 5), (5, 6)])
    many = encode([(1, 5), (2, 0), (3, 5), (4, 5), (5, bytes([5, 6, 0x80, 2]))])
    assert threads_of(image(TREE_MAGIC, one, many)) == (5, 6)
    assert threads_of(image(TREE_MAGIC, many)) == (5, 6, 256)
    for broken in (image(FILES_MAGIC, one), image(TREE_MAGIC), image(TREE_MAGIC, one)[:-1]):
        with pytest.raises(NotTree):
            threads_of(broken)
