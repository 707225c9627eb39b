"""The whole kernel against a reference: random programs, random faults, everything checked after every step."""

import attrs
import pytest
from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kernel_world import FAMILY, Kind, Work, World

from iriscw.runtime.behavior import Restart, Shutdown, Strategy
from iriscw.runtime.cell import DRAINING
from iriscw.testing import checks
from profiles import examples

NAMES = ("a", "b", "x", "y")
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x")
paths = st.sampled_from(PATHS)
names = st.sampled_from(NAMES)
keys = st.sampled_from(("k", "l"))
delays = st.sampled_from((0, 1, 7, 50, 1_000))
kinds = st.builds(
    Kind,
    restart=st.sampled_from(Restart),
    entity=st.booleans(),
    strategy=st.sampled_from(Strategy),
    durable=st.booleans(),
    capacity=st.sampled_from((8, 2)),
    shutdown=st.sampled_from(Shutdown),
    restarts=st.sampled_from((FAMILY, 2, 1)),
    delay_ms=st.sampled_from((0, 20)),
    failing_starts=st.sampled_from((0, 0, 0, 1, 3)),
    resumes=st.booleans(),
)

_leaf = st.one_of(
    st.sampled_from(
        [
            ("fail",),
            ("bad",),
            ("poison",),
            ("stopself",),
            ("record",),
            ("record",),
            ("emit",),
            ("forget",),
            ("reply",),
            ("refuse",),
            ("keep",),
            ("answer",),
            ("stash",),
            ("unstash",),
        ]
    ),
    st.tuples(st.just("spawn"), names, kinds),
    st.tuples(st.sampled_from(("stop", "revive")), names),
    st.tuples(st.sampled_from(("watch", "unwatch")), paths),
    st.tuples(st.just("timer"), keys, delays),
    st.tuples(st.sampled_from(("untimer", "run", "run", "cancel", "open", "feed")), keys),
)


def _nested(plan):
    plans = plan.map(tuple)
    return st.one_of(
        st.tuples(st.just("tell"), paths, plans),
        st.tuples(st.just("latest"), paths, keys, plans),
        st.tuples(st.just("request"), paths, keys, st.sampled_from((5, 500)), plans),
        st.tuples(st.just("continue"), plans),
    )


_flat = st.lists(_leaf, max_size=3)
_deep = st.lists(st.one_of(_leaf, _nested(_flat)), max_size=4)
plans = st.lists(st.one_of(_leaf, _nested(_deep)), min_size=1, max_size=5).map(tuple)
FOR_ROOT = ("spawn", "stop", "revive", "watch", "tell", "emit", "timer", "run")


class Kernel(RuleBasedStateMachine):
    """One system, its host, its disk and its world, in random hands."""

    @initialize(
        seed=st.integers(0, 1 << 16), careful=st.booleans(), sync_ns=st.sampled_from((0, 1, 5_000_000)), kind=kinds
    )
    def boot(self, seed, careful, sync_ns, kind):
        """Start with two actors, each with a child."""
        self.world = World(seed=seed, careful=careful, sync_ns=sync_ns)
        checks.watch(self.world.simulation)
        self.world.host("/", (("spawn", "a", kind), ("spawn", "b", Kind(durable=True))))
        self.world.system.run_until_idle()
        for path in ("/a", "/b"):
            self.world.host(path, (("spawn", "x", Kind()),))
        self.world.system.run_until_idle()

    @property
    def system(self):
        """The system under test."""
        return self.world.system

    @rule(path=paths, plan=plans)
    def tell(self, path, plan):
        """Send a program."""
        self.world.host(path, plan)

    @rule(path=paths, plan=plans, end=st.sampled_from([("reply",), ("refuse",), ("keep",), ("emit",)]))
    def ask(self, path, plan, end):
        """Ask, with a program on the way to the answer."""
        self.world.ask(path, (*plan, end))

    @rule(name=names, kind=kinds)
    def spawn(self, name, kind):
        """Start an actor at the top."""
        self.world.host("/", (("spawn", name, kind),))

    @rule(path=paths, name=names, kind=kinds)
    def spawn_below(self, path, name, kind):
        """Start a child."""
        self.world.host(path, (("spawn", name, kind),))

    @rule(plan=plans)
    def tell_root(self, plan):
        """Send the root what a root may do."""
        self.world.host("/", tuple(verb for verb in plan if verb[0] in FOR_ROOT))

    @rule(count=st.integers(1, 30))
    def step(self, count):
        """Do a few things, and leave the rest for later."""
        for _ in range(count):
            self.system.step()

    # Scenes: what random verbs would play too rarely

    @rule(watcher=paths, actor=paths, end=st.sampled_from([("stopself",), ("fail",)]))
    def farewell(self, watcher, actor, end):
        """An actor ends in the same breath as it speaks to who watches it."""
        self.world.host(watcher, (("watch", actor),))
        self.system.run_until_idle()
        self.world.host(actor, (("tell", watcher, ()), ("latest", watcher, "k", ()), ("tell", watcher, ()), end))

    @rule(path=paths, key=keys, then=st.sampled_from(["untimer", "timer", "fail"]), ms=st.sampled_from((1, 2)))
    def race(self, path, key, then, ms):
        """A timer comes due while the message that withdraws it waits in front of it."""
        self.world.host(path, (("timer", key, ms),))
        self.system.run_until_idle()
        self.world.host(path, ((then, key, 50) if then == "timer" else (then, key) if then == "untimer" else (then,),))
        self.system.simulation.stall(ms / 1000)

    @rule(path=paths, key=keys, then=st.sampled_from(["cancel", "run", "fail", "stopself"]), deaf=st.booleans())
    def overlap(self, path, key, then, deaf):
        """An effect ends while the message that gives it up waits, or does not end when it is given up."""
        self.world.host(path, (("run", key),))
        self.system.run_until_idle()
        self.world.host(path, ((then, key) if then in ("cancel", "run") else (then,),))
        self.world.host(path, (("run", key),))
        for handle in list(self.system.pending.values()):
            if handle.path == path and handle.key == key:
                handle.deaf = deaf
                if not deaf:
                    handle.complete()

    @rule(sender=paths, receiver=paths, key=keys)
    def supersede(self, sender, receiver, key):
        """The latest takes the last place, not the place of what it replaces."""
        latest = ("latest", receiver, key, ())
        self.world.host(sender, (latest, ("tell", receiver, ()), latest, ("tell", receiver, ())))

    @rule(sender=paths, key=keys, over=st.booleans())
    def renew(self, sender, key, over):
        """What waits for the disk is replaced by a later one, as what waits in a mailbox is."""
        self.system.journal.fill()
        for _ in range(2):
            self.world.host(sender, (("latest", "/b", key, (("record",),)),))
            self.system.run_until_idle()
        self.world.latest()
        if over:
            self.system.journal.free()

    @rule(path=paths, other=paths, end=st.sampled_from([("emit",), ("run", "k"), ("feed", "l"), ("answer",)]))
    def news(self, path, other, end):
        """What one records, another says."""
        self.world.host(other, (("open", "l"),))
        self.world.ask(
            "/b",
            (
                ("record",),
                ("tell", path, (("tell", other, (end,)), end)),
                ("request", path, "q", 500, (("reply",),)),
                end,
                ("reply",),
            ),
        )

    @rule(path=paths, then=st.sampled_from([("unstash",), ("fail",), ("emit",)]))
    def aside(self, path, then):
        """Messages are put aside, and come back in order."""
        for verb in ("stash", "stash", "stash"):
            self.world.host(path, ((verb,), ("emit",)))
        self.world.host(path, (then,))

    @rule(path=paths, times=st.integers(2, 9))
    def crowd(self, path, times):
        """More come than there is room for."""
        self.world.host("/b", tuple(("tell", path, ()) for _ in range(times)))

    @rule(path=paths, reply=st.booleans())
    def owe(self, path, reply):
        """A question is put off, and answered later or not."""
        self.world.ask(path, (("keep",),))
        self.world.ask(path, (("keep",),))
        if reply:
            self.world.host(path, (("record",), ("answer",)))

    @rule(
        path=paths,
        end=st.sampled_from([("untimer", "k"), ("cancel", "k"), ("stopself",), ("fail",)]),
        over=st.booleans(),
    )
    def drought(self, path, end, over):
        """The disk is full: what would write waits, in order, and reading goes on."""
        self.world.host("/b", (("timer", "k", 1), ("run", "k")))
        self.system.run_until_idle()
        self.system.journal.fill()
        self.world.host("/b", (("record",), ("tell", path, ())))
        self.world.host("/b", (("tell", path, ()), ("request", path, "q", 500, (("reply",),))))
        self.system.run_until_idle()
        self.world.ask("/b", (end, ("reply",)))
        self.system.run_until_idle()
        if over:
            self.system.journal.free()

    @rule(name=names, kind=kinds, restarts=st.sampled_from((1, 2)), end=st.sampled_from([("stopself",), ("fail",)]))
    def downfall(self, name, kind, restarts, end):
        """A supervisor ends; until one of its children has stopped the other goes on, and ends as well."""
        path = f"/{name}"
        self.world.host("/", (("spawn", name, attrs.evolve(kind, restarts=restarts)),))
        self.system.run_until_idle()
        self.world.host(path, (("spawn", "x", Kind()), ("spawn", "y", Kind())))
        self.system.run_until_idle()
        self.world.host(f"{path}/y", (("run", "k"),))
        self.system.run_until_idle()
        for handle in self.system.pending.values():
            handle.deaf = handle.deaf or handle.path == f"{path}/y"
        for ending in (path, *[f"{path}/x"] * restarts):
            self.world.host(ending, (end,))
            self.system.run_until_idle()
        self.world.host(path, (("spawn", "x", Kind(failing_starts=1)),))

    @rule(ms=st.sampled_from((1, 50, 1_000)))
    def stand_still(self, ms):
        """The process stands still: timers come due, and nobody decides."""
        self.system.simulation.stall(ms / 1000)

    @rule()
    def run_until_idle(self):
        """Do all there is to do now."""
        self.system.run_until_idle()

    @rule(ms=st.sampled_from((1, 10, 600, 6_000, 15_000)))
    def advance(self, ms):
        """Let time pass."""
        self.system.advance(ms / 1000)

    @precondition(lambda self: self.system.pending)
    @rule(data=st.data(), how=st.sampled_from(("complete", "fail", "deaf", "send", "send")))
    def operate(self, data, how):
        """Have the world do something with an operation that runs."""
        handle = self.system.pending[data.draw(st.sampled_from(sorted(self.system.pending)), label="operation")]
        if how == "complete":
            handle.complete()
        elif how == "fail":
            handle.fail(OSError("the world said no"))
        elif how == "deaf":
            handle.deaf = True
        elif handle.operation.session:
            handle.send(Work(handle.effect.token, 0, self.world.next()))
            handle.take_fed()

    @rule(what=st.sampled_from(("stall", "resume", "fill", "free", "commit", "commit one")))
    def disk(self, what):
        """Let the disk hang, fill up, recover, or do its work."""
        journal = self.system.journal
        if what == "commit one":
            journal.commit(1)
        else:
            getattr(journal, what)()

    @rule(how=st.sampled_from(("crash", "crash", "lose")), keep=st.integers(0, 3))
    def crash(self, how, keep):
        """Kill the process, or its disk and so the process; the next one finds a prefix of the records."""
        if how == "lose":
            self.system.journal.lose()
            self.system.run_until_idle()
            assert self.system.tree.fatal is not None
        self.world.crash(keep)
        self.world.host("/", (("spawn", "b", Kind(durable=True)),))

    @rule()
    def late(self):
        """What the dead process had on the wire ends now: its successor never hears of it."""
        for handle in self.world.orphans:
            if handle.operation.session:
                handle.send(Work(handle.effect.token, 0, self.world.next()))
            handle.complete()

    @rule()
    def settle(self):
        """Heal everything and look at what remains."""
        self._settle()

    def _settle(self):
        self.world.settle()
        if self.system.tree.fatal is None:
            checks.settled(self.system)

    @invariant()
    def nothing_is_wrong(self):
        """See what the oracle has found."""
        if hasattr(self, "world"):
            self.world.latest()
            self.world.check()

    def teardown(self):
        """Every run ends at rest, or has said why not."""
        if hasattr(self, "world"):
            self._settle()


Kernel.TestCase.settings = examples(30, stateful_step_count=25, suppress_health_check=list(HealthCheck))


class TestKernel(Kernel.TestCase):
    """Random programs keep every invariant."""


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_twenty_thousand_random_programs_keep_every_invariant(part):
    """In parts: Hypothesis keeps all programs of a run in memory, and these are longer."""
    longer = examples(20, stateful_step_count=60, suppress_health_check=list(HealthCheck), database=None)
    run_state_machine_as_test(Kernel, settings=longer)


def test_an_actor_that_ends_itself_too_often_fails_its_parent():
    """A failed start and an end of its own are two restarts: with a budget of one the parent fails, and says so."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind(restarts=1))
    kernel.ask(end=("reply",), path="/a", plan=(("spawn", "y", Kind(failing_starts=1)),))
    kernel.overlap(deaf=False, key="k", path="/a/y", then="stopself")
    kernel.run_until_idle()
    assert kernel.system.tree.failures == 2  # the start of y, and its parent
    kernel.teardown()


def test_a_stashed_question_passes_what_waits_for_the_disk():
    """An actor starts anew while the disk is full: what it had put aside waits behind a write, but for a question."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.aside(path="/b", then=("emit",))
    kernel.ask(end=("reply",), path="/b", plan=(("stash",),))
    kernel.drought(end=("stopself",), over=False, path="/a")
    assert kernel.system.tree.parked
    kernel.teardown()


def test_what_an_actor_sent_to_itself_and_stashed_ends_with_it():
    """Only the incarnation that sent it sees it; what others sent leaves the stash in order."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.ask(end=("reply",), path="/b", plan=(("continue", (("stash",),)),))
    kernel.settle()
    kernel.aside(path="/b", then=("fail",))
    kernel.teardown()


def test_starts_that_fail_are_judged_in_the_order_in_which_they_fail():
    """Of two children that fail to start, one at once and one after it loaded, the second exhausts the budget."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind(strategy=Strategy.ONE_FOR_ALL, restarts=1))
    kernel.step(count=1)
    kernel.spawn_below(path="/a", name="b", kind=Kind(failing_starts=1, resumes=True))
    kernel.spawn_below(path="/a", name="a", kind=Kind(entity=True, failing_starts=1))
    kernel.run_until_idle()
    assert kernel.system.tree.quarantined == 1
    kernel.teardown()


def test_who_is_spawned_by_an_actor_that_ends_itself_uses_up_no_budget_of_the_next():
    """It fails to start when its supervisor is over already: the next incarnation may restart one child of its own."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind(strategy=Strategy.ONE_FOR_ALL, restarts=1))
    kernel.ask(end=("reply",), path="/a", plan=(("spawn", "a", Kind(failing_starts=3)), ("stopself",)))
    kernel.ask(end=("refuse",), path="/a", plan=(("spawn", "y", Kind(failing_starts=1)),))
    kernel.teardown()


def test_a_start_that_fails_takes_along_what_was_spawned_in_the_same_turn():
    """It is judged after the turn: a temporary sibling that a later message spawned by then was started after it."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind(strategy=Strategy.REST_FOR_ONE))
    kernel.run_until_idle()
    kernel.spawn_below(path="/a", name="y", kind=Kind(failing_starts=1))
    kernel.spawn_below(path="/a", name="b", kind=Kind(restart=Restart.TEMPORARY))
    kernel.run_until_idle()
    kernel.teardown()
    assert "/a/y" in kernel.system.tree.cells
    assert "/a/b" not in kernel.system.tree.cells


def test_below_an_actor_that_drains_budgets_go_on():
    """Until its mailbox is empty it still restarts its children; one that ends too often ends it before that."""
    kernel = Kernel()
    kind = Kind(durable=True, shutdown=Shutdown.STOP_AFTER_MAILBOX, restarts=1)
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=kind)
    kernel.disk(what="fill")
    kernel.tell(path="/a", plan=(("record",),))
    kernel.run_until_idle()
    kernel.tell_root(plan=(("stop", "a"),))
    for _ in range(2):
        kernel.run_until_idle()
        assert kernel.system.tree.cells["/a"].status == DRAINING
        kernel.tell(path="/a/x", plan=(("stopself",),))
    kernel.run_until_idle()
    assert "/a" not in kernel.system.tree.cells
    kernel.teardown()


def test_who_asks_an_actor_that_goes_while_the_disk_is_full_is_refused():
    """Nobody decided on the question: it is not said to be on its way."""
    kernel = Kernel()
    kernel.boot(seed=97, careful=False, sync_ns=0, kind=Kind())
    kernel.drought(end=("untimer", "k"), over=True, path="/a")
    kernel.ask(end=("reply",), path="/a", plan=(("fail",),))
    kernel.tell_root(plan=(("stop", "a"),))
    kernel.drought(end=("untimer", "k"), over=False, path="/a")
    kernel.teardown()


def test_a_bad_decision_that_forgets_waits_for_the_disk_like_any_other():
    """Whether it could be carried out is known only when the journal takes records again."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.advance(ms=1)
    kernel.disk(what="fill")
    kernel.ask(end=("reply",), path="/b", plan=(("record",),))
    kernel.advance(ms=1)
    kernel.ask(end=("reply",), path="/a", plan=(("forget",), ("bad",)))
    kernel.advance(ms=1)
    kernel.teardown()


def test_who_answers_twice_and_was_asked_once_answers_once():
    """Each answer of a plan is to the next question that was put off; for the second there is none left."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.ask(end=("keep",), path="/a", plan=(("request", "/a", "k", 5, (("answer",), ("answer",))),))
    kernel.teardown()
    assert not kernel.world.questions


def test_a_system_begins_with_two_actors_and_a_child_of_each():
    """What random programs tell them from the first message on is not told to nobody."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=True, sync_ns=None, kind=Kind(durable=True))
    assert {*kernel.system.tree.cells} == {"/", "/a", "/b", "/a/x", "/b/x"}
    assert kernel.system.tree.dead == 0
    kernel.teardown()


def test_the_latest_of_what_waits_for_the_disk_waits_alone():
    """Also behind the first, on which its receiver has decided and which it could not write."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.renew(sender="/a", key="k", over=False)
    kernel.nothing_is_wrong()
    assert kernel.system.statistics().conflated == 1
    kernel.teardown()


def test_a_stashed_request_of_which_nobody_wants_the_answer_does_not_come_back():
    """Its asker has asked anew in the meantime; what was put aside after it comes back all the same."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    kernel.tell(path="/a", plan=(("request", "/b", "l", 500, (("stash",),)),))
    kernel.run_until_idle()
    kernel.tell(path="/b", plan=(("stash",),))
    kernel.run_until_idle()
    kernel.tell(path="/a", plan=(("request", "/b", "l", 500, ()),))
    kernel.run_until_idle()
    dead = kernel.system.tree.dead
    kernel.tell(path="/b", plan=(("unstash",),))
    kernel.run_until_idle()
    assert kernel.system.tree.dead == dead + 1
    kernel.teardown()


def test_a_stashed_question_may_be_overtaken_by_what_waited_for_the_disk():
    """It came back while the disk was full, and its turn when there was room again: so it did not go past the rest."""
    kernel = Kernel()
    kernel.boot(seed=0, careful=False, sync_ns=0, kind=Kind())
    for _ in range(2):
        kernel.tell(path="/b", plan=(("stash",), ("record",)))
    kernel.run_until_idle()
    kernel.disk(what="fill")
    kernel.run_until_idle()
    kernel.tell(path="/b", plan=(("unstash",),))
    kernel.run_until_idle()
    kernel.ask(path="/b", plan=(("stash",),), end=("reply",))
    kernel.run_until_idle()
    for last in ((), (), (), (), (("unstash",),)):  # a turn takes five
        kernel.ask(path="/b", plan=last, end=("reply",))
    kernel.step(count=1)
    cell = kernel.system.tree.cells["/b"]
    assert (len(cell.mailbox), len(cell.parked)) == (1, 2)
    kernel.disk(what="free")
    kernel.run_until_idle()
    kernel.teardown()
