"""The facade for scripts, on a real cluster."""

import anyio.to_thread
import pytest

from iriscw import blocking
from iriscw.client.errors import ClientClosed, NotConnected
from iriscw.client.submission import Command
from iriscw.cluster import Cluster, ClusterNotRunning, check_thread
from iriscw.jobs.model import JobState
from iriscw.resources import Resources
from iriscw.rpc.errors import WrongLoop
from raised import that

SMALL = Resources(cpu="250m", memory="64MiB")


def add(left, right):
    """Something to run."""
    return left + right


def test_a_script_needs_no_loop():
    """Submitting, following, waiting and listing work without an event loop."""
    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        job = cluster.client.submit(add, 40, name="sum", right=2, resources=SMALL)
        assert job.result() == [42]
        with blocking.connect(cluster.address, cluster.admin_token) as client:
            said = client.submit(Command(["echo", "hello"]), name="say", resources=SMALL)
            assert [str(line) for line in said.logs(follow=True)] == ["hello"]
            assert said.wait(timeout_s=60).state is JobState.SUCCEEDED
            assert [status.state for status in said.watch()] == [JobState.SUCCEEDED]
            assert {each.name for each in client.jobs()} == {"sum", "say"}
            assert client.job(said.id).tasks()[0].attempts[0].exit_code == 0
            assert [each.scale_group for each in client.pools()] == ["local"]
            assert len(client.slices()) == client.status().slices == 1
    with pytest.raises(ClusterNotRunning):
        _ = cluster.client


@pytest.mark.slow
def test_a_reader_may_stop_early():
    """Leaving the loop over a log closes the stream; the block ends at once."""
    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        job = cluster.client.submit(Command(["sh", "-c", "echo a; echo b; exec sleep 1000"]), name="n", resources=SMALL)
        for line in job.logs(follow=True):
            assert str(line) == "a"
            break
        assert job.exec(["sh", "-c", "echo b; exit 3"]).exit_code == 3
        assert job.terminate().name == "n"


@pytest.mark.slow
def test_after_the_block_everything_says_so():
    """Client, job and a reader that was left open are no use after the block, and say so by name."""
    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        client = cluster.client
        job = client.submit(Command(["echo", "a"]), name="n", resources=SMALL)
        lines = job.logs(follow=True)
        assert str(next(lines)) == "a"
    for call in (client.status, client.jobs, job.status, job.result, lambda: next(lines), lambda: next(job.watch())):
        with pytest.raises(ClientClosed, check=that(comes_from="loops.ClientLoop.call")):
            call()
    lines.close()


def test_connect_is_a_block():
    """Who forgets the block is told of it."""
    with pytest.raises(NotConnected, check=that(comes_from="blocking.Connecting.__getattr__", names="submit")):
        blocking.connect("127.0.0.1:1", "t" * 32).submit(add, name="x")


async def test_the_thread_of_a_cluster_cannot_wait_for_it():
    """It would hold up the controller that it waits for. Another thread may, and this one once the cluster is gone."""

    def listed():
        with blocking.connect(cluster.address, cluster.admin_token) as client:
            return client.jobs()

    async with Cluster.local(nodes=1) as cluster:
        with pytest.raises(WrongLoop, check=that(names="asyncio.to_thread")):
            listed()
        assert await anyio.to_thread.run_sync(listed) == []
        address = cluster.address
    check_thread(address)
