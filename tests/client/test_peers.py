"""Where the replicas of a job are reached, told by a scripted controller: differences, breaks, ends."""

import pytest
from controller_double import Break

from iriscw.client.errors import PeerOver, WaitTimeout
from iriscw.client.model import PeerAddress
from iriscw.proto.iriscw.v1 import Endpoint, EndpointsUpdate
from iriscw.task.context import NoSuchPort
from raised import that


def update(*indexes, host="h", num_tasks=3, **more):
    """Say that these replicas are reached at ``host`` and their index, and what else is new."""
    endpoints = [
        Endpoint(task_index=index, attempt_uid=f"a{index}", host=f"{host}{index}", ports={"web": 100 + index})
        for index in indexes
    ]
    return EndpointsUpdate(endpoints=endpoints, num_tasks=num_tasks, **more)


ALL = tuple(PeerAddress(f"h{index}", 100 + index) for index in range(3))


async def test_peers_are_waited_for(client, controller):
    """They are given by index, once all are there at the same time."""
    controller.endpoints = [update(0, 2), update(gone=[2]), update(1), update(2)]
    job = await client.job("job-1")
    assert await job.peers("web") == ALL
    assert controller.asked[-1].follow
    assert [str(each) for each in (*ALL[:1], PeerAddress("fd00::1", 9))] == ["h0:100", "[fd00::1]:9"]


async def test_after_a_break_all_is_new(client, controller):
    """What was known before the stream broke is forgotten: the replica may be gone by now."""
    controller.endpoints = [update(0, 1), Break(), update(2), update(0, 1)]
    job = await client.job("job-1")
    assert await job.peers("web") == ALL
    controller.endpoints = [update(0, 1), Break(), update(2)]
    with pytest.raises(WaitTimeout, check=that(comes_from="job.Job.peers", names="job-1")):
        await job.peers("web", timeout_s=0.2)


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        ([update(0, 1), update(over=[2])], PeerOver, that(comes_from="peers.addresses", names=("2", "job-1"))),
        ([update(0)], NoSuchPort, that(comes_from="peers.addresses", names=("grpc", "web"))),
    ],
)
async def test_what_never_comes_is_not_waited_for(client, controller, told, error, words):
    """A replica that is over will never be reached again, and a port that nobody asked for is none."""
    controller.endpoints = told
    job = await client.job("job-1")
    with pytest.raises(error, check=words):
        await job.peers("grpc" if error is NoSuchPort else "web")


async def test_endpoints_are_those_of_now(client, controller):
    """A listing is whole, whatever number of messages it takes, and in order."""
    controller.endpoints = [update(2, more=True), update(0)]
    job = await client.job("job-1")
    found = await job.endpoints()
    assert [(each.index, each.attempt_uid, each.host, each.ports) for each in found] == [
        (0, "a0", "h0", {"web": 100}),
        (2, "a2", "h2", {"web": 102}),
    ]
    assert not controller.asked[-1].follow
