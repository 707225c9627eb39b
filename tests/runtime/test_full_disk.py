"""A full disk (R9, R10): who asks is told by name, nothing refused happened, nothing acknowledged is lost."""

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given, strategies as st
from puppet import Add, Do, Log, Read, ledger, puppet

from iriscw._errors import AskTimeout, JournalFull, JournalUnavailable, OutcomePending, OutcomeUnknown
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.journal.records import record
from iriscw.runtime import (
    ActorPath,
    ActorSystem,
    Behavior,
    ChildSpec,
    Decision,
    Emit,
    FailureReport,
    Forget,
    Reply,
    Request,
    Restart,
    Tell,
    message,
    vocabulary as v,
)
from iriscw.testing import SimSystem, checks
from raised import that

FULL = "the simulated disk of the journal is full"
LONG_S = 1_000
"""A deadline that no test waits for."""


@record("test.disk_kept")
@message
class Kept:
    """A key was used."""

    key: int


@message
class Keep:
    """Use a key; again is as good as once."""

    key: int


@message
class Count:
    """Answer with the keys that were used."""


def keeper():
    """Return a durable set of keys; what asks to keep one may be repeated, as a submission may."""

    def keep(state, received, ctx):
        if received.key in state:
            return (Reply("kept before"),)
        answer = () if ctx.reply_to is None else (Reply("kept"),)
        return Decision(records=(Kept(received.key),), commands=(*answer, Emit(received.key)))

    return Behavior(
        initial=dict,
        on={Keep: keep, Count: lambda state, received, ctx: (Reply(tuple(state)),)},
        evolve=lambda state, fact: state.update({fact.key: state.get(fact.key, 0) + 1}),
    )


ROOT = Behavior(children=(ChildSpec("keys", keeper()), ChildSpec("ledger", ledger())))


def simulated(seed=0, **options):
    """Return a checked system with a durable actor, idle."""
    system = SimSystem(ROOT, seed=seed, **options)
    checks.watch(system.simulation)
    system.run_until_idle()
    return system


@pytest.fixture
async def journal():
    """A journal that commits what it is told to."""
    return MemoryJournal(MemoryDisk())


# What is refused


async def test_refused_at_once_by_name(journal):
    """An ask that needs a record gets JournalFull, with the disk's own words; nothing of it is kept."""
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        journal.fill()
        with pytest.raises(JournalFull, check=that(names=FULL)) as caught:
            await system.ask("/a", Add(1), LONG_S)
        assert caught.value.retryable
        assert await system.ask("/a", Read(), LONG_S) == 0
        assert journal.appended == 0


async def test_a_slow_disk_is_not_a_full_one():
    """Past the bound of uncommitted bytes the refusal says that the disk does not keep up, not that it is full."""
    journal = MemoryJournal(MemoryDisk(), bound_bytes=1)
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        with anyio.move_on_after(0.01):
            await system.ask("/a", Add(1), LONG_S)
        with pytest.raises(JournalUnavailable, check=that(__class__=JournalUnavailable)) as caught:
            await system.ask("/a", Add(1), LONG_S)
        assert type(caught.value) is JournalUnavailable
        assert caught.value.retryable


@pytest.mark.parametrize("waits", ["forgets", "awaits"])
async def test_all_that_needs_the_journal_is_refused(journal, waits):
    """Forget and await_journal are refused to a host as records are."""

    def decide(state, received, ctx):
        if waits == "awaits":
            ctx.await_journal()
        return (Forget(), Reply("done"))

    async with ActorSystem(journal=journal) as system:
        system.spawn("a", Behavior(decide=decide))
        journal.fill()
        with pytest.raises(JournalFull, check=that(names=FULL)):
            await system.ask("/a", "go", LONG_S)
        assert (journal.appended, system.statistics().held) == (0, 0)


async def test_a_start_that_needs_records_says_why():
    """An actor whose resume records something fails with JournalFull while the disk is full, and comes back."""
    reports = []
    journal = MemoryJournal(MemoryDisk(), auto=True)
    behavior = Behavior(initial=dict, evolve=lambda state, fact: None, resume=lambda state, ctx: (Forget(),))
    async with ActorSystem(journal=journal, on_event=reports.append) as system:
        journal.fill()
        system.spawn("a", behavior, restart=Restart.TEMPORARY)
        await wait_all_tasks_blocked()
    [report] = [each for each in reports if type(each) is FailureReport]
    assert type(report.error) is JournalFull
    assert str(report.error) == FULL


# What was accepted before the disk was known to be full


async def test_who_waits_is_told(journal):
    """The answer exists and cannot leave: OutcomePending as soon as the disk is full, long before the deadline."""
    answers = []

    async def add():
        try:
            answers.append(await system.ask("/a", Add(5), LONG_S))
        except OutcomePending as error:
            answers.append(error)

    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add)
            await wait_all_tasks_blocked()
            assert answers == []
            journal.fill()
        [error] = answers
        assert isinstance(error, OutcomeUnknown)
        assert error.retryable
        assert str(error) == f"/a answered, but {FULL}"
        journal.free()
        journal.commit()
        await wait_all_tasks_blocked()
        assert await system.ask("/a", Read(), LONG_S) == 5


async def test_a_read_of_what_is_not_on_disk(journal):
    """While the disk is full, reading what is not on disk fails at once by name, reading all else goes on."""
    async with ActorSystem(journal=journal) as system:
        system.spawn("changed", ledger())
        system.spawn("quiet", ledger())
        with anyio.move_on_after(0.01):
            await system.ask("/changed", Add(5), LONG_S)
        journal.fill()
        await wait_all_tasks_blocked()
        for _ in range(100):
            with pytest.raises(OutcomePending, check=that(names=FULL)):
                await system.ask("/changed", Read(), LONG_S)
        assert await system.ask("/quiet", Read(), LONG_S) == 0
        assert system.statistics().held == 0  # who is refused leaves nothing behind, however often
        journal.free()
        journal.commit()
        await wait_all_tasks_blocked()
        assert await system.ask("/changed", Read(), LONG_S) == 5


async def test_a_deadline_names_the_disk():
    """What only a slow disk keeps back still ends at its deadline, and the text says what it waited for."""
    journal = MemoryJournal(MemoryDisk(), bound_bytes=1)
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        with pytest.raises(OutcomeUnknown, check=that(comes_from="reference.ActorRef._wait")):
            await system.ask("/a", Add(1), timeout_s=0.01)


async def test_a_request_that_waits_names_the_disk(journal):
    """An actor's question to another is never refused, it waits; the host that waits for both learns for what."""

    def decide(state, received, ctx):
        return (Request(ActorPath("/a"), Add(1), "k", LONG_S * v.SECOND),) if received == "pass it on" else None

    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        system.spawn("b", Behavior(decide=decide))
        journal.fill()
        with pytest.raises(AskTimeout, check=that(names=FULL)):
            await system.ask("/b", "pass it on", timeout_s=0.01)
        journal.free()
        await wait_all_tasks_blocked()
        journal.commit()
        await wait_all_tasks_blocked()
        assert await system.ask("/a", Read(), LONG_S) == 1


async def test_all_else_stays_held(journal):
    """Events and messages of before leave in order once there is room; a full disk loses none and lets none out."""
    events = []
    log = Log()
    async with ActorSystem(journal=journal, on_event=events.append) as system:
        system.spawn("keys", keeper())
        system.spawn("b", puppet(log))
        for key in (1, 2):
            system.tell("/keys", Keep(key))
        system.tell("/b", Do((Tell(ActorPath("/b"), "inside"),)))
        await wait_all_tasks_blocked()
        journal.fill()
        system.tell("/keys", Keep(3))
        await wait_all_tasks_blocked()
        assert (events, log) == ([], ["inside"])
        journal.free()
        await wait_all_tasks_blocked()
        journal.commit()
        await wait_all_tasks_blocked()
        assert events == [1, 2, 3]


# Nothing acknowledged is lost, nothing refused happened

keys = st.integers(0, 9)
lines = st.one_of(
    st.tuples(st.just("keep"), keys),
    st.tuples(st.just("keep"), keys),
    st.tuples(st.just("count"), st.just(0)),
    st.tuples(st.sampled_from(("fill", "free")), st.just(0)),
    st.tuples(st.just("advance"), st.integers(0, 20)),
    st.tuples(st.just("step"), st.integers(1, 9)),
)


class Story:
    """A run: what was asked, and what became of it."""

    def __init__(self, seed):
        self.system = simulated(seed)
        self.slots = []
        self.counts = []

    def play(self, script):
        """Carry out a script."""
        for verb, number in script:
            match verb:
                case "keep":
                    self.slots.append((number, self.system.question("/keys", Keep(number))))
                case "count":
                    self.counts.append(self.system.question("/keys", Count()))
                case "advance":
                    self.system.advance(number / 1000)
                case "step":
                    for _ in range(number):
                        self.system.step()
                case _:
                    getattr(self.system.journal, verb)()

    def by_fate(self):
        """Return the keys that were acknowledged, refused, and left pending."""
        fates = {"kept": set(), "refused": set(), "pending": set()}
        for key, slot in self.slots:
            if not slot.done or type(slot.error) is OutcomePending:
                fates["pending"].add(key)
            elif slot.error is None:
                fates["kept"].add(key)
            else:
                assert type(slot.error) is JournalFull
                fates["refused"].add(key)
        return fates

    def on_disk(self):
        """Return how often each key is in what survives a crash right now."""
        again = SimSystem(ROOT, disk=self.copy_of_disk(), name="again")
        again.run_until_idle()
        return again.state("/keys")

    def copy_of_disk(self):
        """Return the durable part."""
        copy = MemoryDisk()
        copy.entries, copy.last = list(self.system.disk.entries), self.system.disk.last
        return copy


@given(seed=st.integers(0, 99), script=st.lists(lines, max_size=40))
def test_what_a_full_disk_leaves(seed, script):
    """At every end: acknowledged is on disk; what is on disk was acknowledged or pending; no key is there twice."""
    story = Story(seed)
    story.play(script)
    fates = story.by_fate()
    found = story.on_disk()
    assert fates["kept"] <= set(found) <= fates["kept"] | fates["pending"]
    assert set(found.values()) <= {1}
    for slot in story.counts:
        if slot.done and slot.error is None:
            assert set(slot.value) <= set(found)


@given(seed=st.integers(0, 99), script=st.lists(lines, max_size=40), crash=st.booleans())
def test_space_comes_back(seed, script, crash):
    """With room again all is answered without a restart, and repeating what was not acknowledged keeps it once."""
    story = Story(seed)
    system = story.system
    story.play(script)
    system.journal.free()
    system.advance(1)
    assert all(slot.done for _, slot in story.slots)
    fates = story.by_fate()
    assert set(system.state("/keys")) == fates["kept"] | fates["pending"] == set(story.on_disk())
    if crash:
        system.crash()
        system.restart()
        system.run_until_idle()
    asked = {key for key, _ in story.slots}
    for key in asked - fates["kept"]:
        assert system.ask("/keys", Keep(key)) in ("kept", "kept before")
    assert set(system.ask("/keys", Count())) == asked
    assert story.on_disk() == dict.fromkeys(story.on_disk(), 1)
    assert set(story.on_disk()) == asked


def test_a_full_disk_is_reached():
    """A known story has all three fates, so that the laws above are about something."""
    story = Story(0)
    story.play([("keep", 1), ("advance", 20), ("keep", 2), ("step", 3), ("fill", 0), ("step", 9), ("keep", 3)])
    story.play([("step", 9)])
    assert story.by_fate() == {"kept": {1}, "refused": {3}, "pending": {2}}


def test_a_crash_while_it_is_full():
    """What was pending may be lost with the process; what was acknowledged is not, and the key can be used again."""
    system = simulated(sync_ns=lambda rng: v.MILLISECOND)
    assert system.ask("/keys", Keep(1)) == "kept"
    pending = system.question("/keys", Keep(2))
    system.run_until_idle()
    system.journal.fill()
    system.run_until_idle()
    assert type(pending.error) is OutcomePending
    system.crash(0)
    system.restart()
    assert system.ask("/keys", Count()) == (1,)
    assert system.ask("/keys", Keep(2)) == "kept"
