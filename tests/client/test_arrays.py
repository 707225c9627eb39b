"""Array jobs: what travels, and what each task makes of it."""

import asyncio
import itertools
import threading
from pathlib import Path

import pytest

from iriscw import blocking
from iriscw._errors import InvalidArgument
from iriscw.client import arrays
from iriscw.client.arrays import map_name, mapped_call
from iriscw.client.errors import InvalidJob
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import AttemptFacts
from iriscw.task.mapping import TooManyItems
from iriscw.task.payload import NotPicklable, PayloadTooLarge, load_payload
from raised import that


class Point:
    """A class of the submitter's own: this module is a file that tasks do not have."""

    def __init__(self, x):
        self.x = x

    def padded(self):
        """Make the class long."""
        return [self.x] * 10 + [self.x - 1] * 10 + [self.x - 2] * 10


def shifted(point):
    """Is called in a task."""
    return point.x + 100


async def later(point):
    """A coroutine function is run to its end."""
    await asyncio.sleep(0)
    return point.x


def task(index):
    """Within it this is task ``index``."""
    return entered(TaskContext(AttemptFacts("j", f"j/{index}", "a", index, 3), Path("/nowhere")))


async def test_each_task_gets_its_own_item(client, controller):
    """One job and one payload, which a task can load by itself; what the caller defined is in it once."""
    job = await client.map(shifted, (Point(x) for x in range(300)), max_task_failures=2)
    (sent,) = controller.submitted
    assert (sent.replicas, sent.max_task_failures) == (300, 2)
    assert (job.name.partition("-")[0], sent.entrypoint.callable.display_name.split(".")[-1]) == ("shifted",) * 2
    payload = sent.entrypoint.callable.payload
    assert payload.count(b"padded") < 20
    call = load_payload(payload)
    for index in (0, 7, 299):
        with task(index):
            assert call() == index + 100
    assert [each.__name__ for each in call.function.shared] == ["Point"], "each task unpickles its own item alone"
    assert type(call.function.item(3)) is type(call.function.item(4)), "one class, however many items"
    await client.map(later, [Point(5)], name="other")
    with task(0):
        assert await asyncio.to_thread(load_payload(controller.submitted[1].entrypoint.callable.payload)) == 5
    assert controller.submitted[1].name == "other"


WRONG = [
    ((len, []), InvalidJob, that(names="items")),
    ((len, 5), InvalidJob, that(comes_from="arrays.mapped_call", names="5")),
    (("len", [1]), InvalidJob, that(comes_from="arrays.mapped_call", names="'len'")),
    ((lambda: 1, [1]), InvalidJob, that(comes_from="submission.check_call")),
    ((len, [1, [threading.Lock()], 2]), NotPicklable, that(comes_from="mapping._Packer.pack", names="1[0]")),
    ((len, itertools.repeat(b"x" * 1_000_000)), PayloadTooLarge, that(names=(4 << 20, 5))),
    ((map_name, itertools.count()), TooManyItems, that(names="1000")),
]


@pytest.mark.parametrize(("given", "kind", "check"), WRONG)
def test_what_is_refused(given, kind, check, monkeypatch):
    """Before anything travels; iterables without an end, too."""
    monkeypatch.setattr(arrays, "MAX_REPLICAS", 1000)
    with pytest.raises(kind, check=check):
        mapped_call(*given)


async def test_an_option_that_cannot_be(client):
    """A gang has no tasks to lose."""
    with pytest.raises(InvalidArgument, check=that(names="max_task_failures")):
        await client.submit(len, [1], name="n", max_task_failures=1, coscheduling="slice-id")


def test_names():
    """They can be a job's, whatever the function is called."""
    assert map_name(lambda x: x).startswith("lambda-")
    assert map_name(shifted) != map_name(shifted)


@pytest.mark.slow
def test_values_come_as_tasks_end():
    """Each once and with its index; one that is lost stands in its place; one task is waited for by itself."""

    def work(number):
        if number == 1:
            raise ValueError("one is too few")
        return number * 10

    with blocking.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        job = cluster.client.map(work, [0, 1, 2], resources=None, max_task_failures=1)
        assert job.result(task=2) == 20
        came = dict(job.results())
        lost = came.pop(1)
        assert (came, lost.task_index, lost.state) == ({0: 0, 2: 20}, 1, "FAILED")
        assert "too few" in str(lost)
        assert job.result()[::2] == [0, 20]
        with pytest.raises(type(lost), check=that(names="ValueError")):
            job.result(task=1)
        assert job.status().reason == "1 of 3 tasks failed; task 1: ValueError: one is too few"
