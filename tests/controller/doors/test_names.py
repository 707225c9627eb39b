"""Hosted actors found by name at the controller's door: whose names a caller finds, and whose job it may end."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest
from controller_world import CLIENTS, World, submission

from iriscw._errors import InvalidArgument
from iriscw.client import peers
from iriscw.client.client import connect
from iriscw.client.model import PeerAddress
from iriscw.controller.doors import lookup
from iriscw.errors import (
    InvalidActor,
    JobExists,
    NameAmbiguous,
    NoSuchJob,
    NoSuchMethod,
    NoSuchName,
    NoSuchPort,
    NotHosted,
    WaitTimeout,
)
from iriscw.hosted.model import ACTOR_PORT
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Secret
from raised import that
from waiting import until

pytestmark = pytest.mark.anyio

NOWHERE = [v1.Constraint(key="none", op=v1.ConstraintOp.EXISTS)]
FOREIGN = ("/stranger/w", "/stranger", "/{}/w", "/{}/none", "/nobody/w", "/nobody")
PATIENCE_S = 20


class Caller:
    """Calls with one token."""

    def __init__(self, channel):
        self.channel = channel

    async def submit(self, name, *, parent="", ports=(ACTOR_PORT,), **more):
        """Have a job that never starts, which looks as if it hosted an actor; give its id."""
        wanted = submission(
            f"{name} {parent}", name=name, ports=[*ports], constraints=NOWHERE, parent_job_id=parent, **more
        )
        reply = await self.channel.unary(CLIENTS + "SubmitJob", wanted, v1.SubmitJobResponse)
        return reply.job_id

    async def resolve(self, name="", job="", wait=False):
        """Give the ids of those that are found."""
        request = v1.ResolveActorsRequest(job=v1.JobRef(job_id=job), name=name, wait=wait)
        async with self.channel.server_stream(CLIENTS + "ResolveActors", request, v1.ResolvedActor) as replies:
            return [each.job_id async for each in replies]

    async def end(self, job):
        """Have a job ended."""
        request = v1.TerminateJobRequest(job=v1.JobRef(job_id=job))
        await self.channel.unary(CLIENTS + "TerminateJob", request, v1.TerminateJobResponse)

    async def status(self, job):
        """Describe a job."""
        return await self.channel.unary(CLIENTS + "GetJob", v1.GetJobRequest(job=v1.JobRef(job_id=job)), v1.JobStatus)


@asynccontextmanager
async def as_a_task(world):
    """Be a task of a job that runs; give what calls with its token, its job, and how it ends."""
    job = await world.submit("top", name="top")
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (run,) = worker.runs.values()

        async def end():
            await worker.finish(run.attempt_uid)
            await world.until_over(job.job_id)

        async with world.channel(Secret(run.token)) as channel:
            yield Caller(channel), job.job_id, end


async def test_a_name_is_found_as_it_is_written(world: World) -> None:
    """In the namespace of a job or by a path; a part of a name is none, and neither is one of a job that has ended."""
    admin = Caller(world.client)
    one, two = await admin.submit("one"), await admin.submit("two")
    child = await admin.submit("w-1", parent=one)
    other = await admin.submit("w-1", parent=two)
    plain = await admin.submit("plain", parent=two, ports=())
    for name, job in (("w-1", one), ("w-1", child), ("/one/w-1", ""), (f"/{one}/w-1", two), ("w-1", "one")):
        assert await admin.resolve(name, job) == [child]
    assert await admin.resolve("/two/w-1") == [other]
    assert await admin.resolve("/one") == await admin.resolve("one") == await admin.resolve("one", child) == [one]
    assert (await admin.resolve(), await admin.resolve(job=two)) == ([one, two], [two, other])
    for name, job, error in (
        *(("w-", one, NoSuchName), ("w-10", one, NoSuchName), ("w-1", "", NoSuchName), ("/w-1", one, NoSuchName)),
        *(("/three/w-1", "", NoSuchName), ("w-1", "job-" + "a" * 12, NoSuchJob), ("plain", two, NotHosted)),
        *((each, "", InvalidArgument) for each in ("a/b", "/", "//a", "/a/", "/a/b/c")),
    ):
        with pytest.raises(error):
            await admin.resolve(name, job)
    for name in ("w" * 129, "w\n", f"/one/{'w' * 129}"):  # no job can have it
        with pytest.raises(InvalidArgument):
            await admin.resolve(name, one, wait=True)
    with pytest.raises(NameAmbiguous, check=that(names=f"/{two}/w-1")):
        await admin.status("w-1")
    assert (await admin.status("/one/w-1")).job_id == child
    assert (await admin.status("plain")).job_id == plain
    await world.restart()
    admin = Caller(world.client)
    assert await admin.resolve("w-1", one) == [child]
    await admin.end(other)
    await world.until_over(other)
    with pytest.raises(NoSuchName):
        await admin.resolve("/two/w-1")
    assert (await admin.status("w-1")).job_id == child
    assert (await admin.status("/two/w-1")).job_id == (await admin.status(f"/{two}/w-1")).job_id == other
    assert (await admin.status("/one")).job_id == one
    for name in ("/w-1", "/none/w-1", "/two/none"):
        with pytest.raises(NoSuchJob):
            await admin.status(name)


async def test_one_of_a_name_that_ends_for_another_is_not_meant(world: World, monkeypatch) -> None:
    """But the latest of that name, which waits for the end of the one before it; however many pages there are."""
    monkeypatch.setattr(lookup, "MAX_PAGE", 1)
    recreate = v1.ExistingJobPolicy.RECREATE
    top = await world.submit("top", name="top")
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        again = await world.submit("again", name="top", existing=recreate)
        assert not (await world.status(top.job_id)).finished_at_ms
        for name in ("top", "/top"):
            assert (await Caller(world.client).status(name)).job_id == again.job_id
        admin = Caller(world.client)
        below = await admin.submit("top", parent=await admin.submit("other"))
        with pytest.raises(NameAmbiguous, check=that(names="/top")):
            await admin.status("top")
        assert (await admin.status("/top")).job_id == again.job_id
        assert (await admin.status("/other/top")).job_id == below


async def test_a_task_ends_nothing_by_taking_its_name(world: World) -> None:
    """What it may not end it may not replace either."""
    async with as_a_task(world) as (task, job, _):
        child = await task.submit("child")
        await Caller(world.client).submit("beside", parent=child)
        for name in ("top", "beside"):
            again = submission(f"again {name}", name=name, existing=v1.ExistingJobPolicy.RECREATE)
            replacing = task.channel.unary(CLIENTS + "SubmitJob", again, v1.SubmitJobResponse)
            if name == "top":
                with pytest.raises(JobExists, check=that(names=job)):
                    await replacing
            else:
                await replacing
        assert not (await world.status(job)).reason


async def test_a_name_is_waited_for(world: World) -> None:
    """Until somebody has it, be it first or not: then who waited hears of it at once."""
    admin = Caller(world.client)
    found = {}

    async def wait(name):
        found[name] = await admin.resolve(name, wait=True)

    figures = world.controller.statistics
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "/late/w")
            tasks.start_soon(wait, "late")
            await until(lambda: figures().hosted.waiting == 2)
            await admin.submit("another")
            top = await admin.submit("late")
            await until(lambda: found and figures().hosted.waiting == 1)
            child = await admin.submit("w", parent=top)
    assert found == {"late": [top], "/late/w": [child]}
    assert figures().hosted.waiting == 0


class Subject:
    """As if it were hosted."""

    def say(self):
        """Say nothing."""


async def test_handles_are_found(world: World) -> None:
    """By a client, with the methods of a class or with any; what is waited for in vain is told."""
    admin = Caller(world.client)
    top = await admin.submit("top")
    child = await admin.submit("w", parent=top)
    async with connect(str(world.controller.address), world.controller.admin_token) as client:
        assert (await client.resolver.resolve("top")).job_id == top
        resolver = client.resolver_for_job(await client.resolver.resolve("top"))
        found = await resolver.resolve("w", Subject, wait=True, timeout_s=PATIENCE_S)
        assert [found] == [each for each in await resolver.list() if each.name == "w"]
        assert found.job_id == child
        assert (await resolver.resolve("w")).anything.name == "anything"
        with pytest.raises(NoSuchMethod, check=that(names="say")):
            found.sya()
        with pytest.raises(NoSuchName):
            await resolver.resolve("v")
        with pytest.raises(WaitTimeout, check=that(names="v")):
            await resolver.resolve("v", wait=True, timeout_s=0.0)
        with pytest.raises(InvalidActor):
            await resolver.resolve("w", len)
        for name, more in (("", {}), (3, {}), ("v", {"timeout_s": 1.0})):
            with pytest.raises(InvalidArgument):
                await resolver.resolve(name, **more)
        with pytest.raises(InvalidArgument):
            client.resolver_for_job(found.say)


async def test_a_task_finds_its_own_tree(world: World) -> None:
    """All of it, those above it and beside it too, and nothing else; once its attempt is over, nothing at all."""
    admin = Caller(world.client)
    stranger = await admin.submit("stranger")
    await admin.submit("w", parent=stranger)
    async with as_a_task(world) as (task, job, end):
        child = await task.submit("w")
        beside = await admin.submit("beside", parent=child)
        assert await task.resolve("w") == await task.resolve(f"/{job}/w") == await task.resolve("/top/w") == [child]
        assert await task.resolve() == [child, beside]
        assert (await task.status("w")).job_id == child
        for name, where in (("w", stranger), ("", stranger), *((each, "") for each in FOREIGN)):
            with pytest.raises(PermissionDenied):
                await task.resolve(name.format(stranger), where)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def wait():
                    with pytest.raises(PermissionDenied, check=that(names="attempt")):
                        await task.resolve("late", wait=True)

                tasks.start_soon(wait)
                await until(lambda: world.controller.statistics().hosted.waiting == 1)
                await end()
                await admin.submit("late", parent=job, detached=True)


async def test_a_task_ends_what_descends_from_it(world: World) -> None:
    """Children and theirs, also detached ones; neither its own job, nor what is above or beside it."""
    admin = Caller(world.client)
    stranger = await admin.submit("stranger")
    async with as_a_task(world) as (task, job, end):
        child, detached = await task.submit("child"), await task.submit("detached", detached=True)
        grandchild = await admin.submit("grandchild", parent=child)
        for each in (job, stranger, "top"):
            with pytest.raises(PermissionDenied):
                await task.end(each)
        for each in (grandchild, child, detached):
            await task.end(each)
            await world.until_over(each)
        again = await task.submit("again", detached=True)
        await end()
        with pytest.raises(PermissionDenied, check=that(names="attempt")):
            await task.end(again)
        assert (await world.status(again)).state == v1.JobState.PENDING


async def test_a_task_reaches_ports_of_its_tree(world: World) -> None:
    """Of a job beside it by that one's name, as soon as it is reached, and not when it has ended."""
    top = await Caller(world.client).submit("top")
    await world.submit("asking", name="asking", parent_job_id=top)
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (run,) = worker.runs.values()
        async with connect(str(world.controller.address), Secret(run.token)) as client:
            waiting = asyncio.create_task(client.resolver.peers("server", "web", PATIENCE_S))
            server = await world.submit("server", name="server", ports=["web"], parent_job_id=top)
            await until(lambda: len(worker.runs) == 2)
            (uid,) = worker.runs.keys() - {run.attempt_uid}
            await worker.observe(uid, v1.TaskState.RUNNING, host="10.0.0.1", ports={"web": 80})
            assert await waiting == (PeerAddress("10.0.0.1", 80),)
            for asking, error in (
                (client.resolver.peers("server", "grpc"), NoSuchPort),
                (client.resolver.resolve("server"), NotHosted),
                (client.job(server.job_id), PermissionDenied),
                (endpoints(client, server, top), PermissionDenied),
                (endpoints(client, server, ""), PermissionDenied),
            ):
                with pytest.raises(error):
                    await asking
            await worker.finish(uid)
            await world.until_over(server.job_id)
            with pytest.raises(WaitTimeout, check=that(names="server")):
                await client.resolver.peers("server", "web", 0.0)


async def endpoints(client, server, other):
    """Ask for the endpoints of a job, with the capability of another one, or with none."""
    capability = "iwc1.made-up"
    if other:
        async for each in client.method_calls.stream(
            "ResolveActors", lambda: v1.ResolveActorsRequest(name=f"/{other}/top"), v1.ResolvedActor
        ):
            capability = each.capability
    job = v1.JobRef(job_id=server.job_id)
    async for _ in peers.watch(client.method_calls, job, follow=False, capability=capability):
        pass
