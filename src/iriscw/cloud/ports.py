"""The ports to the cloud, and the error contract of each method.

One rule for all: a method raises only the errors its docstring names, each with a sentence for users; what
a library underneath raises is translated by the driver. Every call has a deadline of its own
(``CALL_TIMEOUT_S``) after which it raises :class:`~iriscw.cloud.model.Unavailable`, because whether it had
its effect is then unknown. All calls may be
repeated: creates are idempotent by name, deletes by uid. Calls that were cancelled may still land.

Drivers touch only objects labelled ``iris-managed: "true"`` and ``iris-cluster: <their cluster>``, and
never one with ``iris-role: controller`` (INV-F2). They keep within the rate limit of the API themselves
(INV-F9): a call waits its turn, within its deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from iriscw.cloud.model import ExecEnd, ExecOutput, ExecResult, NodePool, NodePoolSpec, Pod, PodSpec, WatchEvent

CALL_TIMEOUT_S = 60.0
"""Deadline of one API call: the default of ``cluster.yaml``, and of most Kubernetes clients."""

MAX_EXEC_OUTPUT_BYTES = 1 << 20
"""What :meth:`Connection.run` keeps of each output. Longer output goes through :meth:`Connection.stream`."""


Thing_co = TypeVar("Thing_co", covariant=True)


class Observer(Protocol[Thing_co]):
    """Observes all things of one kind in our cluster."""

    async def list(self, labels: Mapping[str, str]) -> tuple[Thing_co, ...]:
        """Return all that have these labels, ordered by name; read from the API, not from a cache.

        Raises:
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        ...

    def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Return a ``Relisted``, then every change in order, until cancelled; resumes and relists by itself.

        Nothing that outlasts a relist is missed: what came and went in a gap is absent from the next ``Relisted``.

        Raises:
            Forbidden: the credentials do not allow it.
            Unavailable: the API did not answer for longer than the driver was willing to try.
        """
        ...


@runtime_checkable
class NodePoolDriver(Observer[NodePool], Protocol):
    """Makes, removes and observes node pools. One counts as changed when one of its nodes does."""

    async def create(self, spec: NodePoolSpec) -> NodePool:
        """Ask for a pool, and give it as the API acknowledged it: its nodes come later.

        Idempotent: a pool of this name with the same ``iris-slice-id`` label is given back as it is. A pool for which
        there is no room is accepted, too: it has no nodes, and a condition that says why
        (:class:`~iriscw.cloud.model.Condition`).

        Raises:
            QuotaExceeded: the quota is known to be used up already. Most quota refusals come later, as
                conditions.
            NoCapacity: no machines, and the API keeps no queue.
            InvalidSpec: the specification is not accepted.
            Conflict: another pool, or one that is being deleted, has this name.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unseen: something has the name, and the credentials do not allow to see what.
            Unavailable: no answer; the pool may exist or appear later.
        """
        ...

    async def delete(self, name: str, uid: str) -> None:
        """Ask for the deletion of the pool of this name and uid, and return once the API has acknowledged
        that.

        The pool goes later; the watch tells. Deleting one that is being deleted already succeeds.

        Raises:
            Gone: there is no pool of this name, or another one with another uid.
            Conflict: it is not ours to delete: of another cluster, or marked for the controller.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer; it may have been deleted.
        """
        ...


@runtime_checkable
class PodDriver(Observer[Pod], Protocol):
    """Makes, removes and observes worker pods."""

    async def create(self, spec: PodSpec) -> Pod:
        """Ask for a pod, and give it as the API acknowledged it: it starts later.

        Idempotent: a pod of this name with the same ``iris-incarnation`` label is given back as it is,
            ended or not. One call lets at most one request go out that can have an effect. So a caller that gives
            each call an incarnation of its own never sees one incarnation twice, however late a request lands.

        Raises:
            QuotaExceeded: the namespace's quota is used up.
            InvalidSpec: the specification is not accepted.
            Conflict: another pod has this name.
            Gone: the pool called ``spec.pool`` does not exist.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unseen: something has the name, and the credentials do not allow to see what.
            Unavailable: no answer; the pod may exist or appear later.
        """
        ...

    async def delete(self, name: str, uid: str, grace_s: float = 30.0) -> None:
        """Ask for the deletion of the pod of this name and uid: its processes get ``grace_s`` to end by
        themselves.

        It counts as gone only when the watch says so: then none of its processes runs any more.

        Raises:
            Gone: there is no pod of this name, or another one with another uid.
            Conflict: it is not ours to delete.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer; it may have been deleted.
        """
        ...


@runtime_checkable
class Connection(Protocol):
    """Runs commands inside one worker pod: what ``kubectl exec`` and SSH are for."""

    async def run(
        self, argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> ExecResult:
        """Run a command to its end. No shell is involved; standard input is empty.

        A command that ends with an exit code other than 0 is a result, not an error.

        Raises:
            TimeoutError: it did not end within ``timeout_s``; it was killed, with all it had started.
            Gone: the pod does not exist any more.
            InvalidSpec: the command cannot be started (no such file, not executable).
            Forbidden: the credentials do not allow it.
            Unavailable: the connection broke; whether the command ran is unknown.
        """
        ...

    @property
    def interpreter(self) -> tuple[str, ...]:
        """How Python is started there; it may be one without iriscw."""

    def stream(self, argv: Sequence[str]) -> AsyncIterator[ExecOutput | ExecEnd]:
        """Run a command and give its outputs as they come, each in its order, and then how it ended.

        Leaving the iteration early kills the command with all it had started; so does the end of this process, within
        a minute. Chunks are at most 64 KiB; the command waits for its reader.

        Raises:
            Gone: the pod does not exist any more, or has ended meanwhile.
            InvalidSpec: the command cannot be started.
            Forbidden: the credentials do not allow it.
            Unavailable: the connection broke, or nobody saw how the command ended.
        """
        ...

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until commands can be run here: a fresh node refuses them for up to half a minute.

        Raises:
            TimeoutError: it was not ready within ``timeout_s``.
            Gone: the pod does not exist any more, or has ended.
            Forbidden: the credentials do not allow it.
        """
        ...
