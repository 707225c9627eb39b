"""What is asked of the driver's dealings with the API server is noticed when it is missing, and only then."""

import pytest

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.kube.paths import NODES, Source
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.api_checks import MOST_CONFLICTS, ConflictChecks, OwnershipChecks, WatchChecks
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.kube.messages import Response
from iriscw_sims.world import World

MINE = Source(POOLS, "mine=true")
CREATE = ApiRequest("POST", POOLS, body={"metadata": {"name": "a"}})


@pytest.fixture
def world(calm_plan):
    """Return a world that has not begun."""
    return World(5, calm_plan(5))


def told(version, kind="MODIFIED"):
    """Return what a watch tells."""
    return {"type": kind, "object": {"metadata": {"name": "a", "resourceVersion": str(version)}}}


def test_a_name_that_is_asked_for_again_and_again_is_a_storm(world):
    """Being told of a conflict is followed by a look; a name that was free in between is nobody's storm."""
    checks = ConflictChecks(world)
    for _ in range(10):
        checks.answered(CREATE, 409)
        checks.sends(ApiRequest("GET", f"{POOLS}/a"))
    for code in (409, 409, 201, 409, 409):
        checks.answered(CREATE, code)
    assert (MOST_CONFLICTS, world.violations) == (2, [])
    checks.answered(CREATE, 409)
    assert world.violations[0].startswith(f"INV-F9: {POOLS}/a is asked for, 3 times")


def test_a_watch_goes_on_behind_what_was_told(world):
    """Objects and bookmarks count, errors do not; another collection has versions of its own."""
    checks = WatchChecks(world)
    first = MINE.watch("5", 60 * SECOND)
    checks.opens(first)
    checks.took(first, told(7))
    checks.took(first, told(9, "BOOKMARK"))
    checks.took(first, {"type": "ERROR", "object": {"code": 410}})
    checks.opens(MINE.watch("9", 60 * SECOND))
    checks.opens(Source(NODES, "mine=true").watch("1", 60 * SECOND))
    assert not world.violations
    checks.opens(MINE.watch("7", 60 * SECOND))
    assert world.violations == [f"INV-F9: a watch of {POOLS} begins at '7' and 9 was told before"]


@pytest.mark.parametrize("version", ["", "0x9"])
def test_a_watch_from_anywhere_is_seen(world, version):
    """Without a version, or with one that is none, what came in between is lost."""
    checks = WatchChecks(world)
    checks.took(MINE.watch("5", 60 * SECOND), told(7))
    checks.opens(MINE.watch(version, 60 * SECOND))
    assert len(world.violations) == 1


def test_a_list_ends_what_was_told_before(world):
    """What begins with a list may begin anywhere: an API server that was restored counts from earlier."""
    checks = WatchChecks(world)
    checks.took(MINE.watch("5", 60 * SECOND), told(7))
    checks.lists(MINE.page(2))
    checks.opens(MINE.watch("3", 60 * SECOND))
    assert not world.violations


def test_another_session_begins_where_it_likes(world):
    """A watch that was given up and opened anew is a session of its own: what the old one was told binds it not."""
    WatchChecks(world).took(MINE.watch("5", 60 * SECOND), told(7))
    WatchChecks(world).opens(MINE.watch("3", 60 * SECOND))
    assert not world.violations


@pytest.mark.parametrize(("name", "ours"), [("orphan", True), ("somebody-elses", False), ("controller-pool", False)])
def test_what_has_its_effect_on_things_of_others_is_seen(world, name, ours):
    """However the request was meant; one that is refused does no harm."""
    checks = OwnershipChecks(world)
    request = ApiRequest("DELETE", f"{POOLS}/{name}")
    checks.lands(request)(Response(409, {}))
    checks.lands(ApiRequest("GET", f"{POOLS}/{name}"))(Response(200, {}))
    assert not world.violations
    checks.lands(request)(Response(200, {}))
    assert bool(world.violations) is not ours


def test_a_stranger_s_thing_is_not_what_was_asked_for(world):
    """Whoever gives it back as the answer to a create has not looked."""
    checks = OwnershipChecks(world)
    thing = world.cloud.pools["somebody-elses"]
    checks.returned(thing)
    checks.returned(None)
    assert not world.violations
    world.cloud.strangers.uids[thing.uid] = thing.name
    checks.returned(thing)
    assert world.violations[0].startswith("INV-F2: somebody-elses is somebody else's")
