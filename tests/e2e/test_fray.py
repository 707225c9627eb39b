"""The facade with fray's names, on a cluster of this machine."""

from pathlib import Path

import pytest

from iriscw import Resources, blocking, context
from iriscw.errors import ActorOver
from iriscw.fray import FrayIrisClient, IrisActorHandle, iris_ctx

SMALL = Resources(cpu=0.1, memory="64MiB")
PATIENCE_S = 60.0


class Counter:
    """What is hosted."""

    def __init__(self, count=0):
        self.count = count

    def add(self, more):
        self.count += more
        return self.count

    def add_twice(self, other, more):
        """Call another actor, in both ways."""
        return other.add(more), other.add.remote(more).result(timeout=PATIENCE_S)

    def of_a_child(self, more):
        """Create an actor, call it, and return it with the ids of this job and of its job's parent."""
        with FrayIrisClient() as client:
            child = client.create_actor(Counter, name="child", resources=SMALL)
            return child.add(more), child, context().job_id, client.iris.job(child.job_id).status().parent_job_id

    def found(self, name):
        """Call another actor of this namespace, by its name, in each way that there is."""
        task = iris_ctx()
        resolvers = task.resolver, task.client.resolver_for_job(task.job_id)
        handles = IrisActorHandle(name), IrisActorHandle(name, job_id=task.job_id)
        return [each.resolve(name).add(0) for each in resolvers] + [each.add(0) for each in handles]

    def read(self, name):
        return Path(name).read_text()


@pytest.mark.slow
def test_actors_call_and_create_each_other(tmp_path):
    """By handles that were sent to them, and with the controller that their tasks know."""
    (tmp_path / "file").write_text("words")
    with (
        blocking.Cluster.local(nodes=2, boot_delay=0.0) as cluster,
        FrayIrisClient(f"http://{cluster.address}/", workspace=tmp_path) as client,
    ):
        one = client.create_actor(Counter, 5, name="one", resources=SMALL)
        group = client.create_actor_group(Counter, name="more", count=2, resources=SMALL)
        two, three = group.wait_ready(timeout=PATIENCE_S)
        assert two.add_twice(one, 2) == (7, 9)
        assert one.read("file") == "words"
        value, child, job, parent = three.of_a_child(3)
        assert (value, job) == (3, parent)
        assert child.add(1) == 4
        assert three.found("child-0") == [4] * 4
        assert {each.name for each in client.iris.jobs()} == {"one-0", "more-0", "more-1", "child-0"}
        group.shutdown()
        with pytest.raises(ActorOver):
            two.add(1)
        huge = client.create_actor_group(Counter, name="huge", count=1, resources=Resources(cpu=64))
        with pytest.raises(TimeoutError):
            huge.wait_ready(timeout=0.0)
