"""Time travel: virtual time, worlds, crashes and disks, as a test's author uses them."""

import pytest

from iriscw._errors import AskTimeout, InvalidArgument, MailboxFull, NoSuchActor, OutcomeUnknown
from iriscw.journal.records import record
from iriscw.runtime import (
    SECOND,
    Behavior,
    Completed,
    Continue,
    Decision,
    Emit,
    Failed,
    Feed,
    Open,
    Reply,
    Run,
    SetTimer,
    message,
    seconds,
)
from iriscw.testing import Livelock, SimSystem, Simulation, simulation
from raised import that


@record("test.simulation_counted")
@message
class Counted:
    """One more."""

    amount: int


@message
class Fetch:
    """An effect."""

    url: str = ""


async def _never(*words):
    raise NotImplementedError


def obedient(log):
    """Return a behavior that returns the commands it is told, and notes all else."""

    def decide(state, told, ctx):
        if type(told) is tuple:
            return told
        log.append((ctx.now, told))
        return None

    return Behavior(decide=decide, effects={Fetch: _never}, sessions={Fetch: _never})


def counter():
    """Return a durable counter: an integer adds, None reads."""

    def decide(state, told, ctx):
        if told is None:
            return (Reply(state[0]),)
        return Decision(records=(Counted(told),), commands=(Reply(state[0] + told),))

    def evolve(state, fact):
        state[0] += fact.amount

    return Behavior(initial=lambda: [0], decide=decide, evolve=evolve)


def test_time_passes_only_when_told():
    """Half an hour costs nothing, and a timer comes exactly when it is due."""
    log = []
    made = SimSystem()
    made.spawn("a", obedient(log))
    made.tell("/a", (SetTimer("t", seconds(1800), "booted"),))
    made.run_until_idle()
    assert (made.now_s, log) == (0, [])
    made.advance(1799.9)
    assert log == []
    made.advance(0.1)
    assert log == [(seconds(1800), "booted")]
    assert made.now_s == 1800


def test_step_by_step():
    """Each step does one thing; False says that nothing is left at this instant."""
    log = []
    made = SimSystem()
    made.spawn("a", obedient(log))
    made.run_until_idle()
    made.tell("/a", 1)
    made.tell("/a", 2)
    assert made.step() is True
    assert [told for _, told in log] == [1]
    assert made.step() is True
    assert made.step() is False


def test_run_until():
    """It stops as soon as the condition holds, or when the time is over."""
    made = SimSystem()
    log = []
    made.spawn("a", obedient(log))
    made.tell("/a", (SetTimer("t", SECOND, "x"), SetTimer("u", 3 * SECOND, "y")))
    assert made.simulation.run_until(lambda: log, within_s=10) is True
    assert made.now_s == 1
    assert made.simulation.run_until(lambda: len(log) > 5, within_s=10) is False
    assert made.now_s == 11


def test_a_loop_without_end_is_named(monkeypatch):
    """Actors that keep each other busy at one instant are a Livelock, not a test that hangs."""
    monkeypatch.setattr(simulation.world, "STEPS_WITHOUT_TIME", 1_000)
    made = SimSystem()
    made.spawn("a", Behavior(decide=lambda state, told, ctx: (Continue(told),)))
    made.tell("/a", "on")
    with pytest.raises(Livelock, check=that(comes_from="world.Simulation.run_until_idle", names="1000")):
        made.run_until_idle()
    with pytest.raises(Livelock):
        made.advance(1)


def test_effects_stay_until_the_test_ends_them():
    """By default an effect is pending: the test completes or fails it; a second end changes nothing."""
    log = []
    made = SimSystem()
    made.spawn("a", obedient(log))
    made.tell("/a", (Run("k", Fetch("x")), Run("l", Fetch("y"))))
    made.advance(3_600)
    first, second = made.pending.values()
    assert (first.effect, first.key, first.path) == (Fetch("x"), "k", "/a")
    error = OSError("gone")
    first.complete(b"body")
    first.fail(error)
    second.fail(error)
    made.run_until_idle()
    assert [told for _, told in log] == [Completed("k", Fetch("x"), b"body"), Failed("l", Fetch("y"), error)]
    assert not made.pending


def test_a_world_answers_by_itself():
    """``perform`` sees each effect that starts, and may answer later."""
    log = []

    def perform(operation):
        operation.system.simulation.call_after(5 * SECOND, operation.complete, operation.effect.url.upper())

    made = SimSystem(perform=perform)
    made.spawn("a", obedient(log))
    made.tell("/a", (Run("k", Fetch("x")),))
    made.advance(10)
    assert log == [(5 * SECOND, Completed("k", Fetch("x"), "X"))]


def test_a_world_hears_of_cancels():
    """An operation that was given up is told so; a deaf one goes on until it ends by itself."""
    heard = []

    def perform(operation):
        operation.on_cancel = lambda: heard.append((operation.key, operation.cancelled))
        operation.deaf = operation.key == "deaf"

    made = SimSystem(perform=perform)
    made.spawn("a", obedient([]))
    made.tell("/a", (Run("deaf", Fetch()), Run("keen", Fetch())))
    made.run_until_idle()
    made.tell("/a", (Run("deaf", Fetch()), Run("keen", Fetch())))
    made.run_until_idle()
    assert sorted(heard) == [("deaf", True), ("keen", True)]
    assert made.statistics().operations == 2
    assert len(made.pending) == 2
    assert len(made.tree.queued) == 1


def test_sessions():
    """A session's world is told of fed items and of room, and sends until there is none."""
    log, fed, room = [], [], []

    def send_more(operation):
        if len(room) < 2:
            room.append(operation.send(f"more {len(room)}"))

    def perform(operation):
        operation.on_fed = lambda: fed.extend(operation.take_fed())
        operation.on_room = lambda: send_more(operation)
        fed.extend(operation.take_fed())
        assert [operation.send(number) for number in range(3)] == [True, True, False]

    made = SimSystem(perform=perform)
    made.spawn("a", obedient(log))
    made.tell("/a", (Open("s", Fetch(), inbound=2), Feed("s", "hello")))
    made.run_until_idle()
    made.tell("/a", (Feed("s", "again"),))
    made.run_until_idle()
    assert fed == ["hello", "again"]
    assert room == [True, True]
    assert [told.item for _, told in log] == [0, 1, "more 0", "more 1"]


def test_same_seed_same_trace():
    """The trace hash says whether two runs were the same; another seed gives another one."""

    def run(seed):
        made = SimSystem(seed=seed)
        for name in "abc":
            made.spawn(name, counter())
        slots = [made.question(f"/{name}", 1) for name in "abc" for _ in range(5)]
        made.advance(1)
        assert all(slot.done for slot in slots)
        return made.simulation.trace_hash

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(5)}) == 5


def test_crash_and_restart():
    """A crash takes what was not on disk; the next boot starts from the records that were, with the same root."""
    made = SimSystem(sync_ns=None)
    made.spawn("a", counter())
    kept, lost = made.question("/a", 1), made.question("/a", 10)
    made.run_until_idle()
    made.journal.commit(1)
    made.run_until_idle()
    assert (kept.done, kept.value, lost.done) == (True, 1, False)
    made.crash(keep=0)
    assert made.crashed
    made.restart()
    made.spawn("a", counter())
    assert made.ask("/a", None) == 1
    assert made.boot == 1


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_what_reaches_the_disk_unacknowledged(keep):
    """A crash may keep records that nobody was told of: the first ``keep`` of them."""
    made = SimSystem(sync_ns=None)
    made.spawn("a", counter())
    made.question("/a", 1)
    made.question("/a", 10)
    made.run_until_idle()
    made.crash(keep=keep)
    made.restart()
    made.spawn("a", counter())
    assert made.ask("/a", None) == (0, 1, 11)[keep]


def test_crash_domains():
    """Two systems share clock and world, and nothing else: one crashes, the other goes on."""
    world = Simulation(seed=3)
    one = SimSystem(simulation=world, name="one", wall_offset_s=100)
    two = SimSystem(simulation=world, name="two")
    logs = []
    for made in (one, two):
        logs.append([])
        made.spawn("a", obedient(logs[-1]))
        made.tell("/a", (SetTimer("t", SECOND, "due"),))
    world.run_until_idle()
    one.crash()
    world.advance(5)
    assert logs == [[], [(SECOND, "due")]]
    walls = []
    one.restart()
    for made in (one, two):
        made.spawn("wall", Behavior(decide=lambda state, told, ctx: walls.append(ctx.wall)))
        made.tell("/wall", "look")
    world.run_until_idle()
    assert walls[0] - walls[1] in (100 * SECOND, -100 * SECOND)


def test_an_end_after_the_crash_goes_nowhere():
    """A request that was on the wire when its sender crashed ends in silence."""
    log = []
    made = SimSystem()
    made.spawn("a", obedient(log))
    made.tell("/a", (Run("k", Fetch()),))
    made.run_until_idle()
    (late,) = made.pending.values()
    made.crash()
    assert late.system_restarted
    made.restart()
    made.spawn("a", obedient(log))
    late.complete("late")
    made.advance(1)
    assert log == []
    assert not late.send("late")


def test_disks_take_time():
    """An answer that rests on a record comes when its commit is over."""
    made = SimSystem(sync_ns=lambda rng: 20_000_000)
    made.spawn("a", counter())
    assert made.ask("/a", 1) == 1
    assert made.now_s == 0.02


def test_a_stall():
    """A stopped process: timers come due, nothing was decided meanwhile."""
    log = []
    made = SimSystem()
    made.spawn("a", obedient(log))
    made.tell("/a", (SetTimer("p", SECOND, "plain"), SetTimer("a", 3 * SECOND, "attentive", attentive=True)))
    made.run_until_idle()
    made.simulation.stall(60)
    assert log == []
    made.run_until_idle()
    assert log == [(60 * SECOND, "plain")]
    made.advance(2)
    assert log[1] == (62 * SECOND, "attentive")


def test_asks_fail_by_name():
    """As on a real system: nobody there, no answer, an answer that waits for the disk, a full mailbox, an error."""
    made = SimSystem(sync_ns=None)
    made.spawn("a", counter())
    made.spawn("mute", Behavior(decide=lambda state, told, ctx: None), capacity=1)
    with pytest.raises(NoSuchActor):
        made.ask("/nobody", 1)
    with pytest.raises(AskTimeout):
        made.ask("/mute", 1, timeout_s=60)
    assert made.now_s == 60
    with pytest.raises(OutcomeUnknown):
        made.ask("/a", 1)
    made.journal.commit()
    made.run_until_idle()
    made.tell("/mute", 1)
    with pytest.raises(MailboxFull):
        made.ask("/mute", 1)
    with pytest.raises(TypeError):
        made.ask("/a", "x")
    with pytest.raises(InvalidArgument):
        made.spawn("a", counter())


def test_events_and_failures_are_kept():
    """What the actors emitted, and what they raised, stands in lists."""
    made = SimSystem()
    made.spawn("a", obedient([]))
    made.tell("/a", (Emit("news"),))
    made.tell("/a", ("no command",))
    made.run_until_idle()
    assert made.events == ["news"]
    assert [failure.path for failure in made.failures] == ["/a"]


def test_checkers_see_every_step():
    """A checker that raises stops the run at the step that broke the rule; the report has seed and trace."""
    made = SimSystem(seed="report")
    log = []
    made.spawn("a", obedient(log))

    def check():
        assert len(log) < 3, made.simulation.report()

    made.simulation.checkers.append(check)
    for number in range(5):
        made.tell("/a", number)
    with pytest.raises(AssertionError, check=that(names="report")) as caught:
        made.run_until_idle()
    assert len(log) == 3
    assert "take sim /a 0  int" in str(caught.value)


def test_the_ordered_stop():
    """``stop`` ends everything, in virtual time."""
    made = SimSystem()
    made.spawn("a", obedient([]))
    made.run_until_idle()
    made.stop()
    made.run_until_idle()
    assert made.tree.stopped
    assert made.statistics().live == 0
    assert made.state("/a") is None
