"""The format of a folder that is carried: what is written is read, and nothing else is."""

import json

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.carried import (
    MAGIC,
    MAX_DEPTH,
    PACK,
    FolderDamaged,
    FolderUnfit,
    PackedEntry,
    PackedKind,
    PackReading,
    carried_as,
    decode,
    encode,
    encode_end,
    name_trouble,
)
from raised import that

NAMES = st.binary(min_size=1, max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PATHS = st.lists(NAMES, max_size=4).map("/".join).filter(lambda path: not name_trouble(path))
EXTENTS = st.lists(st.integers(1, 1 << 20), max_size=4).map(
    lambda sizes: tuple((sum(sizes[:at]) * 2, size) for at, size in enumerate(sizes))
)
FILES = st.builds(
    lambda path, extents, more, rights: PackedEntry(
        path,
        PackedKind.FILE,
        rights,
        1000,
        100,
        -5,
        size_bytes=max((offset + size for offset, size in extents), default=0) + more,
        extents=extents,
        attributes=(("user.a", b"\0\xff"),),
    ),
    PATHS,
    EXTENTS,
    st.integers(0, 100),
    st.integers(0, 0o7777),
)
TOP = PackedEntry("", PackedKind.FOLDER, 0o700, 0, 0, 1)
FILE = PackedEntry("a", PackedKind.FILE, 0o600, 0, 0, 1, 3, ((0, 3),))


@given(FILES)
def test_what_is_written_is_read(entry):
    """Names that are no text, holes, attributes, and times before 1970 as well."""
    line = encode(entry)
    assert line.count(b"\n") == 1
    assert decode(line) == entry
    assert decode(encode_end(7)) == 7


def test_golden():
    """The first version's lines are read by every later one."""
    line = (
        b'{"attributes":[["user.a","eA=="]],"changed_ns":1,"extents":[[0,3]],"group":0,"kind":"file","mode":384,'
        b'"path":"a","size_bytes":3,"target":"","user":0}\n'
    )
    entry = attrs.evolve(FILE, attributes=(("user.a", b"x"),))
    assert (encode(entry), decode(line)) == (line, entry)
    assert (encode_end(2), MAGIC, PACK) == (b'{"end": 2}\n', b"iriscw-folder 1\n", "folder.pack")


ESCAPES = ["../a", "a/../../b", "/a", "a//b", "a/", ".", "a/./b", "a\0b", "x" * 256, "/".join("a" * (MAX_DEPTH + 1))]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_name_leads_out(path):
    """Neither that of an entry nor that of the file that it is another name of."""
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.decode")):
        decode(encode(attrs.evolve(FILE, path=path)))
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.decode")):
        decode(encode(PackedEntry("b", PackedKind.SAME, 0o600, 0, 0, 1, target=path)))


@pytest.mark.parametrize(
    "change",
    [
        {"mode": 0o10000},
        {"user": -1},
        {"group": 1 << 32},
        {"size_bytes": 2},
        {"extents": ((1, 1), (0, 1))},
        {"extents": ((0, 0),)},
        {"kind": PackedKind.FIFO},
        {"target": "b"},
        {"kind": PackedKind.LINK, "size_bytes": 0, "extents": ()},
        {"attributes": (("security.capability", b"x"),)},
        {"attributes": (("user.\ud800", b"x"),)},
        {"extents": ((float("inf"), 1),)},
        {"changed_ns": 1 << 63},
    ],
)
def test_what_no_folder_has_is_refused(change):
    """Each field is what it can be, alone and with the others."""
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.decode")):
        decode(encode(attrs.evolve(FILE, **change)))


@given(
    st.binary(max_size=40), st.sampled_from([b"", b"[1]", b"{}", b'{"end":"x"}', b'{"end":1,"more":2}', b"[" * 9999])
)
def test_other_lines_are_refused(noise, line):
    """Whatever they are."""
    for data in (line, b"{" + noise):
        with pytest.raises(FolderDamaged):
            decode(data)


def test_a_field_too_many_is_refused():
    """It would mean something that this version does not know."""
    fields = {**json.loads(encode(FILE)), "more": 1}
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.decode")):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "entries",
    [
        (FILE,),
        (TOP, TOP),
        (TOP, FILE, FILE),
        (TOP, attrs.evolve(FILE, path="b/a")),
        (TOP, FILE, attrs.evolve(FILE, path="a/b")),
        (TOP, PackedEntry("l", PackedKind.LINK, 0o777, 0, 0, 1, target="/"), attrs.evolve(FILE, path="l/a")),
        (TOP, PackedEntry("b", PackedKind.SAME, 0o600, 0, 0, 1, target="a")),
        (TOP, attrs.evolve(FILE, path="grant.json")),
        (TOP, attrs.evolve(FILE, path="grant.json.taken")),
        (TOP, attrs.evolve(FILE, path="carried.json")),
    ],
)
def test_each_entry_fits_those_before_it(entries):
    """Nothing is written through a link, twice, or into what is no folder; and no grant comes with it."""
    reading = PackReading()
    for entry in entries[:-1]:
        reading.take(entry)
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.PackReading.take")):
        reading.take(entries[-1])
    with pytest.raises(FolderDamaged, check=that(comes_from="carried.PackReading.end")):
        reading.end(len(entries))


def test_a_line_has_a_bound():
    """What cannot be read again is not written."""
    with pytest.raises(FolderUnfit, check=that(comes_from="carried.encode")):
        encode(attrs.evolve(FILE, attributes=tuple((f"user.{at}", bytes(60_000)) for at in range(9))))


def test_a_grant_is_carried_as_spent():
    """One on offer is not carried at all; of one that was taken and an older one the later is kept."""
    top = ["grant.json", "grant.json.spent", "grant.json.taken", "a"]
    assert [carried_as(name, top) for name in top] == ["", "", "grant.json.spent", "a"]
    assert carried_as("grant.json.spent", ["grant.json.spent"]) == "grant.json.spent"
    assert carried_as("work/grant.json", top) == "work/grant.json"
    assert carried_as("carried.json", top) == ""
