"""Arguments of a wrong kind are named, with what they should be, before anything travels."""

import pytest
from controller_double import job_of

from iriscw._errors import InvalidArgument
from iriscw.client.arguments import check_count, check_request, check_seconds
from iriscw.proto.iriscw.v1 import CheckpointTaskRequest, FetchLogsRequest, JobState as Wire, TerminateJobRequest
from raised import that

WRONG = {
    "wait": (lambda client, job: job.wait("5"), "timeout_s", "'5'"),
    "result": (lambda client, job: job.result("5"), "timeout_s", "'5'"),
    "result of a flag": (lambda client, job: job.result(True), "timeout_s", "True"),
    "peers": (lambda client, job: job.peers(80), "port", "80"),
    "peers in time": (lambda client, job: job.peers("p", "5"), "timeout_s", "'5'"),
    "terminate": (lambda client, job: job.terminate(5), "reason", "5"),
    "exec": (lambda client, job: job.exec(["true"], timeout_s="5"), "timeout_s", "'5'"),
    "exec beside": (lambda client, job: job.exec(["true"], task="0"), "task", "'0'"),
    "logs of a task": (lambda client, job: anext(job.logs(task="0")), "task", "'0'"),
    "logs from the end": (lambda client, job: anext(job.logs(tail="9")), "tail", "'9'"),
    "logs that go on": (lambda client, job: anext(job.logs(follow=1)), "follow", "1"),
    "jobs": (lambda client, job: client.jobs(prefix=5), "prefix", "5"),
    "slices": (lambda client, job: client.slices(5), "scale_group", "5"),
    "reopen_pool": (lambda client, job: client.reopen_pool(5), "scale_group", "5"),
    "actors": (lambda client, job: client.actors(5), "under", "5"),
    "forget_node": (lambda client, job: client.forget_node(5), "node", "5"),
    "agent_token": (lambda client, job: client.agent_token(5), "node", "5"),
    "checkpoints": (lambda client, job: client.checkpoints(node=5), "node", "5"),
    "checkpoints selected": (lambda client, job: client.checkpoints(5), "selector", "5"),
    "checkpoints by label": (lambda client, job: client.checkpoints(labels={"a": 5}), "labels", "'a'"),
}


@pytest.mark.parametrize("call", WRONG)
async def test_an_argument_of_a_wrong_kind_is_named(client, controller, call):
    """Wherever it would be noticed: deep in an event loop, or in what writes messages."""
    controller.statuses = [job_of(Wire.SUCCEEDED)]
    made, name, value = WRONG[call]
    with pytest.raises(InvalidArgument, check=that(names=(name, value))):
        await made(client, await client.job("job-1"))


def test_what_may_be_passes():
    """None is no time, no number; whole numbers are numbers of seconds."""
    for seconds in (None, 0, 1.5, -1):
        check_seconds("timeout_s", seconds)
    for count in (None, 0, 7):
        check_count("task", count)
    check_request(TerminateJobRequest(reason="because"))
    check_request(FetchLogsRequest(task_index=None, tail_lines=3))
    check_request(CheckpointTaskRequest(labels={"a": "b"}))
    check_request(object())


@pytest.mark.parametrize("value", [True, 1.0, "1", -1])
def test_what_is_no_count_is_named(value):
    """A flag is no number, and a text is none."""
    with pytest.raises(InvalidArgument, check=that(names="task")):
        check_count("task", value)
