"""The words in which an actor decides: pure values, importable from everywhere.

An actor is a *behavior* (see :mod:`iriscw.runtime.behavior`): a table from message type to *decision*, a synchronous
function ``(state, message, ctx) -> Outcome``. A decision reads its state, the message and the context, and returns
what should change:

* ``None``: nothing.
* a tuple of commands: the state stays, the commands are carried out.
* ``Decision(state=..., commands=..., records=...)``: a new state or new records (never both), and commands.

Commands are data. The dispatcher checks all commands of a decision before it carries out the first; one that cannot be
carried out fails the decision as a whole, and then nothing happened.

What a command asked for comes back as a *message* (``Completed``, ``Terminated``, ...), in order with the rest of the
mailbox, on a slot that was reserved when the command was carried out: it cannot be lost to a full mailbox. It is
checked again when it is delivered: an answer to an earlier incarnation or a cancelled request is never seen.

Nothing in this module reads a clock, draws a random number or performs I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, dataclass_transform

import attrs

if TYPE_CHECKING:
    from iriscw.runtime.behavior import ChildSpec

_T = TypeVar("_T")

NANOSECOND = 1
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
"""Times inside the runtime are integer nanoseconds: sums of floats differ between Python versions."""


def seconds(value: float) -> int:
    """Return ``value`` seconds as integer nanoseconds, rounded to the nearest."""
    return round(value * SECOND)


if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
    def message(cls: type[_T]) -> type[_T]:
        """Declare a message, command or value."""
        ...

else:

    def message(cls):  # noqa: ANN001, ANN201 - typed above
        """Declare a message, command or value: slotted, compared by value, immutable by rule.

        The type checker treats such a class as frozen and ``tests/test_tidy.py`` looks for assignments. At run time it
        is a plain ``attrs.define`` class: freezing would triple the cost of building a message (238 against 98 ns
        on the machine the design was measured on), and messages are built a million times a second.
        """
        return attrs.define(cls, slots=True, eq=True, unsafe_hash=False)


def replace(value: _T, **changes: Any) -> _T:
    """Return a copy of a message or value with some fields changed; for cold paths, it costs several constructions."""
    changed: _T = attrs.evolve(value, **changes)  # type: ignore[misc]  # an attrs class, though typed as a dataclass
    return changed


class ActorPath(str):
    """Where an actor stands in its tree: ``/fleet/h100/slice-1``. Names are non-empty and hold no ``/``."""

    __slots__ = ()

    def __truediv__(self, name: str) -> ActorPath:
        """Return the path of the child called ``name``."""
        return ActorPath(f"/{name}" if self == "/" else f"{self}/{name}")

    @property
    def name(self) -> str:
        """The last part; empty for the root."""
        return self.rpartition("/")[2]

    @property
    def parent(self) -> ActorPath:
        """The path above; the root is its own parent."""
        return ActorPath(self.rpartition("/")[0] or "/")

    def __repr__(self) -> str:
        """Show the path as text: traces and errors are read by people."""
        return f"ActorPath({str.__repr__(self)})"


ROOT = ActorPath("/")

Key: TypeAlias = Hashable
"""Names a timer, an effect or a session within its actor: a string, or a tuple of strings and integers."""


class Context(Protocol):
    """What a decision may know beside its state and the message. Valid only while the decision runs."""

    @property
    def path(self) -> ActorPath:
        """Where the deciding actor stands."""

    @property
    def incarnation(self) -> int:
        """How many times the actor at this path was started before, restarts included."""

    @property
    def now(self) -> int:
        """The monotonic clock, in ns, read once per turn. Its zero means nothing; only differences do."""

    @property
    def attentive(self) -> int:
        """The attentive clock, in ns: like ``now``, but a stall of this process counts as at most 1 s.

        Judge the liveness of others on it, so that a stall of ours kills nobody.
        """

    @property
    def wall(self) -> int:
        """The wall clock, in ns since 1970. It may jump; use it for what is journaled or shown to people."""

    @property
    def rng(self) -> Random:
        """This incarnation's own stream of random numbers, seeded from the system's seed and the path."""

    @property
    def reply_to(self) -> ReplyTo | None:
        """Where the answer to the current message goes, or None if nobody waits for one."""

    @property
    def sim(self) -> bool:
        """Whether time is virtual. For fault points only; a decision that branches on it is a bug."""

    def await_journal(self) -> None:
        """Go on only if the journal takes records; else the decision ends here, and nothing of it happened.

        A host's question is then refused by name; any other message is decided on once there is room. For actors
        that pass questions on: whoever records gets its answer refused by itself.
        """

    def new_id(self, prefix: str = "") -> str:
        """Return an id that no other call gives: ``prefix`` and 12 characters of ``[a-z2-7]``."""


@message
class ReplyTo:
    """Who waits for an answer: valid for one answer, until the asker gives up or the answerer restarts."""

    slot: int


# What a decision returns


class _Keep(enum.Enum):
    KEEP = "KEEP"

    def __repr__(self) -> str:
        return "KEEP"


KEEP = _Keep.KEEP
"""The state of a :class:`Decision` that leaves the state as it is."""


@attrs.define(slots=True, eq=True, unsafe_hash=False)
class Decision:
    """A decision that changes something.

    ``records`` are facts in the past tense for the journal. They are applied to the state with the behavior's
    ``evolve``, in place, before the commands are carried out; only behaviors with an ``evolve`` may return them, and
    those never return a ``state``.
    """

    state: Any = KEEP
    commands: tuple[Command, ...] = ()
    records: tuple[Any, ...] = ()


Outcome: TypeAlias = "Decision | tuple[Command, ...] | None"


# Commands


@message
class Tell:
    """Send ``message`` to the actor at ``to``.

    To a path without an actor it is a dead letter. To a full mailbox it comes back as :class:`Undelivered`. With
    ``conflate`` a message of this sender with the same key that still waits there is replaced: for state of which
    only the latest matters. The new message takes the last place, so order is kept.
    """

    to: ActorPath
    message: Any
    conflate: Key | None = None


@message
class Request:
    """Ask the actor at ``to``; :class:`Replied` or :class:`RequestFailed` comes back under ``key``.

    A request with the key of one that still waits replaces it. ``timeout`` is in ns.
    """

    to: ActorPath
    message: Any
    key: Key
    timeout: int


@message
class Reply:
    """Answer a question: the current one, or an earlier one whose ``ctx.reply_to`` was kept."""

    value: Any = None
    to: ReplyTo | None = None


@message
class Refuse:
    """Answer a question with an error."""

    error: Exception
    to: ReplyTo | None = None


@message
class Continue:
    """Send ``message`` to oneself: how a long piece of work lets others have their turn.

    Only the incarnation that sends it sees it: a restart drops it, stashed or not. Never undelivered.
    """

    message: Any


@message
class Stash:
    """Put the current message aside until :class:`Unstash`. Counts against the mailbox's capacity, unless an answer."""


@message
class Unstash:
    """Put all that was stashed back in front of the mailbox, oldest first."""


@message
class Spawn:
    """Start a child. Its name must be free: it is again once :class:`Terminated` of the last holder was due."""

    spec: ChildSpec


@message
class StopChild:
    """Stop the child called ``name``, with all below it. Unknown names are ignored: it may just have stopped."""

    name: str


@message
class ReviveChild:
    """Start a quarantined child again with a fresh restart budget. Others are left alone."""

    name: str


@message
class StopSelf:
    """Stop this actor after this decision: a normal end, which only ``PERMANENT`` actors are restarted from."""


@message
class Forget:
    """Drop this actor's records from the journal, or those of the child called ``child`` and of all below it.

    For entities that are finished for good. It is a record itself, so it takes part in output gating.
    """

    child: str | None = None


@message
class Watch:
    """Ask for :class:`Terminated` when the actor at ``path`` stops; at once if there is none."""

    path: ActorPath


@message
class Unwatch:
    """Withdraw a :class:`Watch`. A :class:`Terminated` that already waits is not seen any more."""

    path: ActorPath


@message
class SetTimer:
    """Send ``message`` to oneself after ``delay`` ns. Setting a key again replaces its timer.

    ``attentive`` timers run on the attentive clock (see :attr:`Context.attentive`).
    """

    key: Key
    delay: int
    message: Any
    attentive: bool = False


@message
class CancelTimer:
    """Withdraw the timer called ``key``, even if it is due already. Unknown keys are ignored."""

    key: Key


@message
class Run:
    """Carry out ``effect`` outside, by the function that the behavior's ``effects`` has for its type.

    :class:`Completed` or :class:`Failed` comes back. Running a key again gives the earlier effect up, as
    :class:`Cancel` does. Per path and key at most one effect runs, across restarts of the actor too: the next one
    starts when the earlier one has really ended.
    """

    key: Key
    effect: Any


@message
class Cancel:
    """Give up the effect called ``key``: no answer will be seen. One that has not left yet never does.

    One that runs is asked to stop; what it already did to the world stays done.
    """

    key: Key


@message
class Open:
    """Open a session: an effect that lasts and talks both ways (a watch, a stream).

    :class:`Arrived` comes for each item, :class:`Closed` at the end. ``inbound`` bounds how many items wait in the
    mailbox; the session waits for room. ``outbound`` bounds how many fed items wait for the session.
    """

    key: Key
    session: Any
    inbound: int = 16
    outbound: int = 256


@message
class Feed:
    """Send ``item`` into the session called ``key``. Without room or session it comes back as :class:`FeedRefused`."""

    key: Key
    item: Any


@message
class Close:
    """End the session called ``key``. Nothing more of it will be seen."""

    key: Key


@message
class Emit:
    """Publish ``event`` to the system's listeners once all that it rests on is durable."""

    event: Any


Command: TypeAlias = (
    Tell
    | Request
    | Reply
    | Refuse
    | Continue
    | Stash
    | Unstash
    | Spawn
    | StopChild
    | ReviveChild
    | StopSelf
    | Forget
    | Watch
    | Unwatch
    | SetTimer
    | CancelTimer
    | Run
    | Cancel
    | Open
    | Feed
    | Close
    | Emit
)


# What comes back


@message
class Undelivered:
    """A :class:`Tell` found the mailbox of ``to`` full."""

    to: ActorPath
    message: Any


@message
class Replied:
    """The answer to the :class:`Request` called ``key``."""

    key: Key
    value: Any


@message
class RequestFailed:
    """The :class:`Request` called ``key`` got no answer: refused, timed out, or the other actor stopped."""

    key: Key
    error: Exception


class StopReason(enum.Enum):
    """Why an actor is gone."""

    NORMAL = "normal"
    """It stopped itself, or its parent stopped it."""
    FAILED = "failed"
    """It failed and was not restarted."""
    QUARANTINED = "quarantined"
    """It failed too often; its place is kept for an operator (see :class:`ReviveChild`)."""
    ABSENT = "absent"
    """There was no such actor when the watch began."""


@message
class Terminated:
    """A watched actor, or a child of one's own, is gone. Sent after all that it had told before."""

    path: ActorPath
    reason: StopReason


@message
class ChildFailed:
    """A child's decision raised ``error`` on ``cause``; supervision has already decided what follows.

    Only behaviors with a rule for it are told; the runtime reports every failure to the system's listeners anyway.
    """

    path: ActorPath
    incarnation: int
    cause: Any
    error: Exception
    quarantined: bool = False


@message
class Completed:
    """An effect ended well. ``effect`` is what was asked, ``value`` what its function returned."""

    key: Key
    effect: Any
    value: Any


@message
class Failed:
    """An effect raised ``error``: of the type its port's contract names, or any other, which is a bug."""

    key: Key
    effect: Any
    error: Exception


@message
class Arrived:
    """A session brought ``item``."""

    key: Key
    item: Any


@message
class Closed:
    """A session ended by itself: ``error`` is None if it ended well."""

    key: Key
    error: Exception | None


@message
class FeedRefused:
    """A :class:`Feed` found no room, or no open session."""

    key: Key
    item: Any


DecisionFunction: TypeAlias = Callable[[Any, Any, Context], Outcome]
Rules: TypeAlias = Mapping[type, DecisionFunction]
