"""The client against a scripted controller, over a real connection."""

import anyio
import pytest
from controller_double import TOKEN, job_of

from iriscw._errors import InvalidArgument
from iriscw.client.client import connect
from iriscw.client.errors import ClientClosed, InvalidJob, JobExists, NeedsAsyncio, NoSuchJob, NotConnected
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.proto.iriscw.v1 import ExistingJobPolicy, PriorityBand, TaskState
from iriscw.resources import Resources
from iriscw.rpc.errors import Unauthenticated
from iriscw.task.payload import load_payload
from raised import that


def double(number):
    """Something to run."""
    return 2 * number


async def test_submits_a_callable(client, controller):
    """What was asked for is what travels, and the payload makes the call."""
    job = await client.submit(
        double,
        21,
        name="twice",
        replicas=3,
        resources=Resources(cpu="500m", memory="2GiB"),
        environment={"A": "1"},
        ports=["http"],
        constraints={"region": "LGA1"},
        coscheduling="slice-id",
        priority="batch",
        timeout=1.5,
        scheduling_timeout=60,
        max_retries_failure=2,
        existing="keep",
    )
    sent = controller.submitted[0]
    assert (job.id, job.uid, job.name) == ("job-1", "uid-1", "twice")
    assert load_payload(sent.entrypoint.callable.payload)() == 42
    assert sent.entrypoint.callable.display_name.endswith("test_client.double")
    assert (sent.name, sent.replicas, sent.environment, sent.ports) == ("twice", 3, {"A": "1"}, ["http"])
    assert (sent.resources.cpu_milli, sent.resources.memory_bytes) == (500, 2 << 30)
    assert (sent.constraints[0].key, sent.constraints[0].values[0].text) == ("region", "LGA1")
    assert sent.coscheduling.group_by == "slice-id"
    assert (sent.timeout_ms, sent.scheduling_timeout_ms) == (1500, 60_000)
    assert (sent.max_retries_failure, sent.max_retries_preemption) == (2, 100)
    assert (sent.priority, sent.existing) == (PriorityBand.BATCH, ExistingJobPolicy.KEEP)


async def test_submits_a_command(client, controller):
    """A command travels as its arguments."""
    await client.submit(Command(["echo", "a b"]), name="say", freezable=True)
    assert controller.submitted[0].entrypoint.command.argv == ["echo", "a b"]
    assert controller.submitted[0].freezable


async def test_zero_retries_is_said(client, controller):
    """0 retries is not "not said", which would mean the default."""
    await client.submit(Command(["true"]), name="n", max_retries_preemption=0)
    assert controller.submitted[0].max_retries_preemption == 0


async def test_a_submission_is_repeated_with_its_key(client, controller):
    """A refusal that may pass is tried again under the same key, so that there is one job."""
    controller.fail_submits = 2
    await client.submit(Command(["true"]), name="n")
    assert len(controller.keys) == 3
    assert len({key for pair in controller.keys for key in pair}) == 1
    assert len(controller.submitted) == 1


async def test_slips_do_not_travel(client, controller):
    """A wrong argument is refused here."""
    with pytest.raises(InvalidJob, check=that(names="replicas")):
        await client.submit(double, 1, name="n", replicas="3")
    with pytest.raises(InvalidArgument, check=that(names=("replicas", "0"))):
        await client.submit(double, 1, name="n", replicas=0)
    assert controller.keys == []


async def test_errors_arrive_as_themselves(client):
    """What the controller raises can be caught by its class."""
    with pytest.raises(JobExists, check=that(names="taken")):
        await client.submit(Command(["true"]), name="taken")
    with pytest.raises(NoSuchJob, check=that(names="nope")):
        await client.job("nope")


async def test_a_job_is_found_by_itself(client):
    """As every method that takes a job does; what is neither a job nor a text is refused by name."""
    job = await client.job("job-1")
    assert (await client.job(job)).id == "job-1"
    for call in (client.job, client.resume):
        with pytest.raises(InvalidArgument, check=that(names=("job", "5"))):
            await call(5)


async def test_job_by_id(client):
    """A job that exists is given with its status."""
    job = await client.job("job-1")
    assert (job.uid, job.seen.state, job.seen.tasks) == ("uid-1", JobState.RUNNING, {_running(): 2})


def _running():
    from iriscw.jobs.model import TaskState as State

    return State.RUNNING


async def test_jobs_reads_all_pages(client):
    """A listing goes on until the last page."""
    assert [job.id for job in await client.jobs()] == [f"job-{number}" for number in range(5)]


async def test_jobs_by_state(client):
    """States are members or names; a state that is none is an error by name."""
    assert len(await client.jobs(states=["RUNNING", JobState.PENDING])) == 5
    with pytest.raises(InvalidArgument, check=that(comes_from="wire._states", names=("RUNING", "PENDING"))):
        await client.jobs(states=["RUNING"])


async def test_listings_are_values(client):
    """Slices, pools and the status arrive as plain values."""
    [one] = await client.slices()
    assert (one.state, one.workers[0].attributes) == ("READY", {"python": "3.11", "rank": 3})
    [pool] = await client.pools()
    assert (pool.availability, pool.slices) == ("AT_MAX_SLICES", {"READY": 1})
    status = await client.status()
    assert (status.name, status.jobs) == ("double", {JobState.RUNNING: 2})


async def test_a_wrong_token_is_refused(door):
    """Without the right token there is nothing to see."""
    async with connect(str(door.address), "wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.status()


async def test_unknown_states_are_read_as_pending(client, controller):
    """A number of a later version does not break a listing."""
    controller.all_jobs = [job_of(state=77)]
    [job] = await client.jobs()
    assert job.seen.state is JobState.PENDING


def test_states_have_the_same_names_on_the_wire():
    """Every state of ours can be written and read."""
    from iriscw.jobs.model import TaskState as Ours

    assert {state.value for state in Ours} == {state.name for state in TaskState} - {"UNSPECIFIED"}


async def test_closed_with_its_block(door):
    """After the block the client and its jobs say that it has ended, instead of dialling again."""
    async with connect(str(door.address), TOKEN) as client:
        job = await client.submit(double, 21, name="twice")
    for call in (client.status, client.jobs, job.status, job.terminate):
        with pytest.raises(ClientClosed, check=that(comes_from="client.RpcChannel._call")):
            await call()
    with pytest.raises(ClientClosed):
        await anext(job.watch())


def test_connect_is_a_block():
    """Who forgets the block is told of it, by a word that hasattr() knows as well."""
    made = connect("127.0.0.1:1", TOKEN)
    with pytest.raises(NotConnected, check=that(comes_from="client.Connecting.__getattr__", names="submit")):
        made.submit(double, name="x")
    assert not hasattr(made, "jobs")


def test_connect_needs_asyncio():
    """On trio the error says what is needed."""

    async def use():
        async with connect("127.0.0.1:1", TOKEN):
            pass

    with pytest.raises(NeedsAsyncio):
        anyio.run(use, backend="trio")
