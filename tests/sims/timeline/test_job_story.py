"""What the records of jobs say, as events and lanes."""

import pytest

from iriscw.cloud.model import Capacity
from iriscw.jobs.messages import SubmitJob, TerminateJob
from iriscw.jobs.model import AttemptEnd, Ending, Entrypoint, EntrypointKind, JobSpec, JobState, TaskState
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptPlaced,
    JobAccepted,
    JobEnded,
    JobShown,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
    store_spec,
)
from iriscw.jobs.traits import kept_fault
from iriscw_sims.timeline.job_story import MAX_TASK_LANES, JobStory
from iriscw_sims.timeline.model import Tone
from iriscw_sims.timeline.recorder import Recorder

JOB = "/jobs/job-a"


def spec(replicas=1):
    """A specification."""
    return JobSpec("training", Entrypoint(EntrypointKind.COMMAND, "0" * 64), Capacity(1000), replicas)


@pytest.fixture
def recorder():
    """An empty recorder."""
    return Recorder()


@pytest.fixture
def tell(recorder):
    """Tell the story of messages and records; times count by themselves."""
    story = JobStory(recorder)
    now = iter(range(1, 1_000))

    def one(message, path=JOB):
        if type(message) in story.durable:
            story.durable[type(message)](next(now), path, message)
        else:
            story.delivered[type(message)](next(now), message)

    return one


def accepted(replicas=1):
    """A job was accepted."""
    return JobAccepted("job-a", 0, "key", store_spec(spec(replicas)), 0)


def placed(number=1):
    """An attempt was placed."""
    return AttemptPlaced(0, f"uid{number}", number, "iris-g-a-0", "inc", 0)


def ended(ending, then, number=1, reason="", **more):
    """An attempt is over."""
    end = AttemptEnd(ending, fault=kept_fault(reason, ""))
    return AttemptEnded(0, f"uid{number}", end, then, 0, **more)


def test_a_task_waits_runs_and_ends(recorder, tell):
    """Its lane has waiting, assigned, building, running; the outcome is the last one's."""
    tell(accepted())
    tell(placed())
    tell(AttemptAdvanced(0, "uid1", TaskState.BUILDING, 0))
    tell(AttemptAdvanced(0, "uid1", TaskState.RUNNING, 0))
    tell(ended(Ending.SUCCEEDED, TaskState.SUCCEEDED))
    tell(JobEnded(JobState.SUCCEEDED, "", 0))
    timeline = recorder.finish(99)
    spans = [span for span in timeline.spans if span.lane == "task/job-a/0"]
    assert [(span.state, span.outcome) for span in spans] == [
        ("waiting", ""),
        ("assigned", ""),
        ("building", ""),
        ("running", "succeeded"),
    ]
    assert spans[-1].label == "attempt 1 (uid1)"
    assert spans[-1].tone is Tone.GOOD
    job = timeline.spans[-1]
    assert (job.lane, job.outcome, job.end_why) == ("job/job-a", "succeeded", "all of its tasks have")


def test_a_failed_attempt_makes_its_task_wait(recorder, tell):
    """The end says why and what it counts as; the task waits for the same reason, and has another attempt."""
    tell(accepted())
    tell(placed())
    tell(ended(Ending.WORKER_LOST, TaskState.PENDING, preemption=True, reason="its pod is gone"))
    tell(placed(2))
    timeline = recorder.finish(99)
    event = timeline.events[2]
    assert (event.what, event.why) == ("attempt 1 (uid1) worker lost (counts as preemption)", "its pod is gone")
    assert event.about == ("worker/iris-g-a-0",)
    spans = [span for span in timeline.spans if span.lane == "task/job-a/0"]
    assert [span.state for span in spans] == ["waiting", "assigned", "waiting", "assigned"]
    assert spans[2].why == "its last attempt: its pod is gone"


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_a_cause(recorder, tell, ending):
    """Where the record has no sentence, the story has one."""
    tell(accepted())
    tell(placed())
    tell(ended(ending, TaskState.PENDING))
    event = recorder.finish(99).events[-1]
    assert event.why
    assert event.why != ending.value.lower()


def test_a_verdict_ends_what_waits(recorder, tell):
    """Tasks that nobody will run leave their lanes with the state that the verdict gives them."""
    tell(accepted(2))
    tell(VerdictReached(JobState.UNSCHEDULABLE, TaskState.UNSCHEDULABLE, "no worker in 90 s", 0))
    tell(JobEnded(JobState.UNSCHEDULABLE, "no worker in 90 s", 0))
    spans = {span.lane: span for span in recorder.finish(99).spans}
    assert (spans["task/job-a/1"].outcome, spans["task/job-a/1"].tone) == ("unschedulable", Tone.BAD)
    assert (spans["job/job-a"].outcome, spans["job/job-a"].end_why) == ("unschedulable", "no worker in 90 s")


def test_a_job_is_as_far_as_it_is_shown(recorder, tell):
    """Its lane follows the state that listings show; a terminal one is left to the end itself."""
    tell(accepted())
    tell(JobShown("job-a", JobState.RUNNING), "/jobs")
    tell(JobShown("job-a", JobState.SUCCEEDED), "/jobs")
    assert recorder.state("job/job-a") == "running"


def test_a_huge_job_has_some_lanes_only(recorder, tell):
    """Tasks beyond the bound get a lane when they are placed."""
    tell(accepted(100_000))
    tell(AttemptPlaced(99_999, "uid", 1, "iris-g-a-0", "inc", 0))
    lanes = [lane.subject for lane in recorder.finish(9).lanes]
    assert len(lanes) == 1 + MAX_TASK_LANES + 1
    assert lanes[-1] == "task/job-a/99999"


def test_users_and_workers_are_told(recorder, tell):
    """Submissions, stops of living jobs, and workers out of reach are events."""
    tell(SubmitJob(spec(3), "key"))
    tell(TerminateJob("job-a"))
    tell(accepted())
    tell(TerminateJob("job-a"))
    tell(WorkerSuspected("iris-g-a-0", "inc", "no contact", 0))
    tell(WorkerReturned("iris-g-a-0", "inc"))
    told = [(event.subject, event.what) for event in recorder.finish(9).events]
    assert told == [
        ("user/key", "submits training, 3 tasks"),
        ("job/job-a", "accepted: training, 1 tasks"),
        ("job/job-a", "is to stop"),
        ("worker/iris-g-a-0", "out of reach"),
        ("worker/iris-g-a-0", "no longer out of reach"),
    ]
