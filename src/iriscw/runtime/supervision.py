"""Supervision as a pure decision: what follows a failure.

Theory of operation. A supervisor keeps a :class:`History` for each budget: one per child under ``ONE_FOR_ONE``, one
for itself under the group strategies. A failure is judged in three steps.

1. *Does the child come back at all?* Its ``restart`` rule says so: permanent always, transient after failures only,
   temporary never.
2. *Is there budget left?* At most ``restarts`` restarts within ``period`` on the runtime's clock. The window is one of
   time, not of messages. A restart that fails itself counts as another one.
3. *When?* After a backoff that doubles with each restart in a row and starts anew after a life of ``reset_after``.

A child without budget is *quarantined* if it is an entity (one slice among many must not take the controller down) and
escalated otherwise: its parent fails with :class:`~iriscw.errors.RestartsExhausted`, and the same judgement is made one
level up. At the root it ends the system.
"""

from __future__ import annotations

import enum
from collections import deque

import attrs

from iriscw.runtime.behavior import Backoff, ChildSpec, Restart, Strategy, Supervision

MAX_DOUBLINGS = 62
"""Beyond this the shift would leave 64 bits; every sensible maximum is reached long before."""

FIRST_DELAY_DIVISOR = 1024
"""With an immediate first restart the doubling starts at ``maximum`` over this."""


class AfterExit(enum.Enum):
    """What happens to a child that ended."""

    RESTART = "restart"
    STOP = "stop"
    QUARANTINE = "quarantine"
    ESCALATE = "escalate"


@attrs.frozen
class Directive:
    """The judgement on one failure: a restart comes ``delay`` ns later."""

    verdict: AfterExit
    delay: int = 0


@attrs.define
class History:
    """The restarts that count against one budget."""

    times: deque[int] = attrs.field(factory=deque)
    in_a_row: int = 0


def backoff_delay(backoff: Backoff, in_a_row: int, draw: float) -> int:
    """Return the wait before the restart after ``in_a_row`` earlier ones, in ns.

    Args:
        backoff: the parameters.
        in_a_row: restarts since the last long life; 0 for the first.
        draw: uniform in [0, 1), spreads the wait by up to ``jitter`` upwards.
    """
    if backoff.initial == 0:
        if in_a_row == 0:
            return 0
        base = max(1, backoff.maximum // FIRST_DELAY_DIVISOR)
        doublings = in_a_row - 1
    else:
        base = backoff.initial
        doublings = in_a_row
    plain = min(backoff.maximum, base << min(doublings, MAX_DOUBLINGS))
    # Millionths keep this in integers: floats of time would differ between platforms.
    spread = int(backoff.jitter * draw * 1_000_000)
    return plain + plain * spread // 1_000_000


def judge(
    spec: ChildSpec,
    supervision: Supervision,
    history: History,
    *,
    failed: bool,
    now: int,
    lived: int,
    draw: float,
) -> Directive:
    """Decide what follows the end of a child; updates ``history``.

    Args:
        spec: the child.
        supervision: its supervisor's rules.
        history: the budget that the restart would count against.
        failed: whether it raised, rather than stopping itself.
        now: the runtime's clock, ns.
        lived: how long this incarnation lived, ns.
        draw: uniform in [0, 1), for the backoff's jitter.
    """
    comes_back = spec.restart is Restart.PERMANENT or (spec.restart is Restart.TRANSIENT and failed)
    if not comes_back:
        return Directive(AfterExit.STOP)
    times = history.times
    while times and times[0] <= now - supervision.period:
        times.popleft()
    if len(times) >= supervision.restarts:
        return Directive(AfterExit.QUARANTINE if spec.entity else AfterExit.ESCALATE)
    if lived >= supervision.backoff.reset_after:
        history.in_a_row = 0
    delay = backoff_delay(supervision.backoff, history.in_a_row, draw)
    times.append(now)
    history.in_a_row += 1
    return Directive(AfterExit.RESTART, delay)


def affected(strategy: Strategy, names: list[str], failed: str) -> list[str]:
    """Return the children to restart when ``failed`` does, in start order.

    ``names`` are the supervisor's children in the order in which they were started.
    """
    if strategy is Strategy.ONE_FOR_ONE:
        return [failed]
    if strategy is Strategy.ONE_FOR_ALL:
        return list(names)
    return names[names.index(failed) :]
