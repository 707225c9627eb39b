"""Behaviors and child specs: what an actor is, as data."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from iriscw._errors import InvalidArgument, UnhandledMessage
from iriscw.runtime.envelope import Envelope, Slot
from iriscw.runtime.vocabulary import SECOND, Command, Context, DecisionFunction, Outcome, message

DEFAULT_CAPACITY = 1024
"""Messages that wait in a mailbox at most. Akka's bounded default is 1000, kameo's 64."""

DEFAULT_SHUTDOWN = 5 * SECOND
"""What a child may take to stop, in ns: Erlang/OTP's default for a worker."""

DEFAULT_SNAPSHOT_EVERY = 10_000
"""Records of one actor after which a snapshot replaces them: replaying 10,000 takes a fraction of a second."""

EffectFunction: TypeAlias = Callable[[Any], Awaitable[Any]]
SessionFunction: TypeAlias = Callable[[Any, Any], Awaitable[None]]
Resume: TypeAlias = Callable[[Any, Context], Iterable[Command]]
Evolve: TypeAlias = Callable[[Any, Any], None]


def _unhandled(state: Any, received: Any, ctx: Context) -> Outcome:
    raise UnhandledMessage(f"{ctx.path} has no rule for {type(received).__name__}")


def _awaiting_journal(rule: DecisionFunction) -> DecisionFunction:
    def decide(state: Any, received: Any, ctx: Any) -> Outcome:
        ctx.await_journal()
        return rule(state, received, ctx)

    return decide


class RuleTable(dict[type, DecisionFunction | None]):
    """The decision for each message type: one look-up, whatever the type.

    None stands for the runtime's own envelopes, so that the common case needs no test of its own. Types without a rule
    are filled in when they first come.
    """

    __slots__ = ("explicit", "fallback", "plain")

    def __init__(self, on: Mapping[type, DecisionFunction], fallback: DecisionFunction | None, *, plain: bool) -> None:
        super().__init__(on)
        self[Envelope] = None
        self[Slot] = None
        self.explicit = tuple(on)
        self.fallback = fallback
        self.plain = plain
        """Whether a decision may return a state: durable actors change theirs by records only."""

    def __missing__(self, kind: type) -> DecisionFunction:
        rule = self.fallback or _unhandled
        self[kind] = rule
        return rule

    def answers(self, kind: type) -> bool:
        """Whether there is a rule for messages of this type."""
        return self.fallback is not None or kind in self.explicit


class Strategy(enum.Enum):
    """Which siblings of a failed child are restarted with it."""

    ONE_FOR_ONE = "one_for_one"
    """None."""
    ONE_FOR_ALL = "one_for_all"
    """All."""
    REST_FOR_ONE = "rest_for_one"
    """Those that were started after it."""


class Restart(enum.Enum):
    """When a child that ended is started again."""

    PERMANENT = "permanent"
    """Always."""
    TRANSIENT = "transient"
    """After a failure."""
    TEMPORARY = "temporary"
    """Never."""


class Shutdown(enum.Enum):
    """What a stopping actor does with the messages that wait."""

    STOP = "stop"
    """They become dead letters."""
    STOP_AFTER_MAILBOX = "stop_after_mailbox"
    """Those there when the stop came are still decided on, within the shutdown budget."""


@attrs.frozen
class Backoff:
    """How long a restart waits: doubling from ``initial`` to ``maximum``, spread by ``jitter``; all times in ns.

    The wait starts at ``initial`` again once an incarnation has lived for ``reset_after``. With ``initial`` 0 the
    first restart is immediate and the doubling starts at ``maximum / 1024``.
    """

    initial: int = 0
    maximum: int = 30 * SECOND
    jitter: float = 0.2
    reset_after: int = 60 * SECOND


@attrs.frozen
class Supervision:
    """How an actor treats its failing children.

    A child may be restarted ``restarts`` times within ``period`` ns (Erlang/OTP's defaults are 1 in 5 s; ours are
    kinder, because the backoff already spaces restarts). The budget is kept per child under ``ONE_FOR_ONE`` and for
    the group as a whole otherwise.
    """

    strategy: Strategy = Strategy.ONE_FOR_ONE
    restarts: int = 5
    period: int = 60 * SECOND
    backoff: Backoff = attrs.field(factory=Backoff)


def _distinct(behavior: Behavior, attribute: Any, children: tuple[ChildSpec, ...]) -> None:
    names = [child.name for child in children]
    for name in names:
        if not name or "/" in name:
            raise InvalidArgument(f"a child's name is non-empty and holds no '/': {name!r}")
    if len(dict.fromkeys(names)) < len(names):
        raise InvalidArgument(f"children have names of their own: {', '.join(names)}")


@attrs.frozen(eq=False)
class Behavior:
    """What an actor does: its state, its decisions, and the effects that it may ask for.

    Args:
        initial: gives the state of a new incarnation.
        on: the decision for each message type. A type without a rule goes to ``decide``.
        decide: the decision for all other types; without it they raise :class:`~iriscw.errors.UnhandledMessage`.
        resume: gives the commands that the state owes to the world (effects, timers, watches, children). Called with
            each new incarnation, for a fresh state, a restarted actor and a replayed journal alike.
        evolve: applies a record to the state, in place. With it the actor is *durable*: its state is what its records
            say, and survives restarts of the actor and of the process.
        compact: gives records from which ``evolve`` builds an equal state: a snapshot that needs no format of its own.
        effects: the async function that carries out each type of effect.
        sessions: the async function ``(session, port)`` that carries out each type of session.
        children: started in this order before the first message, stopped in reverse order.
        supervision: how failing children are treated.
        snapshot_every: records after which ``compact`` is asked for a snapshot.
        awaits_journal: decide only while the journal takes records. For durable actors that keep notes beside what
            their records say: else a decision whose records are not taken, and which is therefore taken again later,
            would find the notes as the first one left them. Without it only decisions with records wait.
        name: shown in statistics and traces.

    Raises:
        InvalidArgument: two children have the same name, or one has an impossible name.
    """

    initial: Callable[[], Any] = lambda: None
    on: Mapping[type, DecisionFunction] = attrs.field(factory=dict)
    decide: DecisionFunction | None = None
    resume: Resume | None = None
    evolve: Evolve | None = None
    compact: Callable[[Any], Iterable[Any]] | None = None
    effects: Mapping[type, EffectFunction] = attrs.field(factory=dict)
    sessions: Mapping[type, SessionFunction] = attrs.field(factory=dict)
    children: tuple[ChildSpec, ...] = attrs.field(default=(), validator=_distinct)
    supervision: Supervision = attrs.field(factory=Supervision)
    snapshot_every: int = DEFAULT_SNAPSHOT_EVERY
    awaits_journal: bool = False
    name: str = ""
    rules: RuleTable = attrs.field(init=False, repr=False)

    @rules.default
    def _compile(self) -> RuleTable:
        if not self.awaits_journal:
            return RuleTable(self.on, self.decide, plain=self.evolve is None)
        on = {kind: _awaiting_journal(rule) for kind, rule in self.on.items()}
        decide = None if self.decide is None else _awaiting_journal(self.decide)
        return RuleTable(on, decide, plain=self.evolve is None)

    starts_at_once: bool = attrs.field(init=False, repr=False)

    @starts_at_once.default
    def _is_simple(self) -> bool:
        # Nothing to resume, to replay or to start first: such an actor needs no piece of control work to start.
        return self.resume is None and self.evolve is None and not self.children

    @property
    def durable(self) -> bool:
        """Whether the actor's state lives in the journal."""
        return self.evolve is not None


@message
class ChildSpec:
    """How a supervisor starts, restarts and stops one child.

    Args:
        name: unique among its siblings; non-empty, without ``/``.
        behavior: what it does.
        restart: when it is started again after it ended.
        shutdown: what it does with waiting messages when it is stopped.
        shutdown_budget: what stopping it may take, in ns; its own children share it.
        entity: whether it stands for one thing among many (a slice, a job). An entity that exhausts its restart budget
            is quarantined; anything else escalates to its parent, which then fails itself.
        capacity: messages that may wait in its mailbox.
    """

    name: str
    behavior: Behavior
    restart: Restart = Restart.PERMANENT
    shutdown: Shutdown = Shutdown.STOP
    shutdown_budget: int = DEFAULT_SHUTDOWN
    entity: bool = False
    capacity: int = DEFAULT_CAPACITY


__all__ = [
    "DEFAULT_CAPACITY",
    "DEFAULT_SHUTDOWN",
    "Backoff",
    "Behavior",
    "ChildSpec",
    "Evolve",
    "Outcome",
    "Restart",
    "Resume",
    "Shutdown",
    "Strategy",
    "Supervision",
]
