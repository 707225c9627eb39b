"""Named laws and regressions of the kernel: each run once failed, or shows what random runs rarely reach."""

from iriscw._errors import ActorRestarted, ActorStopped, MailboxFull
from iriscw.journal.records import record
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, Restart, Shutdown, Strategy, Supervision
from iriscw.runtime.cell import ACTIVE, QUARANTINED
from iriscw.testing import SimSystem, checks


@v.message
class Do:
    """Return these commands, or raise."""

    commands: tuple = ()
    error: bool = False
    keep: bool = False


@v.message
class Job:
    """An effect or a session."""

    name: str = ""


@record("test.laws_noted")
@v.message
class Noted:
    """Something was noted."""

    number: int


async def _never(*words):
    raise NotImplementedError


class Log(list):
    """What an actor saw."""


def do(log=None, **options):
    """Return a behavior that does as it is told, and notes all else."""
    log = Log() if log is None else log

    def decide(state, message, ctx):
        if type(message) is not Do:
            log.append(message)
            return None
        if message.error:
            raise RuntimeError("as told")
        if message.keep:
            log.append(ctx.reply_to)
        return message.commands

    return Behavior(decide=decide, effects={Job: _never}, sessions={Job: _never}, **options)


def system(root=None, **options):
    """Return a checked system."""
    made = SimSystem(root or do(supervision=Supervision(restarts=1_000)), **options)
    checks.watch(made.simulation)
    made.run_until_idle()
    return made


def test_what_follows_stopself_ends_with_the_incarnation():
    """(StopSelf, SetTimer): the next incarnation never sees that timer. Found by the model."""
    log = Log()
    made = system()
    made.spawn("a", do(log))
    asks = (v.SetTimer("t", 0, "tick"), v.Continue("on"), v.Run("k", Job()), v.Watch(v.ActorPath("/gone")))
    made.tell("/a", Do((v.StopSelf(), *asks)))
    made.advance(1)
    assert log == []
    assert made.tree.cells[v.ActorPath("/a")].incarnation == 1
    assert not made.pending


def test_a_question_finds_the_mailbox_bounded():
    """A host's question to a full mailbox fails by name, and is not queued. Found by the model."""
    made = system()
    made.spawn("a", do(), capacity=2)
    made.tell("/a", Do())
    made.tell("/a", Do())
    slot = made.question("/a", Do((v.Reply(1),)))
    assert type(slot.error) is MailboxFull
    made.run_until_idle()


def test_stopping_one_of_a_group_does_not_strand_the_others():
    """A child is stopped while it and its group are being restarted: the others come back all the same."""
    made = system()
    rules = Supervision(Strategy.ONE_FOR_ALL, backoff=Backoff(10 * v.MILLISECOND))
    slow = do(children=(ChildSpec("deaf", do()),))
    group = do(children=(ChildSpec("a", do()), ChildSpec("b", slow), ChildSpec("c", do())), supervision=rules)
    made.spawn("group", group)
    made.run_until_idle()
    made.tell("/group/b/deaf", Do((v.Run("k", Job()),)))
    made.run_until_idle()
    next(iter(made.pending.values())).deaf = True
    made.tell("/group/c", Do(error=True))
    made.run_until_idle()  # c is suspended, b waits for its child, a is still to come
    made.tell("/group", Do((v.StopChild("b"),)))
    made.advance(30)
    paths = [path for path in ("/group/a", "/group/b", "/group/c") if path in made.tree.cells]
    assert paths == ["/group/a", "/group/c"]
    assert all(made.tree.cells[v.ActorPath(path)].status == ACTIVE for path in paths)


def test_a_restarted_supervisor_has_a_fresh_group_budget():
    """Escalation restarts the supervisor; its children's next failure counts from one again."""
    made = system()
    rules = Supervision(Strategy.ONE_FOR_ALL, restarts=1, period=1_000 * v.SECOND)
    made.spawn("group", do(children=(ChildSpec("a", do()), ChildSpec("b", do())), supervision=rules))
    made.run_until_idle()
    incarnations = []
    for _ in range(3):
        made.tell("/group/a", Do(error=True))
        made.advance(100)
        incarnations.append(made.tree.cells[v.ActorPath("/group")].incarnation)
    assert incarnations == [0, 1, 1]


def test_a_recovery_dies_with_its_supervisor():
    """The supervisor restarts while a group waits for its backoff: later failures restart what they affect, no more."""
    made = system()
    rules = Supervision(Strategy.REST_FOR_ONE, backoff=Backoff(v.SECOND))
    made.spawn("group", do(children=tuple(ChildSpec(name, do()) for name in "abc"), supervision=rules))
    made.run_until_idle()
    made.tell("/group/a", Do(error=True))
    made.run_until_idle()
    made.tell("/group", Do(error=True))
    made.advance(10)
    made.tell("/group/c", Do(error=True))
    made.advance(10)
    assert [made.tree.cells[v.ActorPath(f"/group/{name}")].incarnation for name in "abc"] == [0, 0, 1]


def _linger(made, path):
    """Have an actor take its whole budget to stop: it runs an effect that does not heed its cancellation."""
    made.tell(path, Do((v.Run("k", Job()),)))
    made.run_until_idle()
    for handle in made.pending.values():
        handle.deaf = handle.deaf or handle.path == path


def test_the_children_of_the_dead_use_up_no_budget_of_the_living():
    """A child fails while its restarting supervisor waits for another's stop: the new budget is whole. By the model."""
    made = system()
    rules = Supervision(Strategy.ONE_FOR_ALL, restarts=1, period=1_000 * v.SECOND)
    made.spawn("group", do(children=(ChildSpec("a", do()), ChildSpec("slow", do())), supervision=rules))
    made.run_until_idle()
    _linger(made, "/group/slow")
    made.tell("/group", Do(error=True))
    made.run_until_idle()
    made.tell("/group/a", Do(error=True))
    made.advance(30)
    made.tell("/group/a", Do(error=True))
    made.advance(30)
    assert made.tree.cells[v.ActorPath("/group")].incarnation == 1
    assert made.tree.cells[v.ActorPath("/group/a")].incarnation == 1


def test_a_restarting_supervisor_is_not_failed_again_by_its_children():
    """One failure of a supervisor is one, however many of its children exhaust their budgets until they are stopped."""
    made = system(do(supervision=Supervision(restarts=1, period=1_000 * v.SECOND)))
    for name, how in (("a", Do(error=True)), ("b", Do((v.StopSelf(),)))):
        children = (ChildSpec(name, do()), ChildSpec("slow", do()))
        made.spawn(f"top-{name}", do(children=children, supervision=Supervision(restarts=0)), entity=True)
        made.run_until_idle()
        _linger(made, f"/top-{name}/slow")
        made.tell(f"/top-{name}", Do(error=True))
        made.run_until_idle()
        failures = made.statistics().failures
        made.tell(f"/top-{name}/{name}", how)
        made.advance(30)
        assert made.statistics().failures == failures + how.error
        top = made.tree.cells[v.ActorPath(f"/top-{name}")]
        assert (top.status, top.incarnation) == (ACTIVE, 1)


def test_a_supervisor_that_fails_with_its_group_fails_once():
    """It waits until its siblings have stopped: a child that exhausts its budget meanwhile takes no second restart."""
    made = system()
    broken = do(children=(ChildSpec("a", do()),), supervision=Supervision(restarts=0))
    slow = do(children=(ChildSpec("in", do()),))
    rules = Supervision(Strategy.ONE_FOR_ALL, restarts=1, period=1_000 * v.SECOND)
    made.spawn("top", do(children=(ChildSpec("broken", broken), ChildSpec("slow", slow)), supervision=rules))
    made.run_until_idle()
    _linger(made, "/top/slow/in")
    made.tell("/top/broken", Do(error=True))
    made.run_until_idle()
    made.tell("/top/broken/a", Do(error=True))
    made.advance(30)
    incarnations = [made.tree.cells[v.ActorPath(path)].incarnation for path in ("/top", "/top/broken", "/top/slow")]
    assert incarnations == [0, 1, 1]


def test_a_new_incarnation_is_not_told_of_its_predecessors_children():
    """ChildFailed is for the incarnation whose child failed."""
    log = Log()
    made = system()
    rule = {v.ChildFailed: lambda state, message, ctx: log.append((message.path, ctx.incarnation))}
    made.spawn("top", do(children=(ChildSpec("a", do()), ChildSpec("slow", do())), on=rule))
    made.run_until_idle()
    _linger(made, "/top/slow")
    made.tell("/top", Do(error=True))
    made.run_until_idle()
    made.tell("/top/a", Do(error=True))
    made.advance(30)
    made.tell("/top/a", Do(error=True))
    made.advance(30)
    assert log == [("/top/a", 1)]


def test_a_start_that_a_child_has_failed_goes_no_further():
    """The supervisor does not resume, nor decide, while its siblings stop before it may start again."""
    log = Log()
    made = system()
    broken = []

    def started(state, ctx):
        if broken:
            raise RuntimeError(broken.pop())
        return ()

    child = ChildSpec("in", do(resume=started))
    alone = Supervision(restarts=0)
    top = do(log, children=(child,), supervision=alone, resume=lambda state, ctx: log.append("up") or ())
    slow = do(children=(ChildSpec("in", do()),))
    rules = Supervision(Strategy.ONE_FOR_ALL, restarts=1, period=10 * v.SECOND)
    group = (ChildSpec("top", top, entity=True), ChildSpec("slow", slow))
    made.spawn("group", do(children=group, supervision=rules))
    made.run_until_idle()
    for _ in range(2):
        made.tell("/group/top", Do(error=True))
        made.run_until_idle()
    assert made.tree.cells[v.ActorPath("/group/top")].status == QUARANTINED
    made.advance(60)
    _linger(made, "/group/slow/in")
    log.clear()
    broken.append("as told")
    made.tell("/group", Do((v.ReviveChild("top"),)))
    made.run_until_idle()
    made.tell("/group/top", "hello")
    made.run_until_idle()
    assert log == []
    made.advance(60)
    assert log == ["up", "hello"]


def test_a_restart_covers_no_namesake_of_who_was_stopped():
    """A child of a group is stopped before it is back; another of its name is none of that restart's business."""
    rules = Supervision(Strategy.REST_FOR_ONE, backoff=Backoff(v.SECOND))
    for failing, wait_s in (("/group/b", 10), ("/group/a", 0)):  # the restart is over, or still waits
        made = system()
        made.spawn("group", do(supervision=rules, children=(ChildSpec("a", do()), ChildSpec("b", do()))))
        made.run_until_idle()
        made.tell(failing, Do(error=True))
        made.run_until_idle()
        made.tell("/group", Do((v.StopChild("b"),)))
        made.advance(wait_s)
        made.tell("/group", Do(tuple(v.Spawn(ChildSpec(name, do())) for name in "bc")))
        made.run_until_idle()
        made.tell("/group/c", Do(error=True))
        made.advance(10)
        assert [made.tree.cells[v.ActorPath(f"/group/{name}")].incarnation for name in "bc"] == [0, 1]


def test_what_is_parked_is_drained():
    """STOP_AFTER_MAILBOX: messages that wait for the journal were there when the stop came, and are decided on."""
    made = system(sync_ns=None)
    seen = []

    def decide(state, message, ctx):
        return v.Decision(records=(message,))

    behavior = Behavior(initial=list, evolve=lambda state, fact: seen.append(fact.number), decide=decide)
    made.spawn("a", behavior, shutdown=Shutdown.STOP_AFTER_MAILBOX, shutdown_budget=1_000 * v.SECOND)
    made.journal.fill()
    made.tell("/a", Noted(1))
    made.run_until_idle()
    made.tell("/", Do((v.StopChild("a"),)))
    made.run_until_idle()
    made.journal.free()
    made.advance(1)
    assert seen == [1]
    assert "/a" not in made.tree.cells


def test_a_timer_that_waits_for_the_journal_can_be_cancelled():
    """A due timer is parked; a question that is answered meanwhile cancels it: it is never seen (R6)."""
    made = system(sync_ns=None)
    seen = []

    def decide(state, message, ctx):
        if type(message) is Do:
            return message.commands
        return v.Decision(records=(message,))

    behavior = Behavior(initial=list, evolve=lambda state, fact: seen.append(fact.number), decide=decide)
    made.spawn("a", behavior)
    made.tell("/a", Do((v.SetTimer("t", v.SECOND, Noted(1)), v.SetTimer("u", v.SECOND, Noted(2)))))
    made.run_until_idle()
    made.journal.fill()
    made.advance(2)
    assert made.ask("/a", Do((v.CancelTimer("t"), v.Reply("done")))) == "done"
    made.journal.free()
    made.advance(1)
    assert seen == [2]


def test_a_message_is_stashed_once():
    """Two Stash commands are no decision: the message would come back twice."""
    made = system()
    made.spawn("a", do(), restart=Restart.TEMPORARY)
    made.tell("/a", Do((v.Stash(), v.Stash())))
    made.run_until_idle()
    assert "/a" not in made.tree.cells
    assert made.statistics().stashed == 0


def test_nothing_to_stash_while_starting():
    """Stash in resume is no decision: there is no message."""
    made = system()
    made.spawn("a", do(resume=lambda state, ctx: (v.Stash(),)), restart=Restart.TEMPORARY)
    made.run_until_idle()
    assert "/a" not in made.tree.cells


def test_absence_rests_on_what_made_it_absent():
    """An actor stops on an uncommitted record; who learns that it is gone may not say so before the commit (R9)."""
    made = system(sync_ns=None)

    def decide(state, message, ctx):
        return v.Decision(records=(Noted(1),), commands=(v.StopSelf(),))

    def told(state, message, ctx):
        return message.commands if type(message) is Do else (v.Emit("gone"),)

    behavior = Behavior(initial=list, evolve=lambda state, fact: None, decide=decide)
    for watching in (v.Watch(v.ActorPath("/a")), v.Request(v.ActorPath("/a"), "x", "k", v.SECOND)):
        made.events.clear()
        made.spawn("b", Behavior(decide=told), restart=Restart.TEMPORARY)
        made.spawn("a", behavior, restart=Restart.TEMPORARY)
        made.tell("/a", "stop")
        made.run_until_idle()
        assert "/a" not in made.tree.cells
        made.tell("/b", Do((watching,)))
        made.run_until_idle()
        assert made.events == []
        made.journal.commit()
        made.run_until_idle()
        assert made.events == ["gone"]
        made.tell("/b", Do((v.StopSelf(),)))
        made.run_until_idle()


def test_a_given_up_question_is_forgotten():
    """A request that was replaced or timed out leaves nothing with an actor that never answers."""
    made = system()
    made.spawn("a", do())
    made.spawn("b", do())
    for _ in range(5):
        made.tell("/b", Do((v.Request(v.ActorPath("/a"), Do(keep=True), "k", v.SECOND),)))
        made.run_until_idle()
    assert len(made.tree.cells[v.ActorPath("/a")].slots or {}) == 1
    made.advance(2)
    assert not made.tree.cells[v.ActorPath("/a")].slots


def test_a_stalled_disk_does_not_stop_the_clock():
    """Commits that take no time are tried again later, not at the same instant for ever. Found by the model."""
    made = system(sync_ns=lambda rng: 0)

    def decide(state, message, ctx):
        return v.Decision(records=(message,))

    made.spawn("a", Behavior(initial=list, evolve=lambda state, fact: state.append(fact.number), decide=decide))
    made.journal.stall()
    made.tell("/a", Noted(1))
    made.advance(1)
    assert made.journal.durable == 0
    made.journal.resume()
    made.advance(1)
    assert made.journal.durable == 1


# Laws that random runs rarely reach


def _stops(made):
    """Note the end of each actor, in order."""
    order = []
    finish = made.simulation.dispatcher.lifecycle._finish

    def spy(cell, reason):
        order.append(str(cell.path))
        finish(cell, reason)

    made.simulation.dispatcher.lifecycle._finish = spy
    return order


def test_children_stop_in_reverse_start_order():
    """INV-R5: last started, first stopped, all the way down, and before their parent."""
    made = system()
    inner = do(children=(ChildSpec("x", do()), ChildSpec("y", do())))
    made.spawn("top", do(children=(ChildSpec("a", inner), ChildSpec("b", inner))))
    made.run_until_idle()
    order = _stops(made)
    made.tell("/", Do((v.StopChild("top"),)))
    made.run_until_idle()
    assert order == ["/top/b/y", "/top/b/x", "/top/b", "/top/a/y", "/top/a/x", "/top/a", "/top"]


def test_a_budget_that_is_over_ends_all_below():
    """INV-R5: a child that hangs in its stop is forced, with everything below it, when the budget is over."""
    made = system()
    inner = ChildSpec("in", do(), shutdown_budget=1_000 * v.SECOND)
    made.spawn("top", do(children=(inner,)), shutdown_budget=2 * v.SECOND)
    made.run_until_idle()
    made.tell("/top/in", Do((v.Run("k", Job()),)))
    made.run_until_idle()
    (hanging,) = made.pending.values()
    hanging.deaf = True
    made.tell("/", Do((v.StopChild("top"),)))
    made.advance(1)
    assert "/top/in" in made.tree.cells
    made.advance(2)
    assert [path for path in made.tree.cells if path != "/"] == []
    assert made.statistics().operations == 1  # its slot stays taken until it has really ended
    hanging.complete()
    made.run_until_idle()
    assert made.statistics().operations == 0


def test_the_restart_window_is_one_of_time():
    """INV-R7: as many failures as one likes, far apart; too many at once quarantine an entity."""
    made = system(do(supervision=Supervision(restarts=2, period=10 * v.SECOND, backoff=Backoff(maximum=1))))
    made.spawn("a", do(), entity=True)
    for _ in range(8):
        made.tell("/a", Do(error=True))
        made.advance(11)
    assert made.tree.cells[v.ActorPath("/a")].status == ACTIVE
    for _ in range(3):
        made.tell("/a", Do(error=True))
        made.advance(1)
    assert made.tree.cells[v.ActorPath("/a")].status == QUARANTINED


def test_budgets_are_each_childs_own():
    """INV-R7: under ONE_FOR_ONE a poison entity uses up nobody else's budget."""
    made = system(do(supervision=Supervision(restarts=1, period=100 * v.SECOND)))
    for name in "abc":
        made.spawn(name, do(), entity=True)
    for name in "aabc":
        made.tell(f"/{name}", Do(error=True))
        made.advance(1)
    status = [made.tree.cells[v.ActorPath(f"/{name}")].status for name in "abc"]
    assert status == [QUARANTINED, ACTIVE, ACTIVE]


def test_a_kept_question_fails_at_once_when_its_keeper_ends():
    """INV-R3: a deferred answer fails with the restart or the stop of the one who owes it."""
    made = system()
    made.spawn("a", do())
    first = made.question("/a", Do(keep=True))
    made.run_until_idle()
    assert not first.done
    made.tell("/a", Do(error=True))
    made.run_until_idle()
    assert type(first.error) is ActorRestarted
    second = made.question("/a", Do(keep=True))
    made.run_until_idle()
    made.tell("/", Do((v.StopChild("a"),)))
    made.run_until_idle()
    assert type(second.error) is ActorStopped


def test_a_fed_item_waits_for_its_record():
    """INV-R9: what is fed into a session leaves after the record that it rests on."""
    made = system(sync_ns=None)

    def decide(state, message, ctx):
        if message == "open":
            return (v.Open("s", Job()),)
        return v.Decision(records=(Noted(1),), commands=(v.Feed("s", "item"),))

    made.spawn("a", Behavior(initial=list, evolve=lambda state, fact: None, decide=decide, sessions={Job: _never}))
    made.tell("/a", "open")
    made.run_until_idle()
    (session,) = made.pending.values()
    made.tell("/a", "note")
    made.run_until_idle()
    assert session.take_fed() == []
    made.journal.commit()
    made.run_until_idle()
    assert session.take_fed() == ["item"]


def test_a_cancel_behind_the_gate_annihilates():
    """INV-R6: an effect that still waits for the disk when it is given up never starts."""
    made = system(sync_ns=None)

    def decide(state, message, ctx):
        if message == "cancel":
            return (v.Cancel("k"),)
        return v.Decision(records=(Noted(1),), commands=(v.Run("k", Job()),))

    made.spawn("a", Behavior(initial=list, evolve=lambda state, fact: None, decide=decide, effects={Job: _never}))
    made.tell("/a", "run")
    made.tell("/a", "cancel")
    made.run_until_idle()
    made.journal.commit()
    made.run_until_idle()
    assert not made.pending


def test_what_the_dead_process_had_on_the_wire_is_nobodys():
    """INV-R6: an effect of the process before the crash ends now; the next process's, of the same key, is untouched."""
    log = Log()
    made = system()
    made.spawn("a", do(log))
    made.tell("/a", Do((v.Run("k", Job("first")),)))
    made.run_until_idle()
    (first,) = made.pending.values()
    made.restart()
    made.spawn("a", do(log))
    made.tell("/a", Do((v.Run("k", Job("second")),)))
    made.run_until_idle()
    first.complete("late")
    made.run_until_idle()
    assert log == []
    (second,) = made.pending.values()
    second.complete("good")
    made.run_until_idle()
    assert [message.value for message in log] == ["good"]


def test_control_work_waits_for_one_turn_at_most():
    """INV-R3: a stop is carried out before the next ordinary message, however many wait."""
    made = system()
    for name in "abc":
        made.spawn(name, do(), capacity=1_000)
    for _ in range(100):
        for name in "abc":
            made.tell(f"/{name}", Do())
    made.simulation.dispatcher.lifecycle.stop(made.tree.cells[v.ActorPath("/a")], v.StopReason.NORMAL)
    made.step()
    assert "/a" not in made.tree.cells
    assert made.statistics().delivered == 0


def test_a_record_that_cannot_be_applied_never_was():
    """A decision whose evolve raises half-way changed nothing, in memory or on disk; its state is read again."""
    made = system()

    def evolve(state, fact):
        state.append(fact.number)
        if fact.number < 0:
            raise ValueError("as told")

    def decide(state, message, ctx):
        return v.Decision(records=tuple(map(Noted, message)))

    made.spawn("a", Behavior(initial=list, evolve=evolve, decide=decide))
    for numbers in ((1,), (2, -1), (3,)):
        made.tell("/a", numbers)
        made.advance(1)
    assert made.state("/a") == [1, 3]
    assert made.journal.read("/a") == [Noted(1), Noted(3)]


def test_a_temporary_sibling_goes_down_with_its_group_for_good():
    """Under one_for_all a temporary child is stopped with its siblings and does not come back."""
    group = do(
        supervision=Supervision(strategy=Strategy.ONE_FOR_ALL),
        children=(ChildSpec("keeper", do()), ChildSpec("guest", do(), restart=Restart.TEMPORARY)),
    )
    made = system(Behavior(children=(ChildSpec("group", group),)))
    made.tell("/group/keeper", Do(error=True))
    made.advance(1)
    assert made.tree.cells[v.ActorPath("/group/keeper")].incarnation == 1
    assert v.ActorPath("/group/guest") not in made.tree.cells


def test_the_end_of_an_actor_comes_after_its_last_words():
    """Terminated is seen behind all that the dead actor had told (INV-R2)."""
    log = Log()
    made = system()
    made.spawn("heir", do(log))
    made.spawn("dying", do(), restart=Restart.TRANSIENT)
    made.tell("/heir", Do((v.Watch(v.ActorPath("/dying")),)))
    made.run_until_idle()
    heir = v.ActorPath("/heir")
    made.tell("/dying", Do((v.Tell(heir, "first"), v.Tell(heir, "last"), v.StopSelf())))
    made.run_until_idle()
    assert log == ["first", "last", v.Terminated(v.ActorPath("/dying"), v.StopReason.NORMAL)]
