"""The clients' door: who may do what, repeated calls, waiting, bundles, listings, errors by name."""

import asyncio
import hashlib
from types import SimpleNamespace

import anyio
import pytest
from controller_world import CLIENTS, CONFIG, World, submission

from iriscw._errors import ActorRestarted, InvalidArgument
from iriscw.bundles.pack import BundleTooLarge
from iriscw.controller.doors import clients
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.clients import ClientDoor
from iriscw.controller.errors import BundleMismatch, InvalidPageToken, NoSuchBundle
from iriscw.controller.events import EventHub
from iriscw.fleet.messages import ReopenGroup
from iriscw.fleet.model import NoSuchGroup
from iriscw.jobs.errors import (
    DependenciesNotSupported,
    ImageNotSupported,
    JobExists,
    KeyReused,
    NoSuchJob,
    PythonNotSupported,
    TooManyJobs,
)
from iriscw.jobs.job.queries import OWN_STATE
from iriscw.jobs.messages import JobChanged
from iriscw.jobs.model import JobState
from iriscw.jobs.registry import RegistryLimits
from iriscw.jobs.scheduling.messages import ExplainJobs, JobReasons
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied, Unauthenticated
from iriscw.rpc.tokens import Secret
from iriscw.task.payload import make_payload, read_summary
from raised import Check, that
from waiting import until


def ref(job_id: str, uid: str = "") -> v1.JobRef:
    """Name a job."""
    return v1.JobRef(job_id=job_id, job_uid=uid)


async def test_submission_is_idempotent(world: World) -> None:
    """The same key and request give the same job; another request under the key is refused."""
    first = await world.submit("k1")
    again = await world.submit("k1")
    assert (first.job_id, first.created, again.job_id, again.created) == (first.job_id, True, first.job_id, False)
    with pytest.raises(KeyReused):
        await world.submit("k1", replicas=2)
    with pytest.raises(JobExists):
        await world.submit("k2")
    kept = await world.submit("k3", existing=v1.ExistingJobPolicy.KEEP)
    assert kept.job_id == first.job_id


async def test_key_may_come_as_metadata(world: World) -> None:
    """A call's idempotency key counts where the request has none; without any the call is refused."""
    request = submission("")
    reply = await world.call("SubmitJob", request, v1.SubmitJobResponse, idempotency_key="k9")
    again = await world.call("SubmitJob", request, v1.SubmitJobResponse, idempotency_key="k9")
    assert reply.job_id == again.job_id
    with pytest.raises(InvalidArgument, check=that(names="idempotency")):
        await world.call("SubmitJob", request, v1.SubmitJobResponse)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entrypoint": None}, that(names=("command", "callable"))),
        ({"entrypoint": v1.Entrypoint(command=v1.Command())}, that(names="empty")),
        ({"replicas": 0}, that(names="replicas")),
        ({"resources": v1.Amount()}, that(names="resources")),
        ({"name": "a/b"}, that(names="name")),
        ({"constraints": [v1.Constraint(key="x")]}, that(names="x")),
    ],
)
async def test_impossible_submission(world: World, changes: dict, words: Check) -> None:
    """What cannot be is refused by name before anything is promised."""
    with pytest.raises(InvalidArgument, check=words):
        await world.submit(**changes)
    assert not (await world.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)).jobs


async def test_limits_are_named(tmp_path) -> None:
    """A controller that is full refuses by name."""
    async with World(tmp_path / "state", limits=RegistryLimits(jobs=1)) as world:
        await world.submit("a", name="a")
        with pytest.raises(TooManyJobs):
            await world.submit("b", name="b")


@pytest.mark.parametrize("name", ["nobody", "scheduler", "links", "../fleet", "job-aaaaaaaaaaaa"])
async def test_unknown_job(world: World, name: str) -> None:
    """No text reaches an actor that is no job; the answer is NoSuchJob."""
    with pytest.raises(NoSuchJob):
        await world.status(name)


async def test_name_and_uid(world: World) -> None:
    """A name stands for its latest job, and a uid for nothing else than its own job."""
    job = await world.submit()
    request = v1.GetJobRequest(job=ref("job", job.job_uid))
    assert (await world.call("GetJob", request, v1.JobStatus)).job_id == job.job_id
    with pytest.raises(NoSuchJob):
        await world.call("GetJob", v1.GetJobRequest(job=ref("job", "0" * 16)), v1.JobStatus)
    with pytest.raises(InvalidArgument):
        await world.call("GetJob", v1.GetJobRequest(), v1.JobStatus)


async def test_status(world: World) -> None:
    """A status shows what was asked for, what runs, and why a task waits."""
    job = await world.submit(replicas=2, environment={"A": "b"}, priority=v1.PriorityBand.BATCH)
    status = await world.status(job.job_id)
    assert status.entrypoint == "true"
    assert (status.num_tasks, status.priority, status.resources.cpu_milli) == (2, v1.PriorityBand.BATCH, 100)
    assert status.reason
    tasks = await world.call("ListTasks", v1.ListTasksRequest(job=ref(job.job_id)), v1.ListTasksResponse)
    assert [task.state for task in tasks.tasks] == [v1.TaskState.PENDING] * 2
    assert tasks.tasks[0].reason


async def test_watch_ends_after_termination(world: World) -> None:
    """A watcher that waits is woken by the end, and its last status is the terminal one."""
    job = await world.submit()
    seen: list[v1.JobStatus] = []

    async def watch() -> None:
        seen.extend(await world.until_over(job.job_id))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await until(lambda: world.controller._hub._subscribed)
        reply = await world.call("TerminateJob", v1.TerminateJobRequest(job=ref(job.job_id)), v1.TerminateJobResponse)
        assert reply.state is v1.JobState.PENDING
    assert seen[-1].state is v1.JobState.KILLED
    late = v1.WatchJobRequest(job=ref(job.job_id), after_version=seen[-1].version)
    assert len(await world.stream("WatchJob", late, v1.JobStatus)) == 1, "the end is told to whoever comes late"


async def test_follow_gives_the_last_line_first(world: World) -> None:
    """A follower has the last line when the terminal state is shown, and its stream ends by itself (INV-J8)."""
    job = await world.submit()
    followed: dict[int, bytes] = {}

    async def follow() -> None:
        followed.update(await world.logs(job.job_id, follow=True))

    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await worker.write(uid, 0, b"one\n")
            await worker.finish(uid, log_end_offset=8)
            await anyio.sleep(0.2)
            assert (await world.status(job.job_id)).state is not v1.JobState.SUCCEEDED, "its last line is not here"
            await worker.write(uid, 4, b"two\n")
    assert followed == {0: b"one\ntwo\n"}
    assert await world.logs(job.job_id, tail_lines=1) == {0: b"two\n"}
    cursor = v1.LogCursor(attempt_uid=uid, offset=2)
    assert await world.logs(job.job_id, cursors=[cursor]) == {0: b"e\ntwo\n"}
    assert await world.logs(job.job_id, task_index=1) == {}


async def test_jobs_are_listed_in_pages(world: World) -> None:
    """Pages follow each other, latest first, and a wrong page token is named."""
    ids = [(await world.submit(f"k{number}", name=f"n{number}")).job_id for number in range(5)]
    listed, token = [], ""
    while True:
        request = v1.ListJobsRequest(page_size=2, page_token=token)
        page = await world.call("ListJobs", request, v1.ListJobsResponse)
        listed += [job.job_id for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert listed == ids[::-1]
    with pytest.raises(NoSuchJob):
        await world.call("ListJobs", v1.ListJobsRequest(page_token="job-x"), v1.ListJobsResponse)
    request = v1.ListTasksRequest(job=ref(ids[0]), page_token="x")
    with pytest.raises(InvalidPageToken):
        await world.call("ListTasks", request, v1.ListTasksResponse)


async def listed(world: World) -> dict[str, v1.JobStatus]:
    """All jobs of the listing by name."""
    page = await world.call("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)
    return {job.name: job for job in page.jobs}


async def test_a_listing_counts_tasks_and_says_why_they_wait(world: World) -> None:
    """A row has counts by state and, where tasks wait, what the workers lack: the same as the job by itself."""
    away = [v1.Constraint(key="none", op=v1.ConstraintOp.EXISTS)]
    waits = await world.submit("k1", name="waits", replicas=3, constraints=away)
    runs = await world.submit("k2", name="runs")
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        with anyio.fail_after(20):
            while (await listed(world))["runs"].state is not v1.JobState.RUNNING:  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        found = await listed(world)
        assert [(each.state, each.count) for each in found["waits"].tasks] == [(v1.TaskState.PENDING, 3)]
        assert found["waits"].reason == (await world.status(waits.job_id)).reason
        assert "constraint" in found["waits"].reason
        assert [(each.state, each.count) for each in found["runs"].tasks] == [(v1.TaskState.RUNNING, 1)]
        assert found["runs"].reason == ""
        assert found["runs"].started_at_ms == (await world.status(runs.job_id)).started_at_ms > 0
        (row,) = (await world.call("ListSlices", v1.ListSlicesRequest(), v1.ListSlicesResponse)).slices
        assert [each.live_attempts for each in row.workers] == [1]


async def test_a_listing_goes_on_without_the_scheduler(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the scheduler cannot say why tasks wait, or there are too many reasons, jobs are listed all the same."""
    await world.submit(constraints=[v1.Constraint(key="none", op=v1.ConstraintOp.EXISTS)])
    ask, failing = Access.ask, True

    async def asked(access: Access, path: str, message: object) -> object:
        if isinstance(message, ExplainJobs):
            if failing:
                raise ActorRestarted("for the test")
            return JobReasons((), message.job_ids)
        return await ask(access, path, message)

    monkeypatch.setattr(Access, "ask", asked)
    assert (await listed(world))["job"].reason == OWN_STATE
    failing = False
    assert (await listed(world))["job"].reason == clients.UNEXPLAINED


async def test_retries_are_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is tried again shows each attempt, newest first, with what the user's code said."""
    job = await world.submit(max_retries_failure=2, replicas=2)
    words = "Traceback\n  File x\nValueError: boom"
    async with world.worker(manual=True) as worker:
        for attempt in range(3):
            await until(lambda: len(worker.runs) == 2 * (attempt + 1))  # noqa: B023 - called before the next round
            for uid in list(worker.runs)[2 * attempt :]:
                await worker.finish(uid, v1.TaskState.FAILED, fault=v1.Fault(kind="ValueError", text=words))
        last = (await world.until_over(job.job_id))[-1]
    assert last.fault.text == words
    assert last.reason.endswith("ValueError: boom")
    request = v1.ListTasksRequest(job=ref(job.job_id))
    task, other = (await world.call("ListTasks", request, v1.ListTasksResponse)).tasks
    numbers = [each.attempt_number for each in task.attempts]
    assert numbers == list(range(numbers[0], -1, -1))
    assert len(task.attempts) + len(other.attempts) >= 5
    assert {each.fault.text for each in task.attempts} == {words}
    for each in task.attempts:
        assert 0 < each.placed_at_ms <= each.started_at_ms <= each.finished_at_ms
    monkeypatch.setattr(clients, "MAX_PAGE_CHARS", len(words) + 20)
    first = await world.call("ListTasks", request, v1.ListTasksResponse)
    assert [each.task_index for each in first.tasks] == [0]
    rest = v1.ListTasksRequest(job=ref(job.job_id), page_token=first.next_page_token)
    second = await world.call("ListTasks", rest, v1.ListTasksResponse)
    assert ([each.task_index for each in second.tasks], second.next_page_token) == ([1], "")


async def test_an_image_needs_pods_to_run_in(world: World) -> None:
    """Where tasks are processes, a job that names one is refused by name, and nothing is promised."""
    with pytest.raises(ImageNotSupported, check=that(names="task_runtime")):
        await world.submit(image="ghcr.io/ada/train:7")


async def test_packages_need_tasks_that_are_processes(tmp_path, world: World) -> None:
    """Where all have containers they are refused by name; so they are of a job with an image. Steps are not."""
    wants = v1.Setup(dependencies=["numpy"], timeout_ms=1000)
    groups = {"cpu": {**CONFIG["scale_groups"]["cpu"], "task_runtime": "docker"}}
    groups["cpu"]["task_image"] = "ghcr.io/ada/task:1"
    async with World(tmp_path / "pods", config={**CONFIG, "scale_groups": groups}) as pods:
        with pytest.raises(DependenciesNotSupported, check=that(names="task_runtime")):
            await pods.submit("a", name="a", setup=wants)
        with pytest.raises(InvalidArgument, check=that(names="image")):
            await pods.submit("b", name="b", setup=wants, image="ghcr.io/ada/train:7")
        steps = v1.Setup(steps=[v1.Command(argv=["make"])], timeout_ms=1000)
        assert (await pods.submit("c", name="c", setup=steps)).created
    assert (await world.submit("d", name="d", setup=wants)).created


async def test_a_callable_of_a_python_that_no_worker_can_have(tmp_path) -> None:
    """It is refused at once, unless a worker that is there has it; a command may be anything."""
    groups = {"cpu": {**CONFIG["scale_groups"]["cpu"], "attributes": {"python": "3.10"}}}
    callable_ = v1.Entrypoint(callable=v1.Callable(payload=make_payload(len, ("",), {})))
    callable_.callable.python_version = ours = read_summary(callable_.callable.payload).python
    async with World(tmp_path / "named", config={**CONFIG, "scale_groups": groups}) as world:
        await world.submit("a", name="a")
        with pytest.raises(PythonNotSupported, check=that(names=ours)):
            await world.submit("b", name="b", entrypoint=callable_)
        there = SimpleNamespace(info=SimpleNamespace(attributes={"python": ours}))
        world.controller.features.parts["jobs"].workers.switchboard._connections["w", "1"] = there
        assert (await world.submit("b", name="b", entrypoint=callable_)).created
        del world.controller.features.parts["jobs"].workers.switchboard._connections["w", "1"]
    async with World(tmp_path / "unknown") as world:
        assert (await world.submit("b", name="b", entrypoint=callable_)).created


async def test_one_that_is_freezable_waits_for_a_worker_that_can(world: World) -> None:
    """It is not run where it would not be, and says what it waits for; the same job without it is another one."""
    job = await world.submit("k1", freezable=True)
    async with world.worker():
        with anyio.fail_after(20):
            while "the constraint freezable" not in (await world.status(job.job_id)).reason:  # noqa: ASYNC110 - no event
                await anyio.sleep(0.01)
    with pytest.raises(KeyReused):
        await world.submit("k1")


async def test_bundles(world: World) -> None:
    """A bundle is stored once and whole; other bytes than announced are refused and leave nothing."""
    data = b"zip" * 100_000
    bundle_id = hashlib.sha256(data).hexdigest()

    async def put(header: v1.BundleHeader, data: bytes) -> v1.PutBundleResponse:
        chunks = [data[begin : begin + 65536] for begin in range(0, len(data), 65536)]
        parts = [v1.PutBundleRequest(header=header), *(v1.PutBundleRequest(data=chunk) for chunk in chunks)]
        return await world.client.client_stream(CLIENTS + "PutBundle", parts, v1.PutBundleRequest, v1.PutBundleResponse)

    header = v1.BundleHeader(bundle_id=bundle_id, size_bytes=len(data))
    with pytest.raises(BundleMismatch):
        await put(header, data[:-1] + b"?")
    with pytest.raises(NoSuchBundle):
        await world.submit(bundle_id=bundle_id)
    with pytest.raises(BundleTooLarge):
        await put(v1.BundleHeader(bundle_id=bundle_id, size_bytes=1 << 40), data)
    with pytest.raises(InvalidArgument):
        await put(v1.BundleHeader(bundle_id="../x", size_bytes=len(data)), data)
    assert not (await put(header, data)).existed
    assert (await put(header, data)).existed
    assert (await world.submit(bundle_id=bundle_id)).created


async def test_fleet_and_cluster(world: World) -> None:
    """Groups, slices, workers and counts are shown as they are."""
    pools = (await world.call("ListPools", v1.ListPoolsRequest(), v1.ListPoolsResponse)).pools
    assert [(pool.scale_group, pool.max_slices, pool.node.cpu_milli) for pool in pools] == [("cpu", 2, 4000)]
    job = await world.submit()
    async with world.worker() as worker:
        await world.until_over(job.job_id)
        (row,) = (await world.call("ListSlices", v1.ListSlicesRequest(), v1.ListSlicesResponse)).slices
        assert row.state is v1.SliceState.READY
        assert [(each.worker_id, each.connected) for each in row.workers] == [(worker.worker_id, True)]
        status = await world.call("GetClusterStatus", v1.GetClusterStatusRequest(), v1.ClusterStatus)
        assert (status.name, status.platform, status.workers_connected, status.slices) == ("test", "local", 1, 1)
        assert [(each.state, each.count) for each in status.jobs] == [(v1.JobState.SUCCEEDED, 1)]
        assert not status.degraded


async def test_a_scale_group_is_reopened(world: World) -> None:
    """By its name; that it is tried again is told to the group itself, and a name that is none is refused."""
    told: list[object] = []
    world.controller.system._tree.trace = lambda cell, message: told.append((cell.path, message))
    await world.call("ReopenPool", v1.ReopenPoolRequest(scale_group="cpu"), v1.ReopenPoolResponse)
    await world.call("GetClusterStatus", v1.GetClusterStatusRequest(), v1.ClusterStatus)
    assert ("/fleet/cpu", ReopenGroup("cpu")) in told
    with pytest.raises(NoSuchGroup):
        await world.call("ReopenPool", v1.ReopenPoolRequest(scale_group="gpu"), v1.ReopenPoolResponse)


@pytest.mark.parametrize("token", [None, Secret("garbage"), Secret("iww1.YQ.YQ.AAAA"), Secret("iwj1.YQ.YQ.AAAA")])
async def test_strangers(world: World, token: Secret | None) -> None:
    """Without a right token nothing is answered."""
    async with world.channel(token) as channel:
        with pytest.raises(Unauthenticated):
            await channel.unary(CLIENTS + "ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)


async def test_worker_is_no_client(world: World) -> None:
    """A worker's token opens no client's method."""
    async with world.channel(world.tokens.worker_token("w-0", "i")) as channel:
        with pytest.raises(PermissionDenied):
            await channel.unary(CLIENTS + "SubmitJob", submission("k"), v1.SubmitJobResponse)


async def test_jobs_token(world: World) -> None:
    """A live attempt may submit children and look at its own kin, nothing else; an ended one may do nothing."""
    other = await world.submit(
        "other", name="other", constraints=[v1.Constraint(key="none", op=v1.ConstraintOp.EXISTS)]
    )
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (run,) = worker.runs.values()
        async with world.channel(Secret(run.token)) as channel:

            async def call(method: str, request: object, reply: type):
                return await channel.unary(CLIENTS + method, request, reply)

            child = await call("SubmitJob", submission("k1", name="child"), v1.SubmitJobResponse)
            assert child.created
            seen = await call("GetJob", v1.GetJobRequest(job=ref(child.job_id)), v1.JobStatus)
            assert seen.parent_job_id == job.job_id
            assert (await call("GetJob", v1.GetJobRequest(job=ref(job.job_id)), v1.JobStatus)).job_id == job.job_id
            await call("ListTasks", v1.ListTasksRequest(job=ref(child.job_id)), v1.ListTasksResponse)
            for method, request, reply in (
                ("GetJob", v1.GetJobRequest(job=ref(other.job_id)), v1.JobStatus),
                ("TerminateJob", v1.TerminateJobRequest(job=ref(job.job_id)), v1.TerminateJobResponse),
                ("ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse),
                ("SubmitJob", submission("k2", parent_job_id=other.job_id), v1.SubmitJobResponse),
                ("ListSlices", v1.ListSlicesRequest(), v1.ListSlicesResponse),
                ("GetClusterStatus", v1.GetClusterStatusRequest(), v1.ClusterStatus),
            ):
                with pytest.raises(PermissionDenied):
                    await call(method, request, reply)
            await worker.finish(run.attempt_uid)
            await world.until_over(job.job_id)
            with pytest.raises(PermissionDenied, check=that(names="attempt")):
                await call("GetJob", v1.GetJobRequest(job=ref(job.job_id)), v1.JobStatus)


async def test_endpoints_are_told_as_they_change(world: World) -> None:
    """All there is at first, then what is new: an address, its loss, and the end of the task, which ends the stream."""
    other = await world.submit(
        "other", name="other", constraints=[v1.Constraint(key="none", op=v1.ConstraintOp.EXISTS)]
    )
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (run,) = worker.runs.values()
        uid = run.attempt_uid
        async with world.channel(Secret(run.token)) as channel:

            def watch(job_id: str):
                request = v1.WatchEndpointsRequest(job=ref(job_id), follow=True)
                return channel.server_stream(CLIENTS + "WatchEndpoints", request, v1.EndpointsUpdate)

            async with watch(job.job_id) as updates:
                first = await anext(updates)
                assert (first.endpoints, first.num_tasks, first.more) == ([], 1, False)
                await worker.observe(uid, v1.TaskState.RUNNING, host="10.0.0.1", ports={"web": 80})
                told = (await anext(updates)).endpoints
                assert [(each.task_index, each.attempt_uid, each.host, each.ports) for each in told] == [
                    (0, uid, "10.0.0.1", {"web": 80})
                ]
                await worker.finish(uid)
                last = await anext(updates)
                assert (last.over, last.gone, last.endpoints) == ([0], [], [])
            with pytest.raises(PermissionDenied):
                async with watch(other.job_id) as updates:
                    await anext(updates)
    once = v1.WatchEndpointsRequest(job=ref(job.job_id))
    async with (
        world.channel(world.controller.admin_token) as channel,
        channel.server_stream(CLIENTS + "WatchEndpoints", once, v1.EndpointsUpdate) as updates,
    ):
        assert [update.over async for update in updates] == [[0]]


async def test_who_watches_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hears at once, and of each change twice: when it comes, and when listings have heard of it. Else nothing."""
    monkeypatch.setattr(clients, "LISTED_AFTER_S", 0.01)
    hub, door = EventHub(0, lambda _: None), ClientDoor.__new__(ClientDoor)
    vars(door).update(_hub=hub, _access=SimpleNamespace(admin=lambda: None))
    told = door.watch_jobs(v1.WatchJobsRequest())
    for _ in range(3):
        for _ in range(2):
            await anext(told)
        waiting = asyncio.ensure_future(anext(told))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        for _ in range(50):
            hub.publish(JobChanged("job-a", JobState.RUNNING, "", 0))
        await waiting
        await anext(told)
        hub.publish(JobChanged("job-a", JobState.RUNNING, "", 0))
    await told.aclose()
    assert not hub._subscribed
