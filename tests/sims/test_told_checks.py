"""What was told and not understood is noticed, and nothing else is."""

import attrs
import pytest

from iriscw.cloud.effects import CreateNodePool
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.model import LABEL_SLICE, Unavailable
from iriscw.fleet.model import SliceState, Trouble
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.telling import PODS, POOLS
from iriscw_sims.told_checks import ATTENTION, GOES, GONE, OVER
from iriscw_sims.world import World

WAIT = ATTENTION / SECOND + 1
UNKNOWN = ApiResponse(401, status_failure(401, "Unauthorized", "Unauthorized"))


@pytest.fixture
def world(calm_plan):
    """Return a calm world with a ready slice in it, whose checks are told by hand from now on."""
    plan = calm_plan(2)
    group = attrs.evolve(plan.groups[0], min_slices=1, max_slices=1, num_vms=1)
    world = World(2, attrs.evolve(plan, groups=(group,), jobs=()))
    for _ in range(60):
        world.simulation.advance(1.0)
        world.told_checks.look()
    assert not world.violations
    world.told_checks.forget()
    return world


@pytest.fixture
def piece(world):
    """Return the slice."""
    (slice_id,) = world.fleet_checks.promised
    piece = world.fleet_checks._slice(slice_id)
    assert piece.state is SliceState.READY
    return piece


def stored(world, kind):
    """Return our pool or pod as the API server has it."""
    table = world.cloud._pools if kind == POOLS else world.cloud._pods
    return next(
        each for each in table.raw if each["metadata"]["labels"].get(LABEL_SLICE) in world.fleet_checks.promised
    )


def saying(thing, conditions=(), **changes):
    """Return a pool with other conditions and without nodes, or a pod with another status; ``metadata`` is added to."""
    metadata = {**thing["metadata"], **changes.pop("metadata", {})}
    status = {**thing["status"], **changes}
    if conditions:
        kind, value, reason = conditions
        status["conditions"] = [{"type": kind, "status": value, "reason": reason}]
        status["currentNodes"] = status["inProgress"] = 0
    return {**thing, "metadata": metadata, "status": status}


def wait(world):
    """Let time pass until what was told must show."""
    for _ in range(int(WAIT) + 1):
        if world.violations:
            break
        world.simulation.advance(1.0)
        world.told_checks.look()


@pytest.mark.parametrize(
    ("condition", "trouble"),
    [
        (("Quota", "False", "Over"), Trouble.QUOTA),
        (("Quota", "False", "NotSet"), Trouble.QUOTA),
        (("Capacity", "False", "QueuedAwaitingCapacity"), Trouble.CAPACITY),
        (("Validated", "False", "InvalidSpec"), Trouble.INVALID),
        (("Valid", "False", "InvalidSpec"), Trouble.INVALID),
    ],
)
def test_a_trouble_that_is_not_shown_is_noticed(world, piece, condition, trouble):
    """A slice that boots on as if nothing had been said is wrong; one that says it is not (INV-F5)."""
    thing = saying(stored(world, POOLS), condition)
    world.told_checks.shown(POOLS, thing)
    piece.state = SliceState.BOOTING
    wait(world)
    assert [text[:7] for text in world.violations] == ["INV-F5:"]
    assert repr(piece.seed.slice_id)[1:-1] in world.violations[0]


def test_a_ready_slice_needs_no_quota(world, piece):
    """What was said of a pool does not matter once its slice is ready."""
    world.told_checks.shown(POOLS, saying(stored(world, POOLS), ("Quota", "False", "Over")))
    wait(world)
    assert not world.violations


def test_a_trouble_that_stays_is_noticed(world, piece):
    """When the cause is gone, so must be the trouble."""
    world.told_checks.shown(POOLS, saying(stored(world, POOLS), ("Capacity", "False", "QueuedAwaitingCapacity")))
    world.told_checks.shown(POOLS, stored(world, POOLS))
    piece.state, piece.trouble = SliceState.BOOTING, Trouble.CAPACITY
    wait(world)
    assert "has the trouble 'no capacity', and its pool has none" in world.violations[0]


@pytest.mark.parametrize(("kind", "says"), [(POOLS, GOES), (POOLS, GONE), (PODS, GOES), (PODS, GONE), (PODS, OVER)])
def test_an_end_that_is_not_seen_is_noticed(world, piece, kind, says):
    """A pool or pod that goes, is over or gone, and whose slice or place goes on as if it were there (INV-F2)."""
    thing = stored(world, kind)
    world.told_checks.shown(kind, thing)
    if says == GONE:
        world.told_checks.vanished(kind, thing)
    elif says == OVER:
        world.told_checks.shown(kind, saying(thing, phase="Failed"))
    else:
        world.told_checks.shown(kind, saying(thing, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    wait(world)
    assert len(world.violations) == 1
    assert world.violations[0].startswith(f"INV-F2: the {kind[:-1]} {thing['metadata']['name']} {says}")


def test_what_a_list_does_not_have_is_gone(world):
    """A list tells of those that are not in it, too."""
    world.told_checks.shown(POOLS, stored(world, POOLS))
    world.told_checks.listed(POOLS, {})
    wait(world)
    assert "gone" in world.violations[0]


def test_nobody_is_asked_while_the_controller_cannot_act(world, piece):
    """A disk that stalls, a controller that is down: the clock begins when it can act again, or not at all."""
    world.told_checks.shown(PODS, saying(stored(world, PODS), phase="Failed"))
    world.system.journal.fill()
    wait(world)
    assert not world.violations
    world.system.journal.free()
    world.told_checks.look()
    world.crash(5)
    wait(world)
    assert not world.violations, "what was told before the crash is forgotten"


def test_a_watch_that_ended_is_told_to_users(world):
    """With the reason, by name if it is that the credentials do not do (INV-F5)."""
    watching = world.system.state("/fleet").watches[PODS]
    world.told_checks.watch_ended(PODS, Unavailable("gone"), False)
    wait(world)
    assert "the watch of pods has ended, and users are told ''" in world.violations.pop()
    watching.error = "the API is away"
    world.told_checks.watch_ended(PODS, Unavailable("gone"), False)
    wait(world)
    assert not world.violations
    world.told_checks.watch_ended(PODS, Unavailable("gone"), True)
    wait(world)
    assert "users are told 'the API is away': credentials" in world.violations.pop()
    world.told_checks.watch_ended(PODS, Unavailable("gone"), True)
    world.told_checks.watch_shows(PODS)
    wait(world)
    assert not world.violations


def test_refused_credentials_are_told_by_name(world, piece):
    """A slice that is refused and says something else is noticed; one that was served in between is not."""
    create = CreateNodePool(piece.seed.pool)
    piece.state = SliceState.CREATING
    for answers in ([UNKNOWN, ApiResponse(503, {})], [UNKNOWN, None], []):
        world.told_checks.concluded(create, [UNKNOWN])
        world.told_checks.concluded(create, answers)
    wait(world)
    assert not world.violations
    world.told_checks.concluded(create, [UNKNOWN])
    wait(world)
    assert "is refused for its credentials, and its slice has the trouble 'none'" in world.violations[0]


def test_a_storm_of_refusals_is_noticed(world, piece):
    """The same is asked for again ever more slowly (INV-F9)."""
    create = CreateNodePool(piece.seed.pool)
    for pause in (0, 1, 2, 4, 8, 16, 20, 20):
        world.simulation.advance(float(pause))
        world.told_checks.concluded(create, [UNKNOWN])
    assert not world.violations
    world.told_checks.forget()
    for _ in range(6):
        world.told_checks.concluded(create, [UNKNOWN])
    assert world.violations[0].startswith("INV-F9: create pool")
