"""Decisions of ``/session``: the worker's one stream to the controller. Pure.

Theory of operation:

* It dials when it knows what every attempt is, and again whenever a stream ends (:mod:`iriscw.dialling.decision`).
* A stream begins with the controller's welcome; the worker says at once everything that it holds, so that what is
  desired of it can be said. Attempts that are here and not desired are stopped, and everything is said again, with the
  round of the desired set. Each change is passed on as it comes. Nothing is remembered about what was sent: the next
  stream starts from the top.
* Heartbeats are numbered. When number n is acknowledged, the controller is known to have heard of the worker *after
  n was sent*, so that is the time of the last contact, on this machine's monotonic clock. An acknowledgement that
  waited in a buffer while this process slept therefore never makes the contact younger than it was.
* When the last contact is older than the lease, every attempt is killed: the controller may by now have started them
  elsewhere. Orders that come in while that is so are old news from a buffer: they are dropped, and the stream with
  them.
* Each contact moves the end of the lease, which is written down (``HoldLease``): attempts outlive this process, and
  must not outlive the lease. The next process of this life begins with what was written, never with a lease of its own
  making.
* A worker that nobody waits for may be told to end itself (``orphan_ns``). That is judged on the attentive clock, from
  the last word of any controller: a machine that slept has lost nobody.
"""

from __future__ import annotations

import attrs

from iriscw.dialling.decision import Dialling
from iriscw.dialling.messages import Connected, Heartbeat, HeartbeatAcked, TurnedAway, Welcomed
from iriscw.jobs.model import Observation
from iriscw.runtime.vocabulary import (
    MILLISECOND,
    SECOND,
    Arrived,
    CancelTimer,
    Close,
    Closed,
    Command,
    Completed,
    Context,
    DecisionFunction,
    Emit,
    Failed,
    Feed,
    FeedRefused,
    Open,
    Outcome as Returned,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)
from iriscw.worker.effects import HoldLease
from iriscw.worker.messages import (
    ATTEMPTS,
    AttemptReleased,
    AttemptReport,
    ContinueAttempt,
    DesiredAttempts,
    Due,
    Flush,
    Flushed,
    ForgetAttempt,
    Goodbye,
    HeldChanged,
    Holding,
    LeaseExpired,
    LeaseNotWritten,
    Leave,
    Left,
    ObservedAll,
    Orphaned,
    Resync,
    RunAttempt,
    StopAll,
    StopAttempt,
    SuspendAttempt,
    WithdrawGrant,
)
from iriscw.worker.model import DEFAULT_HEARTBEAT_NS, DEFAULT_LEASE_NS, STOP_GRACE_NS, StopCause

STREAM = "stream"

LONGEST_PAUSE_NS = 5 * SECOND
"""As for calls that are repeated: thousands of workers come back within about this time, spread by the jitter."""

INBOUND = 64
OUTBOUND = 2048
"""Items that wait for the stream: four times what a worker holds. Beyond, the stream is given up: the next one begins
with everything anyway."""

MIN_HEARTBEAT_NS = 10 * MILLISECOND
MAX_UNANSWERED = 1024
"""Heartbeats whose time is remembered."""

NEVER_NS = 1 << 62
"""The end of a lease that has none: 146 years of the monotonic clock, as in :mod:`iriscw.processes.lease`."""


@attrs.define(eq=False)
class Session:
    """What the worker tells the controller, and how the stream stands."""

    lease_ns: int = DEFAULT_LEASE_NS
    granted_until: int | None = None
    """The end of the lease that an earlier process of this life had; None: attempts cannot be older than this one."""
    orphan_ns: int = 0
    """After how long without a controller the worker ends itself; 0: never."""
    heartbeat_ns: int = DEFAULT_HEARTBEAT_NS
    observed: dict[str, Observation] = attrs.field(factory=dict)
    silent: dict[str, None] | None = None
    """Attempts that are held and have not reported; None until the registry has said what is held."""
    dialled: int = 0
    dialling: Dialling = attrs.field(factory=lambda: Dialling(LONGEST_PAUSE_NS))
    session_id: str = ""
    """Of the stream that is up; empty: none is."""
    synced: bool = False
    """Whether the stream that is up has had everything, so that changes may follow."""
    contact: int | None = None
    """When the controller had certainly heard of the worker last, as far as anybody remembers."""
    sequence: int = 0
    unanswered: dict[int, int] = attrs.field(factory=dict)
    """When each heartbeat was sent that is not acknowledged."""
    leaving: Leave | None = None
    orphaned: bool = False
    flushing: bool = False

    @property
    def live(self) -> int:
        """How many attempts may have a process."""
        return sum(1 for each in self.observed.values() if each.live)


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        Holding: holding,
        AttemptReport: reported,
        AttemptReleased: released,
        Arrived: arrived,
        Closed: closed,
        FeedRefused: feed_refused,
        Due: due,
        Leave: leave,
        Undelivered: undelivered,
        Completed: lease_written,
        Failed: lease_not_written,
    }


def resume(session: Session, ctx: Context) -> tuple[Command, ...]:
    """Ask what is held; go on with the lease that there was."""
    if session.granted_until is None:
        session.contact = ctx.now
    elif session.granted_until >= NEVER_NS:
        session.contact, session.lease_ns = ctx.now, 0
    else:
        session.contact = session.granted_until - session.lease_ns
    return (Tell(ATTEMPTS, Resync()), _lease_timer(session, ctx), *_heard(session))


def _heard(session: Session) -> tuple[Command, ...]:
    """There is a controller: count anew from here."""
    if not session.orphan_ns or session.leaving is not None:
        return ()
    return (SetTimer("orphan", session.orphan_ns, Due("orphan"), attentive=True),)


# From the attempts


def holding(session: Session, message: Holding, ctx: Context) -> Returned:
    """Wait for a report of each, then dial."""
    session.silent = {uid: None for uid in message.uids if uid not in session.observed}
    return _dial_if_known(session, ctx)


def _dial_if_known(session: Session, ctx: Context) -> tuple[Command, ...]:
    if session.silent != {} or session.dialling.dials:
        return ()
    return _dial(session, ctx)


def _dial(session: Session, ctx: Context) -> tuple[Command, ...]:
    session.dialled = ctx.now
    return (Open(STREAM, session.dialling.dial(), inbound=INBOUND, outbound=OUTBOUND),)


def reported(session: Session, message: AttemptReport, ctx: Context) -> Returned:
    """Pass the change on, if the stream had the rest."""
    seen = message.observation
    before = session.observed.get(seen.uid)
    session.observed[seen.uid] = seen
    commands: tuple[Command, ...] = ()
    if session.silent is not None and seen.uid in session.silent:
        del session.silent[seen.uid]
        commands = _dial_if_known(session, ctx)
    if session.synced and seen != before:
        commands = (Feed(STREAM, HeldChanged(seen)),)
    if seen.live and _stale(session, ctx):  # it was not known yet when the lease ended
        commands += (Tell(ATTEMPTS, StopAttempt(seen.uid, StopCause.LEASE, 0)),)
    return (*commands, *_leave_if_over(session))


def released(session: Session, message: AttemptReleased, ctx: Context) -> Returned:
    """Nothing of it is left."""
    session.observed.pop(message.uid, None)
    if session.silent is not None:
        session.silent.pop(message.uid, None)
    return (*_dial_if_known(session, ctx), *_leave_if_over(session))


# From the stream


def arrived(session: Session, message: Arrived, ctx: Context) -> Returned:
    """Act on what the controller says."""
    item = message.item
    match item:
        case Welcomed():
            return _welcomed(session, item, ctx)
        case HeartbeatAcked():
            return _acknowledged(session, item, ctx)
        case TurnedAway():
            session.dialling.turned_away = item
            return _heard(session)
        case Flushed():
            return (Feed(STREAM, Goodbye(session.leaving.reason if session.leaving else "")),)
        case _ if _stale(session, ctx):
            return (Close(STREAM), *_disconnected(session, "orders from before the lease ended", ctx))
        case DesiredAttempts():
            return _desired(session, item)
        case RunAttempt():
            return None if session.leaving else (Tell(ATTEMPTS, item),)
        case StopAttempt() | ForgetAttempt() | SuspendAttempt() | ContinueAttempt() | WithdrawGrant():
            return (Tell(ATTEMPTS, item),)
        case _:
            return None


def _welcomed(session: Session, item: Welcomed, ctx: Context) -> Returned:
    session.session_id = item.session_id
    session.dialling.failures = 0
    session.lease_ns = item.lease_ns
    session.heartbeat_ns = max(MIN_HEARTBEAT_NS, item.heartbeat_ns or DEFAULT_HEARTBEAT_NS)
    session.contact = session.dialled  # earlier contacts were before this dial
    session.synced = True
    return (
        Emit(Connected(item.session_id)),
        Feed(STREAM, ObservedAll(0, tuple(session.observed.values()))),
        *_renewed(session, ctx),
        *_beat(session, ctx),
        *_leave_if_over(session),
    )


def _beat(session: Session, ctx: Context) -> tuple[Command, ...]:
    session.sequence += 1
    session.unanswered[session.sequence] = ctx.now
    while len(session.unanswered) > MAX_UNANSWERED:
        del session.unanswered[next(iter(session.unanswered))]
    return (Feed(STREAM, Heartbeat(session.sequence)), SetTimer("beat", session.heartbeat_ns, Due("beat")))


def _acknowledged(session: Session, item: HeartbeatAcked, ctx: Context) -> Returned:
    session.heartbeat_ns = max(MIN_HEARTBEAT_NS, item.heartbeat_ns or session.heartbeat_ns)
    sent = session.unanswered.get(item.sequence)
    if sent is None:
        return None
    for sequence in [each for each in session.unanswered if each <= item.sequence]:
        del session.unanswered[sequence]
    session.contact = max(session.contact or sent, sent)
    return _renewed(session, ctx)


def _renewed(session: Session, ctx: Context) -> tuple[Command, ...]:
    """The contact is younger, or the lease another one: tell the timers, and those that watch over attempts."""
    until = (session.contact or 0) + session.lease_ns if session.lease_ns else NEVER_NS
    return (_lease_timer(session, ctx), Run("lease", HoldLease(until)), *_heard(session))


def lease_written(session: Session, message: Completed, ctx: Context) -> Returned:
    """The attempts' supervisors can read it."""
    return None


def lease_not_written(session: Session, message: Failed, ctx: Context) -> Returned:
    """Say so; the next heartbeat tries again, and attempts live for as long as was written last."""
    return (Emit(LeaseNotWritten(f"{type(message.error).__name__}: {message.error}")),)


def _desired(session: Session, item: DesiredAttempts) -> Returned:
    """Stop what is not wanted, run what is, say everything that is held."""
    wanted = {order.uid: None for order in item.orders}
    strangers = [seen.uid for seen in session.observed.values() if seen.live and seen.uid not in wanted]
    stops = [Tell(ATTEMPTS, StopAttempt(uid, StopCause.FENCED, STOP_GRACE_NS)) for uid in strangers]
    runs = [] if session.leaving else [Tell(ATTEMPTS, RunAttempt(order)) for order in item.orders]
    everything = Feed(STREAM, ObservedAll(item.round, tuple(session.observed.values())))
    return (everything, *stops, *runs)


def closed(session: Session, message: Closed, ctx: Context) -> Returned:
    """Dial again in a while, unless the controller does not want this worker any more."""
    error = f"{type(message.error).__name__}: {message.error}" if message.error else "the controller ended it"
    return _disconnected(session, error, ctx)


def _disconnected(session: Session, error: str, ctx: Context) -> tuple[Command, ...]:
    if session.flushing:  # the controller has hung up after the goodbye, or before: there is nobody to deliver to
        return _left(session)
    session.session_id, session.synced = "", False
    session.unanswered.clear()
    ended = session.dialling.ended(error, ctx)
    told = (CancelTimer("beat"), Emit(ended))
    if session.dialling.is_over:
        session.leaving = session.leaving or Leave(ended.error, STOP_GRACE_NS, 0)
        return (*told, Tell(ATTEMPTS, StopAll(StopCause.FENCED, STOP_GRACE_NS)), *_leave_if_over(session))
    return (*told, SetTimer("dial", ended.again_after_ns, Due("dial")))


def feed_refused(session: Session, message: FeedRefused, ctx: Context) -> Returned:
    """The stream cannot keep up, or is gone. In the first case it is given up: the next begins with everything."""
    if not session.session_id:
        return None
    return (Close(STREAM), *_disconnected(session, "the stream cannot keep up", ctx))


# Time


def due(session: Session, message: Due, ctx: Context) -> Returned:
    """A timer's time has come."""
    match message.what:
        case "dial":
            return _dial(session, ctx) if session.dialling.turned_away is None else None
        case "beat":
            return _beat(session, ctx) if session.session_id else None
        case "lease":
            return _lease(session, ctx)
        case "orphan":
            return _orphaned(session, ctx)
        case "flush":
            return _left(session)
        case _:
            return (Tell(ATTEMPTS, Resync()),)


def _stale(session: Session, ctx: Context) -> bool:
    return bool(session.lease_ns) and ctx.now - (session.contact or 0) >= session.lease_ns


def _lease_timer(session: Session, ctx: Context) -> Command:
    if not session.lease_ns:
        return CancelTimer("lease")
    left_ns = (session.contact or 0) + session.lease_ns - ctx.now
    return SetTimer("lease", max(0, left_ns), Due("lease"))


def _lease(session: Session, ctx: Context) -> Returned:
    if not session.lease_ns:
        return None
    if not _stale(session, ctx):
        return (_lease_timer(session, ctx),)
    commands: tuple[Command, ...] = (SetTimer("lease", session.lease_ns, Due("lease")),)
    if session.live:
        commands += (Emit(LeaseExpired(session.live)), Tell(ATTEMPTS, StopAll(StopCause.LEASE, 0)))
    if session.session_id:
        commands += (Close(STREAM), *_disconnected(session, "no contact for the lease", ctx))
    return commands


def _orphaned(session: Session, ctx: Context) -> Returned:
    if session.leaving is not None:
        return None
    session.orphaned = True
    left = leave(session, Leave("no contact with a controller", STOP_GRACE_NS, 0), ctx)
    return (Emit(Orphaned(session.orphan_ns)), *left)


# The end


def leave(session: Session, message: Leave, ctx: Context) -> tuple[Command, ...]:
    """End all attempts, then deliver what is left and say goodbye."""
    if session.leaving is not None:
        return ()
    session.leaving = message
    stop = Tell(ATTEMPTS, StopAll(StopCause.DRAINING, message.grace_ns))
    return (stop, *_leave_if_over(session))


def _leave_if_over(session: Session) -> tuple[Command, ...]:
    """With all attempts ended, deliver what is left; without a stream there is nobody to deliver to.

    The goodbye comes last: the controller ends the stream at it.
    """
    if session.leaving is None or session.live or session.silent != {} or session.flushing:
        return ()
    if not session.synced or session.dialling.turned_away is not None:
        return _left(session)
    session.flushing = True
    return (Feed(STREAM, Flush()), SetTimer("flush", session.leaving.flush_ns, Due("flush")))


def _left(session: Session) -> tuple[Command, ...]:
    return (Emit(Left(session.dialling.turned_away, session.orphaned)),)


def undelivered(session: Session, message: Undelivered, ctx: Context) -> Returned:
    """The registry's mailbox was full: give the stream up, so that everything is said again."""
    if session.session_id:
        return (Close(STREAM), *_disconnected(session, "the registry cannot keep up", ctx))
    return (SetTimer("again", SECOND, Due("again")),)
