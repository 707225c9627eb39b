"""The clients' door: of ControllerService what is about jobs, their logs, results and bundles.

Each method asks an actor and translates; what takes long is a stream that sleeps until an event rings. Errors leave
as the classes they were raised as. Every call has a deadline, which the server keeps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext

import anyio
import anyio.lowlevel

from iriscw._errors import InvalidArgument, OperationError
from iriscw.bundles.pack import BundleLimits, BundleTooLarge
from iriscw.cloud.model import InvalidSpec, check_image
from iriscw.controller.doors import reading
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.endpoints import EndpointWatch
from iriscw.controller.doors.listing import JobPages, page_size
from iriscw.controller.doors.rules import CLIENT_RULES
from iriscw.controller.doors.streams import Switchboard
from iriscw.controller.errors import BundleMismatch, InvalidPageToken, NoSuchBundle
from iriscw.controller.events import ALL_JOBS, EventHub
from iriscw.controller.stores.payloads import display_name
from iriscw.controller.stores.stores import Stores
from iriscw.controller.tokens import ControllerTokens
from iriscw.controller.waiting import WaitingReasons, steady
from iriscw.jobs import wire
from iriscw.jobs.errors import DependenciesNotSupported, ImageNotSupported, PythonNotSupported
from iriscw.jobs.job.queries import OWN_STATE
from iriscw.jobs.messages import (
    JobPage,
    JobRow,
    JobView,
    ListJobs,
    ListTasks,
    SubmitJob,
    Submitted,
    TaskPage,
    TaskRow,
    TerminateJob,
)
from iriscw.jobs.model import JOB_TERMINAL
from iriscw.jobs.scheduling.messages import ExplainJobs, JobReasons
from iriscw.jobs.scheduling.placement import PYTHON
from iriscw.jobs.traits import MAX_REASON_CHARS
from iriscw.objects.ports import IfAbsent, ObjectExists, ObjectNotFound
from iriscw.packages.requirements import check_setup_timeout, check_steps, normal
from iriscw.proto.iriscw import v1
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.tokens import Principal, Role
from iriscw.runtime.vocabulary import replace

MAX_PAGE_CHARS = 2 * 1024 * 1024
"""Of what the attempts on a page of tasks say: a page that would be longer ends early. As UTF-8 and with all else it
is within the 16 MiB that a client takes as one message."""

MAX_EXPLAIN_ASKS = 8
"""Steps of the scheduler for the reasons of one listing; the jobs that are left say that `iriscw job` tells theirs."""

UNEXPLAINED = "waits for a worker; asking for this job alone says why"
"""Of a job beyond these."""

LISTED_AFTER_S = 1.2
"""After a change, until a listing has certainly heard of it: jobs tell of their tasks once a second."""

_INDEX = re.compile(r"\d{1,6}")


class ClientDoor(ServicePart, v1.ControllerServiceBase):
    """The part of ControllerService that is about jobs.

    Args:
        access: asks on behalf of callers.
        stores: what is stored.
        hub: rings when a job changes.
        reasons: rings when a job that is watched waits for another reason.
        images: whether a job may name an image: the tasks of some group have pods of their own.
        packages: whether a job may ask for some: the tasks of some group are processes of their workers.
        pythons: of the workers that there can be; none if that is known only when there is a worker.
        switchboard: the workers that are there; an older one may have another Python.
        tokens: knows what was signed.
    """

    method_rules = CLIENT_RULES

    def __init__(
        self,
        access: Access,
        stores: Stores,
        *,
        hub: EventHub,
        reasons: WaitingReasons,
        images: bool = False,
        packages: bool = True,
        pythons: tuple[str, ...] = (),
        switchboard: Switchboard,
        tokens: ControllerTokens,
    ) -> None:
        self._tokens = tokens
        self._pythons = pythons
        self._switchboard = switchboard
        self._why = reasons
        self._images = images
        self._packages = packages
        self._access = access
        self._stores = stores
        self._hub = hub
        self._pages = JobPages(hub.progress.of_job)

    # Jobs

    async def submit_job(self, message: v1.SubmitJobRequest) -> v1.SubmitJobResponse:
        """Promise a job."""
        principal = await self._access.client()
        parent, key = self._kinship(message, principal)
        entrypoint = message.entrypoint
        if entrypoint is None or (entrypoint.callable is None) == (entrypoint.command is None):
            raise InvalidArgument("a job runs either a command or a callable")
        if entrypoint.command is not None and not entrypoint.command.argv:
            raise InvalidArgument("the command is empty")
        if message.bundle_id:
            await self._require_bundle(message.bundle_id)
        if message.image:
            self._check_image(message.image)
        if entrypoint.callable is not None:
            self._check_python(entrypoint.callable.python_version)
        if message.setup is not None:
            self._check_setup(message.setup, message.image)
        kept = await self._stores.payloads.keep(
            entrypoint, message.bundle_id, message.image, freezable=message.freezable, setup=message.setup
        )
        spec = wire.job_spec(message, kept, parent)
        if message.image:
            spec = wire.of_task_images(spec)
        if message.freezable:
            spec = wire.of_freezable(spec)
        if message.setup is not None and message.setup.dependencies:
            spec = wire.of_packages(spec)
        submitted: Submitted = await self._access.ask("/jobs", SubmitJob(spec, key, wire.existing(message.existing)))
        return v1.SubmitJobResponse(job_id=submitted.job_id, job_uid=submitted.uid, created=submitted.fresh)

    def _kinship(self, message: v1.SubmitJobRequest, principal: Principal) -> tuple[str, str]:
        """Return the parent and the key of a submission. A job's keys are its own: no two jobs' keys meet."""
        key = message.idempotency_key or call_context().idempotency_key
        if principal.role is not Role.JOB:
            return message.parent_job_id, key
        if message.parent_job_id not in ("", principal.job_id):
            raise PermissionDenied(f"{principal} may submit children of its own job only")
        if not key:
            raise InvalidArgument("a submission carries an idempotency key")
        return principal.job_id, hashlib.sha256(f"{principal.job_id}/{key}".encode()).hexdigest()

    def _check_image(self, image: str) -> None:
        if not self._images:
            raise ImageNotSupported(
                f"the job names the image {image[:80]!r}, and this cluster runs tasks as processes of their workers:"
                " leave it out, or have a scale group with `task_runtime: pod`, or `docker`"
            )
        try:
            check_image(image)
        except InvalidSpec as error:
            raise InvalidArgument(str(error)) from error

    def _check_setup(self, setup: v1.Setup, image: str) -> None:
        """Refuse what no worker would do, before anything is promised."""
        if setup.dependencies and image:
            raise InvalidArgument("dependencies: a task with an image of its own has the packages of that")
        if setup.dependencies and not self._packages:
            raise DependenciesNotSupported(
                "the job asks for packages, and all tasks of this cluster have containers of their own, into which"
                " nothing is installed: put the packages into their image, or have a scale group without `task_runtime`"
            )
        normal(setup.dependencies)
        check_steps([step.argv for step in setup.steps])
        check_setup_timeout(setup.timeout_ms / 1000)

    def _check_python(self, wanted: str) -> None:
        if not self._pythons or wanted in self._pythons:
            return
        if all(each.info.attributes.get(PYTHON) != wanted for each in self._switchboard):
            raise PythonNotSupported(
                f"the callable comes from Python {wanted}, and workers of this cluster run {', '.join(self._pythons)}:"
                " submit it from that Python, or run a program of yours as a Command"
            )

    async def _require_bundle(self, bundle_id: str) -> None:
        try:
            await self._stores.bundles.stat(self._stores.bundle_key(bundle_id))
        except ObjectNotFound:
            raise NoSuchBundle(f"there is no bundle {bundle_id}: put it before the job that uses it") from None

    async def get_job(self, message: v1.GetJobRequest) -> v1.JobStatus:
        """Describe a job."""
        principal = await self._access.client()
        return await self._status(await self._access.view(message.job, principal), None)

    async def _status(self, view: JobView, version: int | None) -> v1.JobStatus:
        """Write a job's status. ``version`` was read before the view, if it matters that it is not newer."""
        try:
            name = display_name(await self._stores.payloads.load(view.spec.entrypoint.payload_sha256))
        except ObjectNotFound:
            name = ""
        known = self._hub.version(view.job_id) if version is None else version
        board = self._hub.progress
        progress, doing = board.of_job(view.job_id), board.doing_of_job(view.job_id)
        return wire.job_status(view, version=known, entrypoint=name, progress=progress, doing=doing)

    async def list_jobs(self, message: v1.ListJobsRequest) -> v1.ListJobsResponse:
        """Return a page of jobs, latest first."""
        self._access.admin()
        states = wire.job_states(message.states)
        token, size = message.page_token, page_size(message.page_size)
        rows: list[tuple[JobRow, int]] = []
        while True:
            page: JobPage = await self._access.ask("/jobs", ListJobs(token, size - len(rows), states))
            found = page.rows
            if message.id_prefix:
                found = tuple(row for row in found if row.job_id.startswith(message.id_prefix))
            rows += [(row, self._hub.version(row.job_id)) for row in found]
            token = page.next
            if not token or len(rows) == size:
                break
        await anyio.lowlevel.checkpoint()  # each of the three steps takes some milliseconds
        reasons = await self._reasons(tuple(row.job_id for row, _ in rows if wire.waits(row)))
        await anyio.lowlevel.checkpoint()
        return await self._pages.write(rows, reasons, token)

    async def _reasons(self, job_ids: tuple[str, ...]) -> dict[str, str]:
        """Say why the tasks of some jobs wait; a listing does not fail because the scheduler starts."""
        reasons = dict.fromkeys(job_ids, UNEXPLAINED)
        for _ in range(MAX_EXPLAIN_ASKS):
            if not job_ids:
                break
            try:
                answer: JobReasons = await self._access.ask("/jobs/scheduler", ExplainJobs(job_ids))
            except OperationError:
                return {**reasons, **dict.fromkeys(job_ids, OWN_STATE)}
            reasons.update(answer.reasons)
            job_ids = answer.rest
        return reasons

    async def list_tasks(self, message: v1.ListTasksRequest) -> v1.ListTasksResponse:
        """Return a page of a job's tasks by index."""
        principal = await self._access.client()
        view = await self._access.view(message.job, principal)
        if message.page_token and not _INDEX.fullmatch(message.page_token):
            raise InvalidPageToken(f"{message.page_token!r:.32} is not a page of this listing")
        start, size = int(message.page_token or 0), page_size(message.page_size)
        wanted = {each.name for each in message.states}
        rows: list[v1.TaskStatus] = []
        room = MAX_PAGE_CHARS
        while start >= 0 and len(rows) < size:
            page = await self._tasks(view.job_id, ListTasks(start, size - len(rows)))
            start = page.next
            for row in page.rows:
                if wanted and row.state.name not in wanted:
                    continue
                room -= wire.said_chars(row)
                if room < 0 and rows:
                    return v1.ListTasksResponse(tasks=rows, next_page_token=str(row.index))
                rows.append(self._task_status(view.job_id, row, page.pending_reason))
        return v1.ListTasksResponse(tasks=rows, next_page_token=str(start) if start >= 0 else "")

    def _task_status(self, job_id: str, row: TaskRow, pending_reason: str) -> v1.TaskStatus:
        board = self._hub.progress
        progress, doing = board.of_task(job_id, row.index, row.uid), board.doing(job_id, row.index, row.uid)
        return wire.task_status(job_id, row, pending_reason, progress, doing)

    async def _tasks(self, job_id: str, question: ListTasks) -> TaskPage:
        page: TaskPage = await self._access.ask(f"/jobs/{job_id}", question)
        return page

    async def terminate_job(self, message: v1.TerminateJobRequest) -> v1.TerminateJobResponse:
        """Order the end of a job; a task may end what descends from its own job, and nothing else."""
        principal = await self._access.client()
        view = await self._access.view(message.job, principal)
        if principal.role is Role.JOB and view.job_id == principal.job_id:
            raise PermissionDenied(f"{principal} may end what descends from its job, and not the job itself")
        reason = message.reason or "terminated by its user"
        await self._access.ask("/jobs", TerminateJob(view.job_id, reason[:MAX_REASON_CHARS]))
        return v1.TerminateJobResponse(state=v1.JobState[view.state.name])

    async def watch_job(self, message: v1.WatchJobRequest) -> AsyncIterator[v1.JobStatus]:
        """Yield the status now and after each change, to the end; another reason why tasks wait is a change."""
        principal = await self._access.client()
        view = await self._access.view(message.job, principal)
        ref = v1.JobRef(job_id=view.job_id, job_uid=view.uid)
        told, why = message.after_version, view.pending_reason
        with self._hub.subscribed(view.job_id) as events:
            while True:
                # Read first: an event in between makes the version too old, never too new, and the ring that it
                # left brings the loop around again.
                version = self._hub.version(view.job_id)
                view = await self._access.view(ref, principal)
                over = view.state in JOB_TERMINAL
                if version > told or over:
                    told, why = version, view.pending_reason
                    yield await self._status(view, version)
                if over:
                    return
                with self._why.watched(view.job_id, why) if view.pending_reason else nullcontext():
                    # What this stream has just read is newer than what was found by the last look.
                    found = "" if why == OWN_STATE else self._why.known(view.job_id, why)
                    while version == self._hub.version(view.job_id):
                        before, found = found, self._why.known(view.job_id, why)
                        if found != before and steady(found) != steady(why):
                            why = found
                            yield await self._status(replace(view, pending_reason=why), version)
                        await events.wait()

    async def watch_jobs(self, message: v1.WatchJobsRequest) -> AsyncIterator[v1.JobsChange]:
        """Yield now, and whenever a listing may show something new; once more when that had time to come there."""
        self._access.admin()
        behind = True
        with self._hub.subscribed(ALL_JOBS) as events:
            while True:
                yield v1.JobsChange()
                if behind:  # an event tells when something changes, and none when listings have heard of it
                    await anyio.sleep(LISTED_AFTER_S)
                    behind = events.rung
                else:
                    behind = True
                if behind:
                    await events.wait()

    async def watch_endpoints(self, message: v1.WatchEndpointsRequest) -> AsyncIterator[v1.EndpointsUpdate]:
        """Yield where a job's tasks are reached, and each change, to the end."""
        principal = await self._access.client()
        view = await self._access.view_with(message.capability, self._tokens, message.job, principal)
        watched = EndpointWatch(view.job_id, view.spec.replicas, self._access.ask)
        with self._hub.subscribed(view.job_id) as events:
            while True:
                async with aclosing(watched.news()) as updates:
                    async for update in updates:
                        yield update
                if watched.ended or not message.follow:
                    return
                await events.wait()

    # What is stored

    async def fetch_logs(self, message: v1.FetchLogsRequest) -> AsyncIterator[v1.LogBatch]:
        """Yield logs, as far as they are stored or until the job ends."""
        principal = await self._access.client()
        view = await self._access.view(message.job, principal)
        ref = v1.JobRef(job_id=view.job_id, job_uid=view.uid)

        async def is_over() -> bool:
            return (await self._access.view(ref, principal)).state in JOB_TERMINAL

        logs = reading.LogReading(self._stores.logs, view.job_id, message)
        over = view.state in JOB_TERMINAL
        batches = logs.follow(self._hub, is_over) if message.follow else logs.present(over=over)
        async with aclosing(batches):
            async for batch in batches:
                yield batch

    async def get_results(self, message: v1.GetResultsRequest) -> AsyncIterator[v1.ResultPart]:
        """Yield what the tasks returned, once the job is over; or as they end, or what one task did."""
        principal = await self._access.client()
        view = await self._access.view(message.job, principal)
        job_id, store, only = view.job_id, self._stores.results, message.task_index
        ref = v1.JobRef(job_id=job_id, job_uid=view.uid)
        if only is not None and not 0 <= only < view.spec.replicas:
            raise InvalidArgument(f"{job_id} has no task {only}")

        async def ask(question: ListTasks) -> TaskPage:
            return await self._tasks(job_id, question)

        async def is_over() -> bool:
            return (await self._access.view(ref, principal)).state in JOB_TERMINAL

        if only is not None or message.as_they_come:
            found = reading.results_as_tasks_end(store, self._hub, job_id, ask, is_over, only)
        else:
            found = reading.results(store, job_id, ask)
            with self._hub.subscribed(job_id) as events:
                while not await is_over():
                    await events.wait()
        async with aclosing(found) as parts:
            async for part in parts:
                yield part

    async def put_bundle(self, messages: AsyncIterator[v1.PutBundleRequest]) -> v1.PutBundleResponse:
        """Store a bundle."""
        await self._access.client()
        first = await anext(messages, None)
        header = first.header if first is not None else None
        if header is None:
            raise InvalidArgument("the first message of a bundle is its header")
        limit = BundleLimits().packed_bytes
        if not 0 < header.size_bytes <= limit:
            raise BundleTooLarge(f"a bundle has 1 to {limit} bytes, not {header.size_bytes}")
        key = self._stores.bundle_key(header.bundle_id)
        existed = False
        try:
            await self._stores.bundles.put(key, _verified(messages, header), condition=IfAbsent())
        except ObjectExists:
            existed = True
        return v1.PutBundleResponse(bundle_id=header.bundle_id, existed=existed)


async def _verified(messages: AsyncIterator[v1.PutBundleRequest], header: v1.BundleHeader) -> AsyncIterator[bytes]:
    """Yield a bundle's bytes; raise at the end of those that are not what the header says, so nothing is stored."""
    digest, received = hashlib.sha256(), 0
    async for message in messages:
        data = message.data
        if data is None:
            raise InvalidArgument("a bundle has one header")
        received += len(data)
        if received > header.size_bytes:
            break
        digest.update(data)
        yield data
    if received != header.size_bytes or digest.hexdigest() != header.bundle_id:
        raise BundleMismatch(f"what was sent is not the bundle {header.bundle_id} of {header.size_bytes} bytes")
