"""The order of placement."""

from jobs_world import GIB, command_spec, worker_info

from iriscw.cloud.model import Capacity
from iriscw.jobs.model import Band
from iriscw.jobs.scheduling.placement import Inventory
from iriscw.jobs.scheduling.queues import Queues, Waiting


def wait(queues, name, replicas=3, **fields):
    """Have a job's tasks wait."""
    job = Waiting(name, 0, command_spec(name, replicas=replicas, **fields))
    queues.add(job, ((0, replicas),))
    return job


def drain(queues):
    """Place all, one by one; give job and index in order."""
    order = []
    while (shape := queues.head()) is not None:
        name = shape.jobs[0].job_id
        order.append((name, *queues.take(shape, 1)))
    return order


def test_bands_then_rounds():
    """Bands in order; within one each job has one task per round, in the order of submission, whatever its shape."""
    queues = Queues()
    wait(queues, "late", 1, band=Band.BATCH)
    wait(queues, "a", 3)
    wait(queues, "big", 2, demand=Capacity(2000, GIB))
    wait(queues, "b", 2)
    wait(queues, "first", 1, band=Band.PRODUCTION)
    assert drain(queues) == [
        ("first", 0),
        ("a", 0),
        ("b", 0),
        ("big", 0),
        ("a", 1),
        ("b", 1),
        ("big", 1),
        ("a", 2),
        ("late", 0),
    ]
    assert queues.shapes == {}


def test_blocked_shapes_stay_out_until_woken():
    """A blocked shape costs no turn; a worker with room for it, and no other, wakes it."""
    queues, inventory = Queues(), Inventory()
    wait(queues, "small", 1)
    wait(queues, "big", 1, demand=Capacity(4000, GIB))
    for _ in range(2):
        queues.block(queues.head())
    assert queues.head() is None
    host = inventory.add(worker_info(0, cpus=2))
    assert not queues.wake(host, inventory)
    host.linked = True
    assert queues.wake(host, inventory)
    assert queues.head().jobs[0].job_id == "small"
    assert [shape.jobs[0].job_id for shape in queues.blocked.values()] == ["big"]


def test_dropped_jobs_leave_nothing():
    """Counts and shapes go with the job, blocked or not."""
    queues = Queues()
    job, other = wait(queues, "a", 3), wait(queues, "b", 3)
    queues.drop(job)
    (shape,) = queues.shapes.values()
    assert (shape.count, job.count) == (3, 0)
    queues.block(shape)
    queues.drop(other)
    assert not queues.shapes
    assert not queues.blocked
    queues.drop(other)


def test_gangs_do_not_share_shapes():
    """Each gang waits for itself."""
    queues = Queues()
    wait(queues, "a", group_by="slice-id")
    wait(queues, "b", group_by="slice-id")
    assert len(queues.shapes) == 2
