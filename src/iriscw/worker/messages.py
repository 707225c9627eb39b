"""What the worker's actors say to each other, and what passes through the stream to the controller.

Paths: ``/attempts`` (the registry), ``/attempts/<uid>``, ``/session``. The session is started last: it asks the
registry for all attempts and dials only when each of them has reported, so that the first observed set is complete.
"""

from __future__ import annotations

from typing import TypeAlias

from iriscw.dialling.messages import Heartbeat, HeartbeatAcked, TurnedAway, Welcomed
from iriscw.jobs.model import Observation
from iriscw.runtime.vocabulary import ActorPath, message
from iriscw.worker.model import AttemptPhase, Order, StopCause

ATTEMPTS = ActorPath("/attempts")
SESSION = ActorPath("/session")


# To /attempts, which passes them to /attempts/<uid>; they come from the controller as they stand


@message
class RunAttempt:
    """Have this attempt run. Repeating it changes nothing."""

    order: Order


@message
class ComesAnew:
    """Attempt -> registry: this order is to come again once what is here of its attempt, which is over, is removed."""

    run: RunAttempt


@message
class StopAttempt:
    """Have this attempt end: ask first, kill after ``grace_ns``."""

    uid: str
    cause: StopCause
    grace_ns: int


@message
class SuspendAttempt:
    """This attempt is about to be frozen: when its processes are gone it is suspended, and has not ended."""

    uid: str


@message
class ContinueAttempt:
    """This attempt is not frozen after all, and runs on."""

    uid: str


@message
class WithdrawGrant:
    """This attempt is not to come back here: take this grant back if nobody has taken it. If somebody has, it runs."""

    uid: str
    grant: str


@message
class ForgetAttempt:
    """The controller has what it needs of this ended attempt; of a suspended one, somebody else has it from now on."""

    uid: str


# Within the worker


@message
class GpusWanted:
    """To ``/attempts``: this attempt needs ``count`` GPUs before its order can be carried out.

    It gets those that it had ``before`` as far as they are free. Repeating it is fine.
    """

    order: Order
    count: int
    before: tuple[str, ...] = ()


@message
class GpusGiven:
    """To an attempt: these GPUs are its own until it says :class:`GpusLeft`, by UUID."""

    order: Order
    gpus: tuple[str, ...]


@message
class GpusLacking:
    """To an attempt: too few GPUs are free. ``wanted`` is what it had asked for."""

    wanted: GpusWanted
    free: int


@message
class GpusLeft:
    """To ``/attempts``: nothing of this attempt runs, so its GPUs are free.

    ``grant`` is the grant for which it had them, so that what comes late does not free what it has for the next one.
    """

    uid: str
    grant: str = ""


@message
class Resync:
    """To ``/attempts``: say what is held, with :class:`Holding`, and have each attempt report."""


@message
class ReportNow:
    """To an attempt: report."""


@message
class StopAll:
    """To ``/attempts``: have every attempt end."""

    cause: StopCause
    grace_ns: int


@message
class Holding:
    """To ``/session``: all attempts that are known here. Each of them reports."""

    uids: tuple[str, ...]


@message
class AttemptReport:
    """To ``/session``: an attempt changed, or was asked."""

    observation: Observation


@message
class AttemptReleased:
    """To ``/attempts`` and on to ``/session``: nothing is left of this attempt."""

    uid: str


@message
class Leave:
    """To ``/session``: end all attempts, deliver their logs, say goodbye, and emit :class:`Left`."""

    reason: str
    grace_ns: int
    flush_ns: int


@message
class Due:
    """A timer's time has come."""

    what: str


# Through the stream, upward


@message
class ObservedAll:
    """Everything that is held: the answer to the :class:`DesiredAttempts` of that round."""

    round: int
    observations: tuple[Observation, ...]


@message
class HeldChanged:
    """One attempt changed. That of an ended one waits in the stream until its log and its result were sent."""

    observation: Observation


@message
class Goodbye:
    """The worker takes no more work, and has said everything."""

    reason: str


@message
class Flush:
    """Answer with :class:`Flushed` once the controller has acknowledged all logs and results of ended attempts."""


# Through the stream, downward


@message
class DesiredAttempts:
    """All attempts that must run here."""

    round: int
    orders: tuple[Order, ...]


@message
class Flushed:
    """Nothing of an ended attempt is left to send."""


DownItem: TypeAlias = (
    Welcomed
    | TurnedAway
    | DesiredAttempts
    | RunAttempt
    | StopAttempt
    | SuspendAttempt
    | ContinueAttempt
    | WithdrawGrant
    | ForgetAttempt
    | HeartbeatAcked
    | Flushed
)
UpItem: TypeAlias = Heartbeat | ObservedAll | HeldChanged | Goodbye | Flush


# Emitted


@message
class Left:
    """The worker has ended its attempts and delivered what it could.

    It was not asked to if ``turned_away`` says why, or if it was ``orphaned``: no controller was there for too long.
    """

    turned_away: TurnedAway | None = None
    orphaned: bool = False


@message
class LeaseExpired:
    """No contact for the lease: the attempts are being killed."""

    live: int


@message
class LeaseNotWritten:
    """The lease could not be renewed on this machine: when it runs out, attempts end in spite of the contact."""

    error: str


@message
class Orphaned:
    """No contact for so long that the worker ends itself."""

    after_ns: int


@message
class AttemptChanged:
    """An attempt is in another phase."""

    task_id: str
    phase: AttemptPhase
    observation: Observation
