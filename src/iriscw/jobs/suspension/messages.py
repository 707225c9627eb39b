"""How the task of a job is suspended and resumed: what doors ask, what is published, what actors tell each other.

::

    door --SuspendTask--> job --SuspendAttempts--> link ==Orders.suspend==> worker ==SUSPENDING==> link --> job
    job ==FreezeAttempt==> agent; worker ==SUSPENDED==> link --> job --AttemptsOver--> scheduler,
    --ReleaseAttempts--> link; if it is to be stored: job ==StoreCheckpoint==> agent
    door --ResumeTask--> job --PlaceSuspended--> scheduler --SuspendedPlaced--> job --RunAttempts--> link
    ==Orders.run==> worker ==RESUMING==> link --> job ==ThawAttempt==> agent; worker ==RUNNING==> link --> job

A scheduler that is new is told of all that wait for a worker in the reports of their jobs.
"""

from __future__ import annotations

from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.model import Labels
from iriscw.runtime.vocabulary import message


@message
class SuspendTask:
    """Have the running attempt of a task suspended. Answered with a :class:`SuspensionView` once that is promised.

    ``tier`` is where the checkpoint goes; empty: to the agent's default. The same ``key`` again gives what has become
    of it. One that is suspended already, or about to be, is answered with what is. With ``store`` the checkpoint, and
    the files of the attempt with it, come to the repository of the machine's agent after that. Refused with
    ``InvalidArgument`` (no such task), ``TaskEnded``, ``TaskNotRunning``, ``GangNotSuspendable`` or
    ``SuspensionRefused``.
    """

    index: int
    key: str
    tier: str = ""
    force: bool = False
    labels: Labels = ()
    store: bool = False


@message
class ResumeTask:
    """Have the suspended attempt of a task go on. Answered with a :class:`SuspensionView` once that is promised.

    One that runs is answered with what is, and so is the same ``key`` again, whatever has become of it since: what is
    suspended once more is not resumed by a call that is repeated late. Refused with ``InvalidArgument``, ``TaskEnded``
    or ``TaskNotRunning``.
    """

    index: int
    key: str


@message
class FindSuspended:
    """Say which attempt goes on from this checkpoint. Answered with its :class:`SuspensionView`; None: none does."""

    checkpoint: str


@message
class SuspensionView:
    """Where a task's attempt stands between running and not.

    Args:
        index: of the task.
        uid: of its attempt.
        phase: NONE of one that runs.
        key: of the :class:`SuspendTask` that began it.
        checkpoint: the id of its checkpoint, once it is known; empty before, and when it runs again.
        node: the machine that has it, or on which it is brought back; empty: only the repository has it.
        reason: one sentence. In NONE: why it was not suspended; empty if it has been resumed.
        since_wall_ns: when this phase began.
        resuming: of one that is SUSPENDED or SUSPENDING: it is to go on as soon as it can.
        repository: the URL of the repository that has it; empty: none has, or that is not known yet.
        storing: of one that is SUSPENDED: its checkpoint is on its way to the repository.
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
    repository: str = ""
    storing: bool = False


@message
class SuspensionChanged:
    """Published: a suspension is in another phase, or was undone. An attempt that ends is told by ``TaskChanged``."""

    job_id: str
    view: SuspensionView
    wall_ns: int


@message
class PhaseOver:
    """Published: an attempt has left a phase, for one that was told, or because it ended. For those who count.

    Args:
        phase: that it was in; NONE: it ran, and is to be suspended.
        outcome: what came of that: ``asked`` in NONE; ``suspended`` or ``undone`` of SUSPENDING; ``resuming`` of
            SUSPENDED; ``resumed`` or ``unplaced`` of RESUMING; of all but NONE also ``ended``.
        lasted_ns: how long it was in that phase, by the wall clock; 0 in NONE.
    """

    phase: Suspension
    outcome: str
    lasted_ns: int


@message
class CheckpointLeft:
    """Published: what the suspension ``key`` left behind could not be removed; ``checkpoint`` if it is known."""

    job_id: str
    key: str
    checkpoint: str
    node: str
    reason: str
    wall_ns: int


# Jobs <-> links


@message
class SuspendAttempts:
    """Have the worker let these attempts be frozen."""

    incarnation: str
    uids: tuple[str, ...]


@message
class ContinueAttempts:
    """These attempts were not frozen: have the worker go on with them."""

    incarnation: str
    uids: tuple[str, ...]


@message
class WithdrawGrants:
    """These attempts are not to come back on the worker: have it take their grants back, if nobody has taken them."""

    incarnation: str
    uids: tuple[str, ...]


# Jobs <-> scheduler


@message
class SuspendedAttempt:
    """A suspended attempt that waits for a worker: on the machine that has its checkpoint (``node``), or on any that
    has the ``repository`` with it, if that is named.

    ``doubted``: machines that did not take it, and are not to be tried for now.
    """

    uid: str
    index: int
    node: str
    doubted: tuple[str, ...] = ()
    repository: str = ""


@message
class PlaceSuspended:
    """Find a worker for a suspended attempt. Answered with :class:`SuspendedPlaced`, some time."""

    job_id: str
    attempt: SuspendedAttempt


@message
class SuspendedUnwanted:
    """This attempt is to stay suspended: find no worker for it."""

    job_id: str
    uid: str


@message
class SuspendedPlaced:
    """A worker for a suspended attempt; the room is taken. What the job cannot use comes back as ``AttemptsOver``.

    ``node``: the machine that it is on.
    """

    index: int
    uid: str
    worker_id: str
    incarnation: str
    node: str = ""


@message
class PreemptAttempts:
    """These attempts have to give way to a task of a higher band, of the job that ``to`` names for people."""

    uids: tuple[str, ...]
    to: str


# Those who know the machines -> scheduler


@message
class FollowRepositories:
    """The session: whoever serves it tells which repository each machine has, now and whenever that changes."""


@message
class NodeRepositories:
    """The machines whose agents are there and have a repository, with the URLs of these. All of them, each time."""

    nodes: tuple[tuple[str, str], ...]


# To oneself


@message
class EndAway:
    """Go on ending the suspended attempts of a job that has its verdict."""


@message
class MoveOverdue:
    """An attempt has taken too long to be suspended, or to come back."""

    index: int
    uid: str
    number: int


@message
class ThawAgain:
    """Try again to bring an attempt back."""

    index: int
    uid: str
    number: int


@message
class PlaceAgain:
    """A machine that did not take a suspended attempt may be tried again."""

    index: int
    uid: str
    number: int


@message
class StoreAgain:
    """Have the checkpoint of a suspended attempt come to the repository that did not come there ``failed`` times."""

    index: int
    uid: str
    number: int
    failed: int


@message
class ResumeMoves:
    """Go on with what a new incarnation owes to suspensions: of ``uids`` those from ``first``, then ``drops``."""

    uids: tuple[str, ...]
    drops: tuple[str, ...]
    first: int
