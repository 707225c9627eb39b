"""Suspending and resuming against a scripted controller: what is waited for, and how it is told."""

import pytest
from controller_double import Break, failed_task, job_of

from iriscw.client.errors import OrderFailed
from iriscw.jobs.errors import TaskEnded
from iriscw.proto.iriscw.v1 import AttemptStatus, JobState, Suspension, TaskState, TaskStatus, TaskSuspension
from raised import that

RUNS = Suspension.UNSPECIFIED
SUSPENDING, SUSPENDED, RESUMING = Suspension.SUSPENDING, Suspension.SUSPENDED, Suspension.RESUMING


def task_of(phase, reason="", uid="a0", **more):
    """Return the task whose attempt is suspended so."""
    return TaskStatus(
        task_id="job-1/0",
        state=TaskState.RUNNING,
        attempts=[AttemptStatus(attempt_uid=uid, state=TaskState.RUNNING)],
        suspension=TaskSuspension(attempt_uid="a0", phase=phase, reason=reason, **more),
    )


@pytest.fixture
def changes(controller):
    """Have the job change that often, with a break in between."""
    controller.statuses = [job_of(version=1), Break(), *(job_of(version=number) for number in range(2, 9))]
    return controller


async def test_a_suspension_is_followed_to_its_end(client, changes):
    """Each change is told once; what is asked has a key and all options."""
    changes.later = [task_of(SUSPENDING), task_of(SUSPENDING), task_of(SUSPENDED)]
    seen = []
    found = await client.suspend("job-1", tier="disk", labels={"a": "b"}, force=True, seen=seen.append)
    assert [each.phase for each in seen] == ["SUSPENDING", "SUSPENDED"]
    assert found == seen[-1]
    (asked,) = changes.asked
    assert (asked.tier, asked.labels, asked.force) == ("disk", {"a": "b"}, True)
    assert asked.idempotency_key


@pytest.mark.parametrize("reason", ["", "it was not stored: NoRoom: full"])
async def test_what_is_to_be_stored_is_waited_for(client, changes, reason):
    """It is suspended long before it lies in the repository; that it does not is an error, with the reason."""
    changes.later = [
        task_of(SUSPENDING),
        task_of(SUSPENDED, storing=True),
        task_of(SUSPENDED, reason, **({"node": "n1"} if reason else {"repository": "s3://c"})),
    ]
    seen = []
    if reason:
        with pytest.raises(OrderFailed, check=that(names="NoRoom")):
            await client.suspend("job-1", tier="repository", seen=seen.append)
    else:
        assert (await client.suspend("job-1", tier="repository", seen=seen.append)).repository == "s3://c"
    assert [each.storing for each in seen] == [False, True, False]


@pytest.mark.parametrize(
    ("reason", "told"), [("the freeze is undone", that(names="freeze")), ("", that(names="somebody"))]
)
async def test_what_is_not_suspended_says_why(client, changes, reason, told):
    """It was undone, or somebody resumed it before this was seen."""
    changes.later = [task_of(RUNS, reason)]
    with pytest.raises(OrderFailed, check=told):
        await client.suspend("job-1")


@pytest.mark.parametrize(("reason", "told"), [("no room", that(names="room")), ("", that(names="somebody"))])
async def test_what_is_suspended_again_says_so(client, changes, reason, told):
    """A task that was to go on, and does not."""
    changes.later = [task_of(RESUMING), task_of(SUSPENDED, reason)]
    with pytest.raises(OrderFailed, check=told):
        await client.resume("job-1")


async def test_a_resumption_is_followed_to_its_end(client, changes):
    """It ends when the attempt runs."""
    changes.later = [task_of(RESUMING), task_of(RUNS)]
    assert (await client.resume("job-1")).phase == ""


@pytest.mark.parametrize("later", [task_of(RUNS, uid="a1"), failed_task(0, "its images are gone")])
async def test_an_attempt_that_ends_meanwhile(client, changes, later):
    """Another attempt is not the one that was asked for; the text of its end is told."""
    changes.later = [task_of(SUSPENDING), later]
    with pytest.raises(TaskEnded, check=that(comes_from="suspending._of_attempt", names="a0")):
        await client.suspend("job-1")


async def test_a_job_that_ends_ends_the_wait(client, controller):
    """The last status ends its stream; the task says how it ended."""
    controller.statuses = [job_of(JobState.FAILED)]
    controller.later = [failed_task(0, "its images are gone")]
    with pytest.raises(TaskEnded, check=that(names="images")):
        await client.suspend("job-1")
