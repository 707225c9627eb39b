"""What jobs need from outside: one session to each worker, one effect on the log store.

The session ``WorkerStream(worker_id, incarnation)`` stands for *one* connection of that worker. Its function
waits until the worker has dialled in (however long that takes), and ends with the connection; the link opens
it again at once. What it carries is neutral to the wire: a door translates it and may send a specification
once per stream, naming it by its job uid afterwards.

Up, from the worker:

1. ``StreamUp(observed)``: first, exactly once per session: *every* attempt that the worker knows, live or
   ended, that it was not yet told to forget.
2. ``Observed(observations)``: what changed since, in order, each the latest of its attempt.

Down, to the worker:

1. ``Orders(complete=True, ...)``: the answer to ``StreamUp``. What the worker has and neither ``run`` nor
   ``stop`` names, it stops and reports.
2. ``Orders(complete=False, ...)``: changes.

What a worker promises, and what the safety of jobs rests on:

* It writes an attempt uid down before it starts the process, and never starts a uid twice, however often it
  is told.
* Told to run a uid that it knows to have had and to have lost, it reports it as ended: MISSING.
* It keeps an ended attempt, with its observation, until an order releases its uid.
* It serves one stream at a time: nothing that was sent down an older one is acted on after ``StreamUp``.
* Without contact for its lease it kills its attempts by itself, on its own monotonic clock, and ends its
  stream; the controller waits longer than that before it gives up an attempt whose worker is not known to be
  gone. It looks at the clock before it acts on what a stream brings: an order that waited in a socket while
  the worker's process was stopped may be older than the lease, and its attempt long given up.

The log store: bytes of an attempt's log are counted from its start. A door that stores log bytes before it
passes on what came behind them says so in ``Observation.logs_stored``; if that reaches ``log_offset``, no
``AwaitLogs`` is needed.
"""

from __future__ import annotations

from typing import Protocol

from iriscw.jobs.model import AwaitLogs, WorkerStream
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories


class Logs(Protocol):
    """The log store, as far as jobs need it."""

    async def await_logs(self, effect: AwaitLogs) -> int:
        """Carry out :class:`AwaitLogs`.

        Raises:
            OperationError: the store cannot tell; the task's end is then published as without its last lines.
        """


class Streams(Protocol):
    """The doors' side of worker streams."""

    async def serve(self, session: WorkerStream, port: object) -> None:
        """Wait for the worker to dial in, carry items both ways, return when the connection has ended.

        ``port`` is the runtime's end of the session. A worker that dials in while an older connection of the same
        incarnation is open ends the older one.
        """


class Freezer(Protocol):
    """Those who freeze and thaw attempts.

    Each waits for as long as it takes: an agent may be away, and the job's own limits decide. What is transient is
    tried again here. Cancelling one ends the waiting, and not what was ordered: the same key again follows that on, in
    another life of the controller too. Errors are for what cannot be carried out at all, and then nothing was.
    """

    async def freeze(self, effect: FreezeAttempt) -> FrozenAttempt:
        """Carry out :class:`~iriscw.jobs.suspension.effects.FreezeAttempt`.

        Raises:
            OperationError: no agent can reach its processes. They run on.
        """

    async def thaw(self, effect: ThawAttempt) -> ThawedAttempt:
        """Carry out :class:`~iriscw.jobs.suspension.effects.ThawAttempt`.

        Raises:
            OperationError: it cannot be thawed there. Nothing of it runs.
        """

    async def store(self, effect: StoreCheckpoint) -> CheckpointStored:
        """Carry out :class:`~iriscw.jobs.suspension.effects.StoreCheckpoint`.

        Raises:
            OperationError: it cannot be moved. It is where it was.
        """

    async def follow(self, session: FollowRepositories, port: object) -> None:
        """Tell the scheduler which repository each machine has, for as long as it listens.

        ``port`` is the runtime's end of the session.
        """

    async def drop(self, effect: DropCheckpoint) -> None:
        """Carry out :class:`~iriscw.jobs.suspension.effects.DropCheckpoint`. What is not there any more is removed.

        Raises:
            OperationError: it stays.
        """
