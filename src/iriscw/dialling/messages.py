"""What a session and its stream to the controller say to each other, whoever dials. Plain values."""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class Dial:
    """The session: one stream to the controller."""

    number: int


# Upward


@message
class Heartbeat:
    """Whoever dialled is there."""

    sequence: int


# Downward


@message
class Welcomed:
    """The controller took whoever dialled."""

    session_id: str
    heartbeat_ns: int
    """How often it wants a heartbeat; 0: it does not say."""
    lease_ns: int = 0
    """For how long attempts may live on without contact; 0: for ever, or there are none."""


@message
class TurnedAway:
    """The controller did not take whoever dialled, or no longer wants it."""

    reason: str
    """The name of the wire's value for it, in small letters."""
    text: str
    retry_after_ns: int
    """0: it must not dial again."""


@message
class HeartbeatAcked:
    """The controller has that heartbeat, and says how often it wants one from now on (0: as before)."""

    sequence: int
    heartbeat_ns: int = 0


# Emitted


@message
class Connected:
    """A stream to the controller is up."""

    session_id: str


@message
class Disconnected:
    """A stream ended, or could not begin. ``error`` is for the log."""

    error: str
    again_after_ns: int
    """0: no other one is dialled."""
