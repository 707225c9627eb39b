"""Which entries count: against a model that looks at all of them each time."""

from hypothesis import given, strategies as st

from iriscw.journal.entries import EMPTY_SNAPSHOT, Entry, EntryKind
from iriscw.journal.liveness import Liveness

paths = st.sampled_from(["/", "/a", "/a/b", "/a/b/c", "/ab", "/b/c/d"])
steps = st.lists(
    st.tuples(
        paths,
        st.sampled_from([EntryKind.RECORD, EntryKind.RECORD, EntryKind.SNAPSHOT, EntryKind.FORGET]),
        st.booleans(),
    )
)


def below(path, other):
    """Whether forgetting ``path`` takes ``other`` along."""
    return path in ("/", other) or other.startswith(path + "/")


def entries_of(steps):
    """Return the entries of generated steps."""
    return [
        Entry(number, path, kind, EMPTY_SNAPSHOT if empty and kind == EntryKind.SNAPSHOT else "[1]")
        for number, (path, kind, empty) in enumerate(steps, 1)
    ]


def model(entries):
    """Return the entries that count, the slow way."""
    live = []
    for entry in entries:
        if entry.kind == EntryKind.FORGET:
            live = [each for each in live if not below(entry.path, each.path)]
        elif entry.kind == EntryKind.SNAPSHOT:
            live = [each for each in live if each.path != entry.path]
        if entry.kind == EntryKind.RECORD or (entry.kind == EntryKind.SNAPSHOT and entry.payload != EMPTY_SNAPSHOT):
            live.append(entry)
    return live


@given(steps)
def test_against_model(steps):
    """Counts, starts, paths and what counts are those of the model, after every entry."""
    entries, liveness = entries_of(steps), Liveness()
    for number, entry in enumerate(entries, 1):
        had = set(liveness.paths())
        dropped = liveness.apply(entry)
        expected = model(entries[:number])
        assert [each for each in entries[:number] if liveness.counts(each)] == expected
        assert liveness.live == len(expected)
        assert liveness.paths() == list(dict.fromkeys(each.path for each in expected))
        if entry.kind == EntryKind.FORGET:
            assert had - set(liveness.paths()) == had & set(dropped)
        else:
            assert dropped == []


@given(steps)
def test_nothing_left_behind(steps):
    """After everything is forgotten no memory is held."""
    liveness = Liveness()
    for entry in entries_of(steps):
        liveness.apply(entry)
    for number, path in enumerate(liveness.paths(), 1_000):
        liveness.apply(Entry(number, path, EntryKind.FORGET, ""))
    assert liveness.live == 0
    assert not any(path in liveness for path in ("/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "/b/c", "/b/c/d"))
