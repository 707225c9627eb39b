"""What tasks say of themselves, from their processes to those who watch their job."""

import time

import pytest

import iriscw
from iriscw import blocking


@pytest.mark.slow
def test_it_is_seen_by_who_watches(tmp_path):
    """A word of each attempt is; that of one that failed is not its successor's."""

    def work(_):
        task = iriscw.context()
        iriscw.progress(1, 4, f"task {task.index} attempt {task.attempt}")
        if task.index == 1 and task.attempt == 0:
            while not seen.exists():
                time.sleep(0.02)
            raise RuntimeError("not this time")
        iriscw.progress(2, 4, f"task {task.index} attempt {task.attempt}")
        while True:
            time.sleep(1.0)

    seen = tmp_path / "seen"
    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        small = iriscw.Resources(cpu=0.2, memory="64MiB")
        job = cluster.client.map(work, range(2), resources=small, max_retries_failure=1)
        for status in job.watch():
            tasks = [each.progress for each in job.tasks()]
            if tasks[1] is not None and tasks[1].text == "task 1 attempt 0":
                assert status.progress is not None
                seen.touch()
            if tasks == [iriscw.ProgressStatus(2, 4, f"task {index} attempt {index}") for index in range(2)]:
                break
        assert seen.exists()
        assert job.status().progress == iriscw.ProgressStatus(4.0, 8.0, tasks[1].text)
        (listed,) = cluster.client.jobs()
        assert listed.seen.progress == job.status().progress
        job.terminate()
        assert job.wait().progress is None
