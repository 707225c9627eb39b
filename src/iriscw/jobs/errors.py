"""The named errors of jobs: what a caller of the doors can be told."""

from __future__ import annotations

from iriscw._errors import OperationError, UsageError


class NoSuchJob(UsageError, LookupError):
    """No job has this id: it never existed, or it ended so long ago that it was forgotten."""


class JobExists(UsageError):
    """A job of this name has not ended yet, and the submission said ``existing="error"``.

    Or it said ``recreate`` in a task, and the other job does not descend from that task's job.

    A job that a task submits has its name in the namespace of its parents: other namespaces may have the same name.
    """


class NameAmbiguous(UsageError, LookupError):
    """Several jobs that have not ended have this name, in different namespaces. The text has their paths."""


class ParentOver(UsageError):
    """The job whose task submits this one is over, and this one would end with it: ``detached=True`` lets it run."""


class KeyReused(UsageError):
    """The idempotency key was used before, for another specification."""


class TooManyJobs(OperationError):
    """As many jobs as one controller takes have not ended yet."""

    retryable = True


class TooManyTasks(OperationError):
    """The tasks of the jobs that have not ended are as many as one controller takes."""

    retryable = True


class ImageNotSupported(UsageError):
    """The job names an image of its own, and this cluster runs tasks as processes of their workers."""


class DependenciesNotSupported(UsageError):
    """The job asks for packages, and no task of this cluster is a process of its worker, which could install them."""


class PythonNotSupported(UsageError):
    """The job is a callable that another Python wrote than any worker of this cluster can have."""


class TaskNotRunning(OperationError):
    """The task has no attempt whose process is known to run now: it waits, starts, or its worker is not heard of."""

    retryable = True


class TaskEnded(UsageError):
    """The task is over: nothing of it runs, and nothing will."""


class GangNotSuspendable(UsageError):
    """The task is a member of a gang, which runs whole or not at all: none of it is suspended."""


class SuspensionRefused(OperationError):
    """The task cannot be suspended just now, and the text says why."""

    retryable = True


class CommandNotStarted(UsageError):
    """Where the task runs there is no such program, or it cannot be executed: nothing was run."""


class CommandKilled(OperationError):
    """The command was killed before it ended by itself: its time was over, its task ended, or the way to it broke."""


class TooManyCommands(OperationError):
    """As many commands run beside tasks as one controller attends."""

    retryable = True
