"""What the newest slice of a group says of the next ones: nothing is bought without end for what none can run."""

from __future__ import annotations

import itertools

import attrs
import pytest
from test_routing import NEW, OLD, entry, idle_slice, offer
from test_useless import ASKS_NEW, LIKES_NEW, workers

from iriscw.cloud.model import Constraint, Op
from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.fleet.newest import LONGEST_PAUSE, Doubt, NewestSlices, Prospect
from iriscw.fleet.routing import route
from iriscw.runtime.vocabulary import SECOND

ASKS = entry(count=20, constraints=ASKS_NEW)
GROUP = Prospect(offer().config, boot_estimate=1800 * SECOND, renewing=False)
DUE, LATER = {("g", "a"): Doubt(True, 0)}, {("g", "a"): Doubt(False, 3600 * SECOND)}


def row(name="s1", requested_at=1, state=SliceState.READY, num_vms=1):
    return SliceRow(name, "g", state, Trouble.NONE, "", requested_at, 0, num_vms=num_vms)


def known(said=OLD, now=0):
    """Make a fleet that knows one slice."""
    it = NewestSlices()
    assert it.note(row(), workers(said), now)
    return it


@pytest.mark.parametrize(
    ("waiting", "doubtful"),
    [
        (ASKS, True),
        (entry(constraints=LIKES_NEW), False),
        (entry(), False),
        (entry(count=0, constraints=ASKS_NEW), False),
        (entry(count=2, gang=2, by="python"), False),
        (entry(count=2, gang=2, by="python", constraints=ASKS_NEW), True),
        (entry(constraints=(Constraint("region", Op.EQ, ("ord1",)),)), False),
    ],
)
def test_what_finds_doubt(waiting, doubtful):
    """What asks for something that only workers know, and that those of the newest slice do not have."""
    assert bool(known().doubts([waiting], [GROUP], 0, 0)) is doubtful
    assert NewestSlices().doubts([waiting], [GROUP], 0, 0) == {}, "nothing is known of the first one"
    assert known(NEW).doubts([waiting], [GROUP], 0, 0) == {}


def test_the_one_that_was_asked_for_last_tells():
    """Whenever it became ready, once all of its workers are known, and as they are now."""
    it = NewestSlices()
    assert not it.note(row(state=SliceState.INITIALIZING), workers(OLD), 0)
    assert not it.note(row(num_vms=2), workers(OLD), 0)
    assert not it.note(row(), (), 0)
    assert it.note(row("s2", 2), workers(OLD), 0)
    assert not it.note(row("s2", 2), workers(OLD), 9), "no news"
    assert not it.note(row("s1", 1), workers(NEW), 9), "an older one"
    assert it.note(row("s2", 2), workers(NEW), 9)
    assert it.note(row("s3", 3), workers(NEW), 10)


def test_it_waits_as_long_again_as_it_has_waited():
    """At first for as long as a trial takes, in the end for a limit; whatever waits no more is forgotten."""
    it, takes = known(), GROUP.trial_takes
    now, trials = 40, []
    for number in range(2, 12):
        (doubt,) = it.doubts([ASKS], [GROUP], now, now + 7).values()
        assert not doubt.due
        assert it.doubts([ASKS], [GROUP], now + 1, now + 1)["g", "a"] == doubt, "the clock of people says the same"
        until = now + it.next_trial(now)
        assert doubt.next_at == until + 7
        assert not it.doubts([ASKS], [GROUP], until - 1, 0)["g", "a"].due
        assert it.doubts([ASKS], [GROUP], until, 0)["g", "a"].due
        assert it.next_trial(until) is None
        trials.append(until - now)
        now = until + takes
        assert it.note(row(f"s{number}", number), workers(OLD), now)
    assert trials[0] == takes - 40
    assert trials[1] == 2 * takes - 40
    assert all(one <= other for one, other in itertools.pairwise(trials))
    assert trials[-1] == LONGEST_PAUSE
    it.doubts([], [GROUP], now, 0)
    assert it.pauses == {}
    assert it.doubts([ASKS], [GROUP], now + takes, 0)["g", "a"].due, (
        "who comes much later than the newest waits for no one"
    )


def test_a_slice_that_went_for_another_makes_the_trial_due():
    """Its group has pauses of its own."""
    assert known().doubts([ASKS], [attrs.evolve(GROUP, renewing=True)], 0, 0)["g", "a"].due


def test_a_trial_is_one_slice():
    """One that is on its way shows as much; one that is ready has shown it; nothing before the trial is due."""
    assert route([ASKS], [offer(room=5)]).wanted == {"g": 3}
    assert route([ASKS], [offer(room=5)], DUE).wanted == {"g": 1}
    assert route([ASKS], [offer(room=5)], LATER).wanted == {"g": 0}
    assert route([ASKS], [offer(room=5, absorbing=2)], LATER).wanted == {"g": 1}
    assert route([ASKS], [offer(room=5, absorbing=2)], DUE).wanted == {"g": 1}
    assert route([ASKS], [attrs.evolve(offer(room=5, absorbing=2), fresh=2)], LATER).wanted == {"g": 0}
    assert route([ASKS], [attrs.evolve(offer(room=5, absorbing=2), fresh=2)], DUE).wanted == {"g": 1}
    assert route([ASKS], [offer(room=0, waiting=2)], LATER).wanted == {"g": 1}
    spread = entry(count=20, gang=20, by="python", constraints=ASKS_NEW)
    assert route([spread], [offer(room=5)], DUE).wanted == {"g": 1}
    assert route([spread], [offer(room=5)], DUE).spread == {"g": 0}
    other = attrs.evolve(ASKS, demand_id="b")
    both = DUE | {("g", "b"): Doubt(True, 0)}
    assert route([ASKS, other], [offer(room=5)], both).wanted == {"g": 1}, "one at a time"


def test_a_group_without_doubt_comes_first_and_other_demand_before():
    """What may be bought in vain takes nothing from anybody else."""
    routing = route([ASKS], [offer(room=5), offer("h", room=5)], DUE)
    assert routing.wanted == {"g": 0, "h": 3}
    plain = entry("z", count=8)
    assert route([ASKS, plain], [offer(room=1)], DUE).wanted == {"g": 1}
    reasons = dict(route([ASKS, plain], [offer(room=1)], DUE).reasons)
    assert reasons["z"].startswith("8 tasks for new slices of 'g'")


def test_idle_slices_stay_where_only_the_next_ones_are_in_doubt():
    """A gang keeps what could run it, as where a group is closed for a while."""
    gang = entry(count=16, gang=16, by="region", constraints=ASKS_NEW)
    idle = [idle_slice("s1", NEW), idle_slice("s2", OLD)]
    routing = route([gang], [offer(idle=2, known=idle, room=5)], LATER)
    assert (routing.spread, routing.unfit) == ({"g": 1}, {"g": ("s2",)})


def test_what_is_said_of_it():
    """When the next one is tried; a full group says itself what it does about idle ones."""
    (reason,) = (
        each for _, each in route([ASKS], [offer(room=5, known=[idle_slice("s1", OLD)], idle=1)], LATER).reasons
    )
    assert reason == (
        "no group takes 20 more now: the newest slice of 'g' cannot run this, and the next one is tried at 01:00:00 UTC"
    )
    (reason,) = (each for _, each in route([ASKS], [offer(room=5)], DUE).reasons)
    assert reason.startswith("8 tasks for new slices of 'g'")
    assert reason.endswith(
        "no group takes 12 more now: the newest slice of 'g' cannot run this, and one more is tried first"
    )
