"""The chain: any change to any entry is found at its place."""

import pytest
from hypothesis import assume, given, strategies as st

from iriscw._errors import JournalCorrupt
from iriscw.journal.entries import GENESIS, Base, Chain, Entry, EntryKind, seal
from raised import that

anything = st.builds(
    Entry,
    st.just(0),
    st.sampled_from(["/a", "/b"]),
    st.sampled_from(["r", "s", "f"]),
    st.sampled_from(["", "1", "12"]),
)
entries = st.lists(anything, min_size=1, max_size=8).map(
    lambda found: [Base().entry(), *(each._replace(sequence=n) for n, each in enumerate(found, 1))]
)


def follow(rows, head=None):
    """Follow rows to their end."""
    chain = Chain()
    for row in rows:
        chain.follow(Entry(*row[:4]), row[4])
    chain.finish(*(head or (rows[-1][0], rows[-1][4])))
    return chain


@given(entries)
def test_whole(found):
    """A sealed chain holds."""
    rows = seal(GENESIS, found)
    chain = follow(rows)
    assert (chain.last, chain.count, chain.digest) == (len(found) - 1, len(found) - 1, rows[-1][4])


@given(entries, st.data())
def test_damage(found, data):
    """A changed, lost, repeated or swapped entry is found, at or before the first place that differs."""
    rows = seal(GENESIS, found)
    place = data.draw(st.integers(1, len(rows) - 1))
    kind = data.draw(st.sampled_from(["path", "kind", "payload", "digest", "lost", "twice", "swapped"]))
    damaged = list(rows)
    sequence, path, what, payload, digest = rows[place]
    if kind == "lost":
        del damaged[place]
    elif kind == "twice":
        damaged.insert(place, rows[place])
    elif kind == "swapped":
        assume(place + 1 < len(rows))
        damaged[place], damaged[place + 1] = damaged[place + 1], damaged[place]
    else:
        changed = {"path": path + "x", "kind": "x", "payload": payload + " ", "digest": digest[::-1]}
        values = {"path": path, "kind": what, "payload": payload, "digest": digest, kind: changed[kind]}
        damaged[place] = (sequence, values["path"], values["kind"], values["payload"], values["digest"])
    with pytest.raises(JournalCorrupt, check=that(names="sequence")) as caught:
        follow(damaged, (rows[-1][0], rows[-1][4]))
    named = int(str(caught.value).split()[1].rstrip(":"))
    assert named in (place, place + 1) if kind == "twice" else named == place


def test_moved_boundary():
    """Characters that move from one column to the next change the digest."""
    one, other = (seal(GENESIS, [Entry(1, *rest)])[0][4] for rest in (("/ab", "r", "c"), ("/a", "r", "bc")))
    assert one != other


def test_compacted():
    """Up to what a base speaks for there may be gaps, after it none."""
    base = Base(bytes(range(32)), through=10)
    kept = [base.entry(), Entry(3, "/a", EntryKind.RECORD, "1"), Entry(9, "/a", EntryKind.RECORD, "1")]
    rows = seal(GENESIS, kept)
    assert follow(rows, (10, rows[-1][4])).last == 10
    follow(seal(GENESIS, [*kept, Entry(11, "/a", EntryKind.RECORD, "1")]))
    with pytest.raises(JournalCorrupt, check=that(comes_from="entries.Chain.follow", names="11")):
        follow(seal(GENESIS, [*kept, Entry(12, "/a", EntryKind.RECORD, "1")]))
    assert Base.of(base.entry()) == base


@pytest.mark.parametrize(
    "first", [Entry(1, "/a", "r", "1"), Entry(0, "", "b", "{}"), Entry(0, "", "r", '{"head":"","through":0}')]
)
def test_no_base(first):
    """A file that does not start with a base is not a journal."""
    with pytest.raises(JournalCorrupt, check=that(comes_from="entries.Base.of")):
        follow(seal(GENESIS, [first]))


def test_empty():
    """A file without entries is not a journal."""
    with pytest.raises(JournalCorrupt, check=that(comes_from="entries.Chain.finish")):
        Chain().finish(0, GENESIS)
