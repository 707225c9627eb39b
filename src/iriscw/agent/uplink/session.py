"""Decisions of ``/controller/session``: the agent's one stream to the controller. Pure.

Theory of operation:

* It dials when it begins, and again whenever a stream ends (:mod:`iriscw.dialling.decision`). What the agent does for
  others does not depend on it in any way.
* What there is to tell is a set of facts, each under a key. A stream begins from the top: all facts are to be said.
  From then on those are that changed. One report is on its way at a time, and the next one follows its acknowledgement;
  a fact that changed twice meanwhile is said once. So a slow controller costs no memory, and a fast one no steps.
* Progress is said at most every ``PACE``: nobody looks more often.
* Orders are passed on to ``/controller/orders`` as they come.
* Heartbeats are numbered and answered. A controller that answers none for ``SILENCE`` on the attentive clock is taken
  for one that hangs, and dialled again.
"""

from __future__ import annotations

import attrs

from iriscw.agent.uplink.messages import (
    ORDERS,
    Due,
    Now,
    Past,
    Present,
    Resync,
    SessionAwake,
    TakeOrders,
)
from iriscw.dialling.decision import Dialling
from iriscw.dialling.messages import Connected, Heartbeat, TurnedAway, Welcomed
from iriscw.nodes.model import CHECKPOINT, MAX_FACTS, AgentReport, Fact, FactKey, Orders, ReportAcked, key_of
from iriscw.runtime.vocabulary import (
    MILLISECOND,
    SECOND,
    Arrived,
    CancelTimer,
    Close,
    Closed,
    Command,
    Context,
    DecisionFunction,
    Emit,
    Feed,
    FeedRefused,
    Open,
    Outcome,
    SetTimer,
    Tell,
    Undelivered,
)

STREAM = "stream"

LONGEST_PAUSE_NS = 15 * SECOND
"""Thousands of agents come back within about this time, spread by the jitter. Nothing waits for them but news."""

PACE_NS = 50 * MILLISECOND

DEFAULT_BEAT_NS = 10 * SECOND
MIN_BEAT_NS = 10 * MILLISECOND
SILENCE_NS = 60 * SECOND

AGAIN_NS = 1 * SECOND
"""Before a full mailbox is told again."""

OUTBOUND = 64
"""Items that wait for the stream: there is a report at most, and a beat each interval."""


@attrs.define(eq=False)
class Session:
    """What is to be told, and how the stream stands."""

    facts: dict[FactKey, Fact] = attrs.field(factory=dict)
    unsaid: dict[FactKey, None] = attrs.field(factory=dict)
    """Keys of what the controller has not been told on this stream, in the order in which it changed."""
    omitted: int = 0
    dialling: Dialling = attrs.field(factory=lambda: Dialling(LONGEST_PAUSE_NS))
    up: bool = False
    complete: bool = False
    """Whether the stream that is up has been told everything once."""
    sequence: int = 0
    on_the_way: bool = False
    said_at: int = 0
    beats: int = 0
    heard: int = 0
    """The attentive clock's reading when the controller was heard of last."""
    beat_ns: int = DEFAULT_BEAT_NS


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        Present: present,
        Now: now,
        Past: past,
        Arrived: arrived,
        Closed: closed,
        FeedRefused: feed_refused,
        Due: due,
        Undelivered: undelivered,
    }


def resume(session: Session, ctx: Context) -> tuple[Command, ...]:
    """Ask for all there is to tell, and dial."""
    return (Emit(SessionAwake()), Tell(ORDERS, Resync()), *_dial(session))


def _dial(session: Session) -> tuple[Command, ...]:
    return (Open(STREAM, session.dialling.dial(), outbound=OUTBOUND),)


# What there is to tell


def present(session: Session, message: Present, ctx: Context) -> Outcome:
    """Take all facts of a kind."""
    holding = {key_of(fact): fact for fact in message.facts}
    for key in [key for key in session.facts if key[0] == message.kind and key not in holding]:
        if key[-1] not in message.unread:
            _forget(session, key)
    for key, fact in holding.items():
        _note(session, key, fact)
    if message.kind == CHECKPOINT and message.omitted != session.omitted:
        session.omitted = message.omitted
        session.complete = session.complete and not session.up  # a report has to follow, with or without facts
    return _say(session, ctx)


def now(session: Session, message: Now, ctx: Context) -> Outcome:
    """Take one fact."""
    _note(session, key_of(message.fact), message.fact)
    return _say(session, ctx)


def past(session: Session, message: Past, ctx: Context) -> Outcome:
    """Drop one fact."""
    _forget(session, message.key)
    return _say(session, ctx)


def _note(session: Session, key: FactKey, fact: Fact) -> None:
    if session.facts.get(key) != fact:
        session.facts[key] = fact
        session.unsaid[key] = None


def _forget(session: Session, key: FactKey) -> None:
    if session.facts.pop(key, None) is not None:
        session.unsaid[key] = None


def _say(session: Session, ctx: Context) -> tuple[Command, ...]:
    """Send the next report, if there is one to send and none on the way."""
    if not session.up or session.on_the_way or (session.complete and not session.unsaid):
        return ()
    early_ns = session.said_at + PACE_NS - ctx.now
    if session.complete and early_ns > 0:
        return (SetTimer("say", early_ns, Due("say")),)
    keys = [key for key, _ in zip(session.unsaid, range(MAX_FACTS), strict=False)]
    for key in keys:
        del session.unsaid[key]
    facts = tuple(session.facts[key] for key in keys if key in session.facts)
    gone = tuple(key for key in keys if key not in session.facts)
    session.sequence += 1
    session.on_the_way, session.said_at = True, ctx.now
    session.complete = session.complete or not session.unsaid
    return (Feed(STREAM, AgentReport(session.sequence, session.complete, facts, gone, session.omitted)),)


# The stream


def arrived(session: Session, message: Arrived, ctx: Context) -> Outcome:
    """Act on what the controller says."""
    session.heard = ctx.attentive
    match message.item:
        case Welcomed() as welcome:
            return _welcomed(session, welcome, ctx)
        case TurnedAway() as away:
            session.dialling.turned_away = away
            return None
        case ReportAcked(sequence=sequence):
            if sequence != session.sequence:
                return None
            session.on_the_way = False
            return _say(session, ctx)
        case Orders() as orders:
            return (Tell(ORDERS, TakeOrders(orders)),)
        case _:
            return None


def _welcomed(session: Session, welcome: Welcomed, ctx: Context) -> Outcome:
    session.up, session.complete, session.on_the_way = True, False, False
    session.dialling.failures = 0
    session.unsaid = dict.fromkeys(session.facts)
    session.beat_ns = max(MIN_BEAT_NS, welcome.heartbeat_ns or DEFAULT_BEAT_NS)
    return (Emit(Connected(welcome.session_id)), *_say(session, ctx), *_beat(session))


def _beat(session: Session) -> tuple[Command, ...]:
    session.beats += 1
    return (Feed(STREAM, Heartbeat(session.beats)), SetTimer("beat", session.beat_ns, Due("beat"), attentive=True))


def closed(session: Session, message: Closed, ctx: Context) -> Outcome:
    """Dial again in a while, unless the controller wants this agent no more."""
    error = f"{type(message.error).__name__}: {message.error}" if message.error else "the controller ended the stream"
    return _down(session, error, ctx)


def _down(session: Session, error: str, ctx: Context) -> tuple[Command, ...]:
    session.up = session.on_the_way = False
    ended = session.dialling.ended(error, ctx)
    told = (CancelTimer("beat"), CancelTimer("say"), Emit(ended))
    return told if session.dialling.is_over else (*told, SetTimer("dial", ended.again_after_ns, Due("dial")))


def _hang_up(session: Session, error: str, ctx: Context) -> tuple[Command, ...]:
    return (Close(STREAM), *_down(session, error, ctx))


def feed_refused(session: Session, message: FeedRefused, ctx: Context) -> Outcome:
    """The stream does not keep up, or is gone: the next one begins with everything."""
    return _hang_up(session, "the stream cannot keep up", ctx) if session.up else None


# Time, and full mailboxes


def due(session: Session, message: Due, ctx: Context) -> Outcome:
    """A timer's time has come."""
    match message.what:
        case "dial":
            return _dial(session)
        case "say":
            return _say(session, ctx)
        case "beat":
            if not session.up:
                return None
            if ctx.attentive - session.heard >= SILENCE_NS:
                return _hang_up(session, "the controller does not answer", ctx)
            return _beat(session)
        case _:
            return (Tell(ORDERS, Resync()),)


def undelivered(session: Session, message: Undelivered, ctx: Context) -> Outcome:
    """``/controller/orders`` has no room. An order that it missed comes with the next stream, so have one."""
    if isinstance(message.message, TakeOrders):
        return _hang_up(session, "too many orders at once", ctx) if session.up else None
    return (SetTimer("resync", AGAIN_NS, Due("resync")),)
