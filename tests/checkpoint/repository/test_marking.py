"""What a pass of a collection decides: only time and the marks before it make an object go."""

import pytest

from iriscw.checkpoint.repository.keys import manifest_key, pack_key
from iriscw.checkpoint.repository.marking import StoredObjects, planned
from iriscw.checkpoint.repository.model import Tomb

ATTEMPT, OTHER = "ab" * 12, "cd" * 12
PACK, USED = f"{ATTEMPT}-0", f"{OTHER}-0"
HOUR = 3600
NOW = 10 * HOUR


def marked(**words):
    """Return a repository with a pack that nothing refers to, one that is used, and a manifest of each attempt."""
    given = {
        "shown": {"a": OTHER},
        "begun": {},
        "manifests": {manifest_key("a", OTHER): 5, manifest_key("a", ATTEMPT): 6},
        "packs": {pack_key(PACK): 70, pack_key(USED): 80},
        "referred": {USED: None},
        **words,
    }
    return StoredObjects(**given)


def decided(found, *tombs):
    """Return what a pass does an hour after which marks are old."""
    return planned(found, tombs, now_wall_ns=NOW, grace_ns=HOUR)


def test_a_first_pass_marks():
    """What nothing refers to, and removes nothing."""
    plan = decided(marked())
    assert sorted(plan.mark) == sorted([pack_key(PACK), manifest_key("a", ATTEMPT)])
    assert (plan.unmark, plan.remove, plan.give_up) == ((), (), ())


@pytest.mark.parametrize(("made", "goes"), [(NOW - HOUR, True), (NOW - HOUR + 1, False), (NOW + 5, False)])
def test_the_grace(made, goes):
    """A mark that is younger stays, and so does what it is beside: somebody may fetch it."""
    tomb = Tomb(pack_key(PACK), "t", made, removing=False)
    plan = decided(marked(), tomb)
    assert plan.remove == ((tomb,) if goes else ())
    assert (plan.unmark, plan.mark) == ((), (manifest_key("a", ATTEMPT),))


def test_marks_of_what_is_used_or_gone():
    """They are taken away; but a removal that began is brought to its end."""
    old = NOW - 5 * HOUR
    used, gone = Tomb(pack_key(USED), "t", old, removing=False), Tomb(pack_key(f"{OTHER}-7"), "u", old, removing=True)
    assert decided(marked(), used, gone).unmark == (used, gone)
    going = Tomb(pack_key(USED), "t", NOW, removing=True)
    plan = decided(marked(), going)
    assert (plan.unmark, plan.remove) == ((), (going,))


def test_packs_of_an_attempt_that_goes_on():
    """They stay, although no manifest refers to them yet; those of one that is given up go as others do."""
    for since, marks in ((NOW - HOUR + 1, ()), (NOW - HOUR, (pack_key(PACK),))):
        found = marked(begun={"b": ("e", since)}, shown={"a": OTHER, "b": ATTEMPT}, manifests={})
        assert decided(found).mark == marks


@pytest.mark.parametrize(("since", "given_up"), [(NOW - HOUR, True), (NOW - HOUR + 1, False), (NOW + 5, False)])
def test_attempts_that_began_long_ago(since, given_up):
    """They are given up; a young one goes on, and its manifest is nobody's to remove."""
    found = marked(begun={"b": ("etag", since)}, shown={"a": OTHER, "b": ATTEMPT})
    assert decided(found).give_up == ((("b", "etag"),) if given_up else ())
    mine = marked(begun={"a": ("etag", since)}, shown={"a": ATTEMPT}, referred={PACK: None})
    assert manifest_key("a", ATTEMPT) not in decided(mine).mark
