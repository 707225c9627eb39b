"""What a client can be told beside what the controller says, which arrives as the class it was raised as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iriscw._errors import InternalError, InvalidArgument, OperationError, UsageError
from iriscw.fleet.model import NoSuchGroup
from iriscw.jobs.errors import (
    CommandKilled,
    CommandNotStarted,
    DependenciesNotSupported,
    GangNotSuspendable,
    ImageNotSupported,
    JobExists,
    KeyReused,
    NameAmbiguous,
    NoSuchJob,
    ParentOver,
    PythonNotSupported,
    SuspensionRefused,
    TaskEnded,
    TaskNotRunning,
    TooManyCommands,
    TooManyJobs,
    TooManyTasks,
)
from iriscw.nodes.errors import (
    AgentAway,
    CheckpointAmbiguous,
    CheckpointNeeded,
    CheckpointUnknown,
    NoSuchNode,
    NoSuchOrder,
    OrderKeyReused,
    TaskOutOfReach,
    TooManyOrders,
)
from iriscw.rpc.errors import ClientClosed, NeedsAsyncio, WrongLoop

__all__ = [
    "AgentAway",
    "CheckpointAmbiguous",
    "CheckpointNeeded",
    "CheckpointUnknown",
    "ClientClosed",
    "CommandKilled",
    "CommandNotStarted",
    "DependenciesNotSupported",
    "GangNotSuspendable",
    "ImageNotSupported",
    "InvalidContextFile",
    "InvalidJob",
    "JobExists",
    "JobFailed",
    "KeyReused",
    "NameAmbiguous",
    "NeedsAsyncio",
    "NoController",
    "NoSuchGroup",
    "NoSuchJob",
    "NoSuchNode",
    "NoSuchOrder",
    "NotConnected",
    "OrderFailed",
    "OrderKeyReused",
    "ParentOver",
    "PeerOver",
    "PythonNotSupported",
    "ResultDamaged",
    "SuspensionRefused",
    "TaskEnded",
    "TaskFailed",
    "TaskNotRunning",
    "TaskOutOfReach",
    "TooManyCommands",
    "TooManyJobs",
    "TooManyOrders",
    "TooManyTasks",
    "ValuesUnreadable",
    "WaitTimeout",
    "WrongLoop",
]
"""Errors of jobs, nodes and the fleet are imported so that they are known by name when the controller raises one."""


class NotConnected(UsageError, AttributeError):
    """``connect()`` was used like a client. It is a block, and gives the client: ``with connect() as client``."""


class NoController(UsageError):
    """No address was given, this is not a task, and neither ``iriscw up`` nor ``iriscw connect`` left one behind."""


class InvalidContextFile(UsageError):
    """The file that ``iriscw up`` or ``iriscw connect`` leaves cannot be read or written, or others may read it."""


class ValuesUnreadable(OperationError):
    """A job has succeeded, and values of its tasks cannot be unpickled here.

    Args:
        text: what to say.
        values: in task order, with None for what could not be read.
        causes: what the pickle of a task's value raised, by the task's index.
    """

    def __init__(self, text: str, *, values: Sequence[Any] = (), causes: Mapping[int, Exception] | None = None) -> None:
        super().__init__(text)
        self.values: list[Any] = list(values)
        self.causes: dict[int, Exception] = dict(causes or {})


class InvalidJob(InvalidArgument):
    """An argument of ``submit`` that no job can have. The message names it and says what would be right."""


class WaitTimeout(OperationError, TimeoutError):
    """What is waited for has not come in the time given: the end of a job, say. It may come later."""

    retryable = True


class ResultDamaged(InternalError):
    """A task's value did not arrive as it was stored: its size or its SHA-256 differ."""


class OrderFailed(OperationError):
    """What a node's agent was ordered to do ended otherwise; the text says how, in the agent's words.

    Attributes:
        operation: the order's.
        outcome: ``undone`` (the processes run as before), ``lost`` (they do not run either), ``failed``, ``left``,
            ``refused`` (nothing was begun), ``unknown`` (nobody can say), or empty if it was put aside.
        kind: the name of the error that turned it round.
    """

    def __init__(self, text: str, *, operation: str = "", outcome: str = "", kind: str = "") -> None:
        super().__init__(text)
        self.operation = operation
        self.outcome = outcome
        self.kind = kind


class JobFailed(OperationError):
    """The job ended otherwise than well. The text has the first failed task's own words: its traceback, if it raised.

    Attributes:
        job_id: which job.
        state: how it ended: FAILED, KILLED, WORKER_FAILED or UNSCHEDULABLE.
        task_index: of the task whose words the text has; None if no task has any.
    """

    def __init__(self, text: str, *, job_id: str = "", state: str = "FAILED", task_index: int | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.state = state
        self.task_index = task_index


class TaskFailed(OperationError):
    """A task ended otherwise than well. The text has its own words: the end of its traceback, if it raised.

    Raised, or the value itself where a job may lose tasks (``max_task_failures``): see :meth:`iriscw.Job.result`.

    Attributes:
        job_id: whose task.
        task_index: which.
        state: how it ended: FAILED, KILLED, or another that is final.
    """

    def __init__(self, text: str, *, job_id: str = "", task_index: int = 0, state: str = "FAILED") -> None:
        super().__init__(text)
        self.job_id = job_id
        self.task_index = task_index
        self.state = state


class PeerOver(OperationError):
    """A replica that is waited for is over: it has no address any more, and will have none."""
