"""What a client may see and do, and how its questions reach the actors.

Admins, and whoever can open the 0600 socket, may do everything that clients do. A job's token speaks for one live
attempt: it may submit children of its job and look at its job and at what descends from it; nothing else. An attempt
that has ended, or was fenced, has no say any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from iriscw._errors import ActorRestarted, ActorStopped, InvalidArgument, NoSuchActor
from iriscw.controller.doors.lookup import JOB_ID, Lookup
from iriscw.controller.errors import JobUnavailable
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.tokens import ControllerTokens
from iriscw.jobs.errors import NoSuchJob, TaskEnded
from iriscw.jobs.messages import DescribeJob, JobView, ListJobs, ListTasks, TaskPage, TaskRow
from iriscw.jobs.model import TASK_TERMINAL
from iriscw.proto.iriscw import v1
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Principal, Role
from iriscw.runtime import ROOT, ActorPath, ActorSystem, ChildSpec

MAX_DEPTH = 16
"""How many generations above a job are looked through for the asker's."""

EVERYTHING = Principal(Role.LOCAL)
"""Who may see all jobs: asks on behalf of a caller that has proved what it may."""


def standing(children: Iterable[ChildSpec], parent: ActorPath) -> Iterator[str]:
    """Yield the paths of children, and of theirs, as far as their behaviors name them."""
    for child in children:
        path = parent / child.name
        yield path
        yield from standing(child.behavior.children, path)


class Access:
    """Asks about jobs on behalf of callers.

    Args:
        logs: knows which attempts there were.
    """

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self.system: ActorSystem | None = None
        """Set by the assembly, once the tree stands and before the door opens."""
        self.names = Lookup(self.ask)
        self._standing: dict[str, None] = {}

    def stands(self, children: Iterable[ChildSpec]) -> None:
        """Know which actors there always are below the root, but for moments in which a supervisor is restarted."""
        self._standing.update(dict.fromkeys(standing(children, ROOT)))

    def actors(self) -> ActorSystem:
        """Return the actors, for what is called once the door is open."""
        assert self.system is not None
        return self.system

    async def ask(self, path: str, message: Any) -> Any:
        """Ask an actor; a question that met a restart is asked once more.

        Raises:
            ActorStopped: it is one of those that are always there, and is not there yet: its supervisor begins anew.
            NoSuchActor: there is no such job or node.
        """
        system = self.actors()
        try:
            try:
                return await system.ask(path, message)
            except ActorRestarted:
                return await system.ask(path, message)
        except NoSuchActor as error:
            if path not in self._standing:
                raise
            raise ActorStopped(f"{path} is being started anew") from error

    def admin(self) -> Principal:
        """Let only those in who may do everything.

        Raises:
            PermissionDenied: the caller may not.
        """
        return call_context().require(Role.ADMIN, Role.LOCAL)

    async def client(self) -> Principal:
        """Let clients in: admins, and live attempts of jobs.

        Raises:
            PermissionDenied: the caller is none, or its attempt has ended.
        """
        principal = call_context().require(Role.ADMIN, Role.LOCAL, Role.JOB)
        if principal.role is Role.JOB and not await self._lives(principal):
            raise PermissionDenied(f"attempt {principal.attempt_uid} of {principal.job_id} is over")
        return principal

    async def _lives(self, principal: Principal) -> bool:
        known = self._logs.attempt(principal.attempt_uid)
        if known is None or known.job_id != principal.job_id:
            return False
        try:
            page: TaskPage = await self.ask(f"/jobs/{known.job_id}", ListTasks(known.index, 1))
        except (NoSuchActor, ActorStopped):
            return False
        row = page.rows[0]
        return row.uid == principal.attempt_uid and row.ending is None

    async def view(self, ref: v1.JobRef | None, principal: Principal) -> JobView:
        """Describe the job that a call is about, if its caller may see it. A name stands for its latest job.

        A job that asks means the names of its namespace.

        Raises:
            InvalidArgument: the call names no job.
            NoSuchJob: there is none, or it has another uid.
            NameAmbiguous: jobs of several namespaces have this name now.
            JobUnavailable: its actor was put aside.
            PermissionDenied: it is neither the caller's job nor one of its descendants.
        """
        if ref is None or not ref.job_id:
            raise InvalidArgument("the call names no job")
        job_id = ref.job_id
        if not JOB_ID.fullmatch(job_id):
            namespace = await self.names.namespace(principal.job_id) if principal.role is Role.JOB else ""
            job_id = await self.names.named(job_id, namespace)
        view = await self._describe(job_id)
        if ref.job_uid and ref.job_uid != view.uid:
            raise NoSuchJob(f"there is no job {ref.job_id!r} with the uid {ref.job_uid}")
        if principal.role is Role.JOB:
            await self._require_kinship(view, principal)
        return view

    async def view_with(
        self, capability: str, tokens: ControllerTokens, ref: v1.JobRef | None, principal: Principal
    ) -> JobView:
        """Describe a job that a caller shows a capability for; without one, if it may see the job.

        Raises:
            PermissionDenied: the capability is another job's, or nobody here has signed it.
            IriscwError: as :meth:`view`.
        """
        if not capability:
            return await self.view(ref, principal)
        uid = tokens.callable_job(capability)
        view = await self.view(ref, EVERYTHING) if uid else None
        if view is None or view.uid != uid:
            raise PermissionDenied("the capability is not of this job")
        return view

    async def task(self, job_id: str, index: int) -> TaskRow:
        """Describe a task that is not over.

        Raises:
            InvalidArgument: the job has no such task.
            TaskEnded: it is over.
        """
        page: TaskPage = await self.ask(f"/jobs/{job_id}", ListTasks(index, 1))
        rows = [row for row in page.rows if row.index == index]
        if not rows:
            raise InvalidArgument(f"{job_id} has no task {index}")
        if rows[0].state in TASK_TERMINAL:
            raise TaskEnded(f"task {index} of {job_id} is over: {rows[0].state.value}")
        return rows[0]

    async def forgotten(self, job_id: str) -> bool:
        """Tell whether there is no such job: the registry says so, who knows all of them.

        That a job's actor is not there says less: while a part of the tree is being started, none is.

        Raises:
            NoSuchActor, OperationError: nobody can say now.
        """
        try:
            await self.ask("/jobs", ListJobs(limit=1, after=job_id))
        except NoSuchJob:
            return True
        return False

    async def _describe(self, job_id: str) -> JobView:
        try:
            view: JobView = await self.ask(f"/jobs/{job_id}", DescribeJob())
        except NoSuchActor:
            raise NoSuchJob(f"there is no job {job_id!r}") from None
        except ActorStopped as error:
            raise JobUnavailable(f"job {job_id} was put aside after repeated failures ({error})") from None
        return view

    async def _require_kinship(self, view: JobView, principal: Principal) -> None:
        current = view
        for _ in range(MAX_DEPTH):
            if current.job_id == principal.job_id:
                return
            if not current.spec.parent_job_id:
                break
            try:
                current = await self._describe(current.spec.parent_job_id)
            except NoSuchJob:
                break
        raise PermissionDenied(f"{principal} may not look at {view.job_id}")
