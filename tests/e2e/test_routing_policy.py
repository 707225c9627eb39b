"""A routing policy on a cluster of this machine: where demand goes, and what people are told."""

import pytest

from iriscw import Command, Resources, TaskState, blocking
from iriscw.config.load import build_config
from waiting import block_until

pytestmark = pytest.mark.slow

SECOND = 10**9
GROUP = {"resources": {"cpu": 1, "ram": "1GiB"}}


def small_ones_spill_over(view):
    """All that needs a whole machine stays in the cheap group; the rest may go to the dear one after a second."""
    spills = view.each.cpu_milli < 1000 and view.waited >= SECOND
    return view.groups if spills else [each for each in view.groups if each.attributes.get("price") == "1"]


@pytest.fixture
def cluster(tmp_path):
    """A cluster of two groups of one machine each."""
    config = build_config(
        {
            "platform": {"local": {"workdir": str(tmp_path), "boot_delay": "0s"}},
            "controller": {"local": {"port": 0}},
            "scale_groups": {
                "cheap": {**GROUP, "priority": 1, "attributes": {"price": "1"}, "quota_pool": "ours"},
                "dear": {**GROUP, "attributes": {"price": "3"}, "quota_pool": "ours"},
            },
        }
    )
    with blocking.Cluster.open(config, routing=small_ones_spill_over) as cluster:
        yield cluster


def submitted(client, name, cpu):
    """Submit a job of one task that goes on for longer than the test."""
    return client.submit(Command(["sleep", "600"]), name=name, resources=Resources(cpu=cpu, memory="256MiB"))


def group_of(job):
    """Wait until the task of a job runs: in which group?"""
    for status in job.watch():
        if status.tasks.get(TaskState.RUNNING):
            break
    (task,) = job.tasks()
    return task.worker_id.split("-")[1]


def test_demand_goes_where_the_policy_says(cluster):
    """One job has the cheap group, a small one spills over, a big one waits; each group says why."""
    client = cluster.client
    assert group_of(submitted(client, "first", 1)) == "cheap"
    assert group_of(submitted(client, "small", 0.5)) == "dear"
    big = submitted(client, "big", 1)
    block_until(lambda: [each.demand_count for each in client.pools()] == [1, 1])
    cheap, dear = client.pools()
    (here,), (there,) = cheap.demand, dear.demand
    assert (here.tasks, here.takes, here.each.cpu_milli) == (1, 0, 1000)
    assert (cheap.routed_tasks, cheap.quota_pool, cheap.quota_used_up_by) == (0, "ours", "")
    assert here.job_ids == (big.id,)
    assert here.why == "at max_slices (it has 1 of at most 1 slices)"
    assert (there.demand_id, there.why) == (here.demand_id, "the routing policy leaves it out now")
    assert [(each.scale_group, each.why) for each in there.before] == [("cheap", here.why)]
    assert "the routing policy leaves out 'dear'" in big.tasks()[0].reason
