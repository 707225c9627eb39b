"""Effects, sessions and events at the edge, on both event loops: cancelled, bounded, in the system's own context."""

import contextvars

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked
from puppet import Do, Job, Log, puppet

from iriscw.runtime import (
    ActorSystem,
    Arrived,
    Cancel,
    Close,
    Closed,
    Completed,
    Emit,
    Failed,
    FailureReport,
    Feed,
    FeedRefused,
    Open,
    Reply,
    Run,
    StopSelf,
)

ASKER = contextvars.ContextVar("ASKER", default="system")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Run each test on both event loops."""
    return request.param


class Boom(Exception):
    """Raised by tests."""


class Bench:
    """A system with one puppet at ``/a`` whose effects and sessions are ``perform``."""

    def __init__(self, perform, **options):
        self.log = Log()
        self.system = ActorSystem(**options)
        self.behavior = puppet(self.log, effects={Job: perform}, sessions={Job: perform})

    async def __aenter__(self):
        await self.system.__aenter__()
        self.ref = self.system.spawn("a", self.behavior)
        return self

    async def __aexit__(self, *error):
        return await self.system.__aexit__(*error)

    async def do(self, *commands):
        """Have the actor carry these out, and wait until nothing moves."""
        self.ref.tell(Do(commands))
        await wait_all_tasks_blocked()


# Effects


async def test_results_come_back():
    """What an effect returns or raises comes back with its key and what was asked."""
    error = Boom()

    async def perform(job):
        if job.name == "bad":
            raise error
        await anyio.lowlevel.checkpoint()
        return job.name.upper()

    async with Bench(perform) as bench:
        await bench.do(Run("k", Job("good")), Run(("l", 1), Job("bad")))
        await bench.log.wait(2)
    assert sorted(bench.log, key=lambda seen: str(seen.key)) == [
        Failed(("l", 1), Job("bad"), error),
        Completed("k", Job("good"), "GOOD"),
    ]


async def test_a_function_that_is_not_async():
    """It fails as an effect, with a TypeError, and harms nobody else."""
    async with Bench(lambda job: None) as bench:
        await bench.do(Run("k", Job()))
        assert [type(seen.error) for seen in bench.log] == [TypeError]


async def test_a_cancelled_effect_is_never_seen():
    """The effect's task is cancelled; neither its end nor an error that it raises then is seen."""
    ended = []

    async def perform(job):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(job.name)
            if job.name == "raises":
                raise Boom

    async with Bench(perform) as bench:
        await bench.do(Run("k", Job("quiet")), Run("l", Job("raises")))
        await bench.do(Cancel("k"), Cancel("l"), Cancel("unknown"))
        assert sorted(ended) == ["quiet", "raises"]
        assert bench.log == []
        assert bench.system.statistics().operations == 0


async def test_an_effect_given_up_before_it_began():
    """It never runs, not even up to its first await."""
    ran = []

    async def perform(job):
        ran.append(job)

    async with Bench(perform) as bench:
        await bench.do(Run("k", Job()), Cancel("k"))
        assert ran == []
        assert bench.log == []


async def test_one_effect_per_key():
    """Running a key again gives the earlier effect up, and begins when that has really ended."""
    events = []
    release = anyio.Event()

    async def perform(job):
        events.append(f"{job.name} began")
        try:
            await anyio.sleep(3_600 if job.name == "first" else 0)
        finally:
            with anyio.CancelScope(shield=True):
                await release.wait()
            events.append(f"{job.name} ended")

    async with Bench(perform) as bench:
        await bench.do(Run("k", Job("first")))
        await bench.do(Run("k", Job("second")))
        await bench.do(Run("k", Job("third")))
        assert events == ["first began"]
        release.set()
        await bench.log.wait()
        assert bench.log == [Completed("k", Job("third"), None)]
    assert events == ["first began", "first ended", "third began", "third ended"]


async def test_effects_end_with_their_actor():
    """When the actor stops its effects are cancelled first; a restart does the same."""
    ended = []

    async def perform(job):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(bench.ref.alive)

    async with Bench(perform) as bench:
        await bench.do(Run("k", Job()))
        await bench.do(StopSelf())
        assert ended == [True]
        assert bench.ref.alive  # it is permanent
        await bench.do(Run("k", Job()))
    assert ended == [True, True]


async def test_effects_run_in_the_systems_context():
    """An ask that is answered inline does not leak the asker's context variables into effects, sessions or events."""
    seen = []

    async def perform(job, port=None):
        seen.append(ASKER.get())

    async with Bench(perform, on_event=lambda event: seen.append(ASKER.get())) as bench:
        ASKER.set("asker")
        commands = (Run("k", Job()), Open("s", Job()), Emit("news"), Reply())
        await bench.ref.ask(Do(commands))
        await bench.log.wait(2)
        assert ASKER.get() == "asker"
    assert seen == ["system"] * 3


# Sessions


async def test_a_session_talks_both_ways():
    """Fed items arrive at the session in order, sent ones at the actor; it ends well when it returns."""

    async def perform(job, port):
        async for item in port:
            if item == "end":
                return
            await port.send(item * 2)

    async with Bench(perform) as bench:
        await bench.do(Open("s", Job()), Feed("s", 1), Feed("s", 2))
        await bench.do(Feed("s", 3), Feed("s", "end"))
        await bench.log.wait(4)
    assert bench.log == [Arrived("s", 2), Arrived("s", 4), Arrived("s", 6), Closed("s", None)]


async def test_a_session_that_fails():
    """Its error comes with Closed; what it sent before comes first. Then feeding is refused."""
    error = Boom()

    async def perform(job, port):
        await port.send("last words")
        raise error

    async with Bench(perform) as bench:
        await bench.do(Open("s", Job()))
        await bench.do(Feed("s", "late"))
        assert bench.log == [Arrived("s", "last words"), Closed("s", error), FeedRefused("s", "late")]


async def test_a_closed_session_is_cancelled():
    """Close cancels the session; nothing more of it is seen, not even what it sent before."""
    ended = []

    async def perform(job, port):
        try:
            await port.receive()
        finally:
            ended.append(job)

    async with Bench(perform) as bench:
        await bench.do(Open("s", Job()))
        await bench.do(Close("s"))
        assert len(ended) == 1
        assert bench.log == []


async def test_a_slow_actor_holds_the_session_back():
    """At most ``inbound`` items wait in the mailbox; the session waits for room, and loses nothing."""
    sent = []

    async def perform(job, port):
        for number in range(20):
            await port.send(number)
            sent.append(number)

    async with Bench(perform) as bench:
        await bench.do(Open("s", Job(), inbound=3))
        most = 0
        taken = bench.log.append

        def take(item):
            nonlocal most
            most = max(most, bench.system.statistics().answers_queued)
            taken(item)

        bench.log.append = take
        await bench.do(Close("s"))
        bench.log.clear()
        sent.clear()
        await bench.do(Open("s", Job(), inbound=3))
        await bench.log.wait(21)
    assert [seen.item for seen in bench.log[:-1]] == list(range(20))
    assert bench.log[-1] == Closed("s", None)
    assert 1 <= most <= 3


async def test_a_slow_session_holds_the_actor_back():
    """At most ``outbound`` fed items wait; the rest comes back as FeedRefused. Each receive makes room."""
    go = anyio.Event()
    received = []

    async def perform(job, port):
        await go.wait()
        received.extend([await port.receive() for _ in range(3)])

    async with Bench(perform) as bench:
        await bench.do(Open("s", Job(), outbound=2), *(Feed("s", number) for number in range(4)))
        assert bench.log == [FeedRefused("s", 2), FeedRefused("s", 3)]
        go.set()
        await wait_all_tasks_blocked()
        await bench.do(Feed("s", 4))
        await bench.log.wait(3)
        assert bench.log[-1] == Closed("s", None)
    assert received == [0, 1, 4]


# Events


async def test_listeners_run_outside_decisions():
    """A listener may tell: it is called between steps. Failure reports come the same way."""
    seen = []

    def listen(event):
        seen.append(event)
        if event == "first":
            bench.ref.tell(Do((Emit("second"),)))

    async with Bench(None, on_event=listen) as bench:
        await bench.do(Emit("first"))
        await bench.ref.ask(Do((Emit("third"), Reply())))
        bench.ref.tell(Do(error=Boom()))
        await wait_all_tasks_blocked()
    assert seen[:3] == ["first", "second", "third"]
    assert type(seen[3]) is FailureReport
    assert bench.system.statistics().events == 4
