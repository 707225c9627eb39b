"""How the task of a job is suspended and resumed: what doors ask of ``/jobs/<job_id>``, and what is published."""

from __future__ import annotations

from iriscw.jobs.model import Suspension
from iriscw.jobs.moving import Labels
from iriscw.runtime.vocabulary import message


@message
class SuspendTask:
    """Have the running attempt of a task suspended. Answered with a :class:`SuspensionView` once that is promised.

    The same ``key`` again gives what has become of it. One that is suspended already, or about to be, is answered with
    what is. Refused with ``InvalidArgument`` (no such task), ``TaskEnded``, ``TaskNotRunning``, ``GangNotSuspendable``
    or ``SuspensionRefused``.
    """

    index: int
    key: str
    tier: str = "ram"
    force: bool = False
    labels: Labels = ()


@message
class ResumeTask:
    """Have the suspended attempt of a task go on. Answered with a :class:`SuspensionView` once that is promised.

    One that runs is answered with what is. Refused with ``InvalidArgument``, ``TaskEnded`` or ``TaskNotRunning``.
    """

    index: int
    key: str


@message
class SuspensionView:
    """Where a task's attempt stands between running and not.

    Args:
        index: of the task.
        uid: of its attempt.
        phase: NONE of one that runs.
        key: of the :class:`SuspendTask` that began it.
        checkpoint: the id of its checkpoint, once it is known; empty before, and when it runs again.
        node: the machine that has it.
        reason: one sentence. In NONE: why it was not suspended; empty if it has been resumed.
        since_wall_ns: when this phase began.
        resuming: of one that is SUSPENDED or SUSPENDING: it is to go on as soon as it can.
    """

    index: int
    uid: str
    phase: Suspension
    key: str = ""
    checkpoint: str = ""
    node: str = ""
    reason: str = ""
    since_wall_ns: int = 0
    resuming: bool = False


@message
class SuspensionChanged:
    """Published: a suspension is in another phase, or was undone. An attempt that ends is told by ``TaskChanged``."""

    job_id: str
    view: SuspensionView
    wall_ns: int
