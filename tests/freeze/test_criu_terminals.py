"""What the images say of terminals, as CRIU writes them and as somebody else might."""

import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.criu_images import FILES_MAGIC, TREE_MAGIC
from iriscw.freeze.criu_protobuf import encode
from iriscw.freeze.criu_terminals import (
    DESCRIPTORS_MAGIC,
    IDENTITIES_MAGIC,
    QUEUES_MAGIC,
    TERMINALS_MAGIC,
    NotTerminals,
    SavedTerminal,
    beyond_reach,
    descriptors_of,
    group_of_root,
    needed_numbers,
    outside,
    read_descriptors,
    read_flags,
    read_queues,
    read_terminals,
    trouble,
    without_queues,
    written_back,
)
from raised import that


def entry(*fields) -> bytes:
    """Write one entry."""
    data = encode(fields)
    return len(data).to_bytes(4, "little") + data


def side(number: int, *, master: bool = False, hung_up: bool = False, kind: int = 1, packets: bool = False) -> bytes:
    """Write one side of a terminal as ``tty-info.img`` has it."""
    modes = [] if hung_up else [(9, [(1, 0)])]
    return entry((1, number << 1 | master), (2, kind), (5, packets), (6, 7), (7, 9), *modes, (12, [(1, number)]))


def opened(number: int, *, master: bool = False, which: int = 1) -> bytes:
    """Write a description of it as ``files.img`` has it."""
    return entry((1, 11), (2, which), (19, [(1, which), (2, number << 1 | master)]))


def read(*sides: bytes, files: tuple[bytes, ...] = ()) -> tuple[SavedTerminal, ...]:
    """Read terminals that were written so."""
    return read_terminals(TERMINALS_MAGIC + b"".join(sides), FILES_MAGIC + b"".join(files))


def test_each_side_is_read() -> None:
    """With who had it, and how often it was opened; other files and other devices are read over."""
    other = entry((1, 1), (2, 9), (3, [(1, 9)]))
    files = (other, opened(3), opened(3, which=2), opened(3, master=True, which=3))
    assert read(side(3), side(3, master=True), side(1, kind=3), files=files) == (
        SavedTerminal(3, master=False, session=7, group=9, hung_up=False, opened=2, which=6),
        SavedTerminal(3, master=True, session=7, group=9, hung_up=False, opened=1, which=7),
    )


def test_what_waited_is_read() -> None:
    """By terminal and side, as it was given: by lines, in packets without the first byte; and of others nothing."""
    terminals = read(side(3), side(3, master=True, packets=True), side(4), side(4, master=True))
    data = QUEUES_MAGIC + entry((1, 6), (2, b"a\nb")) + entry((1, 7), (2, b"\0out\0put")) + entry((1, 99), (2, b"x"))
    log = "".join(
        f"(00.1) tty: {text}\n"
        for text in (
            "Read 2 bytes (2) from tty (pts 0x6)",
            "Read 1 bytes (3) from tty (pts 0x6)",
            "No more data on tty (pts 0x6)",
            "Read 4 bytes (4) from tty (ptmx 0x7)",
            "Read 4 bytes (8) from tty (ptmx 0x7)",
            "Not waiting data tty (ptmx 0x7)",
            "No more data on tty (pts 0x8)",
        )
    ).encode()
    found = {(3, False): (b"a\n", b"b", b""), (3, True): (b"out", b"put"), (4, False): (b"",)}
    assert read_queues(data, log, terminals) == found
    assert read_queues(data, b"", terminals) == {(3, False): (b"a\nb",), (3, True): (b"out\0put",)}
    rest = without_queues(data, 3)
    assert read_queues(rest, b"", read(side(99 >> 1, master=True))) == {(99 >> 1, True): (b"x",)}
    assert read_queues(b"", log, terminals) == {(3, False): (), (3, True): (), (4, False): (b"",)}
    for damaged in (data[:-1], b"else"):
        with pytest.raises(NotTerminals):
            read_queues(damaged, b"", terminals)


def test_that_it_was_written_back_is_read() -> None:
    """Where CRIU itself failed to read one."""
    assert written_back(b"Error (criu/tty.c:2142): tty: Can't read data from tty (pts 0x6): Bad file descriptor\n")
    assert not written_back(b"tty: Read 2 bytes (2) from tty (pts 0x6)\n")


def test_who_has_a_terminal_open_is_read() -> None:
    """With the flags that it had: from a task to its table, from that to its file."""
    assert descriptors_of(IDENTITIES_MAGIC + entry((1, 5), (2, 4))) == 4
    table = entry((1, 8), (2, 0), (3, 11), (4, 0)) + entry((1, 9), (2, 0), (3, 1), (4, 5))
    assert read_descriptors(DESCRIPTORS_MAGIC + table) == {0: 8, 5: 9}
    files = entry((1, 11), (2, 8), (19, [(1, 8), (2, 6), (3, 0o4002)])) + entry((1, 1), (2, 9), (3, [(1, 9)]))
    assert read_flags(FILES_MAGIC + files) == {8: (6, 0o4002)}
    for reader in (descriptors_of, read_descriptors, read_flags):
        with pytest.raises(NotTerminals):
            reader(b"else")
    with pytest.raises(NotTerminals):
        descriptors_of(IDENTITIES_MAGIC)


@pytest.mark.parametrize(
    ("sides", "files", "beyond", "needed", "why"),
    [
        ((), (), [], (), ""),
        ((side(3), side(3, master=True)), (opened(3), opened(3, which=2)), [], (3,), ""),
        ((side(3),), (opened(3),), [3], (), ""),
        ((side(3), side(5), side(5, master=True)), (opened(3),), [3], (5,), ""),
        ((side(3, hung_up=True),), (opened(3), opened(3, which=2)), [], (3,), ""),
        ((side(3),), (opened(3), opened(3, which=2)), [3], (), "it has opened its terminal, /dev/pts/3"),
        ((side(3), side(4)), (), [3, 4], (), "two terminals, /dev/pts/3 and /dev/pts/4"),
        (
            (side(3), side(3, master=True)),
            (opened(3), opened(3, master=True, which=2), opened(3, master=True, which=3)),
            [],
            (3,),
            "two terminals with the number 3",
        ),
    ],
)
def test_whose_other_side_is_in_the_tree(sides, files, beyond, needed, why) -> None:
    """Such a terminal is made again under its number; one from outside comes back once, and alone."""
    found = read(*sides, files=files)
    assert [each.number for each in outside(found)] == beyond
    assert needed_numbers(found) == needed
    assert why in trouble(found)
    assert bool(trouble(found)) == bool(why)


@pytest.mark.parametrize(
    ("numbers", "processes", "beyond"),
    [
        (range(40), 1, None),
        (range(31, -1, -1), 1, None),
        (range(32, -1, -1), 1, 32),
        ([*range(8, 40), *range(8)], 1, None),
        ([40, *range(40)], 1, 40),
        (range(32), 32, None),
        (range(33), 33, 32),
    ],
)
def test_terminals_that_are_too_many(numbers, processes, beyond) -> None:
    """CRIU makes 32 to get to a number: of those below, the ones that are there count no more."""
    files = FILES_MAGIC
    tables = [{} for _ in range(processes)]
    for at, number in enumerate(numbers):
        files += entry((1, 11), (2, at + 1), (19, [(1, at + 1), (2, number << 1 | 1), (3, 2)]))
        tables[at % processes][at + 3] = at + 1
    assert beyond_reach(files, tables) == beyond


def test_the_group_of_the_first_task() -> None:
    """It is the first that is named."""
    tree = TREE_MAGIC + entry((1, 100), (2, 0), (3, 90), (4, 80)) + entry((1, 101), (2, 100), (3, 101), (4, 80))
    assert group_of_root(tree) == 90
    with pytest.raises(NotTerminals, check=that(comes_from="criu_terminals.group_of_root")):
        group_of_root(TREE_MAGIC)


@given(st.binary(max_size=40), st.booleans())
def test_what_is_no_image_is_refused(data: bytes, whole: bool) -> None:
    """Nothing else comes of bytes that are none."""
    for reader in (group_of_root, lambda each: read_terminals(each, FILES_MAGIC)):
        for magic in (TREE_MAGIC, TERMINALS_MAGIC):
            try:
                reader((magic if whole else b"") + data)
            except NotTerminals:
                continue
