"""Actors for tests that do as their messages say, and remember all else."""

import anyio

from iriscw.journal.records import record
from iriscw.runtime import Behavior, Decision, Reply, message


@message
class Do:
    """Raise ``error``, or return these commands."""

    commands: tuple = ()
    error: BaseException | None = None


@message
class Job:
    """An effect or a session, told apart by name."""

    name: str = ""


class Log(list):
    """What an actor saw, in order; tests can wait for it to grow."""

    def __init__(self):
        super().__init__()
        self._grown = anyio.Event()

    def append(self, item):
        super().append(item)
        self._grown.set()

    async def wait(self, count=1):
        """Wait until ``count`` things were seen."""
        with anyio.fail_after(10):
            while len(self) < count:
                self._grown = anyio.Event()
                await self._grown.wait()


def puppet(log=None, **options):
    """Return a behavior that does what :class:`Do` says, and notes all other messages in ``log``."""

    def decide(state, received, ctx):
        if type(received) is not Do:
            if log is not None:
                log.append(received)
            return None
        if received.error is not None:
            raise received.error
        return received.commands

    return Behavior(decide=decide, **options)


@message
class Read:
    """Answer with the total."""


@message
class Add:
    """Add to the total and answer with the new one, once it is on disk."""

    amount: int


@record("test.puppet_added")
@message
class Added:
    """So much was added."""

    amount: int


def ledger():
    """Return a durable counter."""

    def add(state, received, ctx):
        return Decision(records=(Added(received.amount),), commands=(Reply(state[0] + received.amount),))

    def evolve(state, fact):
        state[0] += fact.amount

    return Behavior(
        initial=lambda: [0],
        on={Add: add, Read: lambda state, received, ctx: (Reply(state[0]),)},
        evolve=evolve,
    )
