"""The order of placement: whose turn is next when jobs come, end, are blocked and come back."""

from __future__ import annotations

from jobs_world import GIB, command_spec, worker_info

from iriscw.cloud.model import Capacity, Constraint, Op
from iriscw.jobs.model import Band
from iriscw.jobs.scheduling.placement import Inventory
from iriscw.jobs.scheduling.queues import Queues, Waiting

BIG = Capacity(2000, GIB)


def wait(queues, name, replicas=3, ranges=None, **fields):
    """Have a job's tasks wait."""
    job = Waiting(name, 0, command_spec(name, replicas=replicas, **fields))
    queues.add(job, ranges or ((0, replicas),))
    return job


def take(queues, number=1):
    """Place the next."""
    shape = queues.head()
    name = shape.jobs[0].job_id
    return (name, *queues.take(shape, number))


def usable(number, **fields):
    """Return an inventory with a worker that may be used, and that one."""
    inventory = Inventory()
    host = inventory.add(worker_info(number, **fields))
    host.linked = True
    return inventory, host


def test_bands_then_rounds():
    """Bands in order; within one each job has one task per round, in the order of submission, whatever its shape."""
    queues = Queues()
    wait(queues, "late", 1, band=Band.BATCH)
    wait(queues, "a", 3)
    wait(queues, "big", 2, demand=BIG)
    wait(queues, "b", 2)
    wait(queues, "first", 1, band=Band.PRODUCTION)
    assert [take(queues) for _ in range(9)] == [
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


def test_a_turn_is_one_task_of_each_job():
    """A job that ends in the middle of a turn gives its place to nobody: the next shape is not late for it."""
    queues = Queues()
    wait(queues, "a", 2)
    wait(queues, "b", 1)
    wait(queues, "c", 2)
    wait(queues, "big", 3, demand=BIG)
    order = [take(queues)[0] for _ in range(8)]
    assert order == ["a", "b", "c", "big", "a", "c", "big", "big"]


def test_a_job_that_is_dropped_in_its_turn_ends_it():
    """The others of its shape go on, and so does the next shape."""
    queues = Queues()
    first, _ = wait(queues, "a"), wait(queues, "b")
    wait(queues, "big", demand=BIG)
    assert take(queues) == ("a", 0)
    queues.drop(first)
    assert [take(queues) for _ in range(3)] == [("b", 0), ("big", 0), ("b", 1)]


def test_ranges_are_taken_in_order():
    """Each index once; what is added comes behind, and a range without tasks adds none."""
    queues = Queues()
    job = wait(queues, "a", ranges=((0, 1), (4, 6)))
    queues.add(job, ((9, 10),))
    queues.add(job, ())
    none = Waiting("b", 0, command_spec())
    queues.add(none, ((2, 2),))
    assert (len(queues.shapes), none.shape) == (1, None)
    assert job.count == 4
    assert [take(queues)[1] for _ in range(4)] == [0, 4, 5, 9]
    assert (queues.head(), job.count, job.shape, job.ranges) == (None, 0, None, type(job.ranges)())


def test_a_gang_is_taken_whole():
    """Each waits for itself, and leaves with its last."""
    queues = Queues()
    wait(queues, "a", group_by="slice-id")
    wait(queues, "b", group_by="slice-id")
    assert len(queues.shapes) == 2
    assert [take(queues, 3), take(queues, 3)] == [("a", 0, 1, 2), ("b", 0, 1, 2)]
    assert queues.shapes == {}


def test_blocked_shapes_stay_out_until_woken():
    """A blocked shape costs no turn; a worker with room for it, and no other, wakes it."""
    queues, inventory = Queues(), Inventory()
    wait(queues, "small", 1)
    wait(queues, "big", 1, demand=Capacity(4000, GIB))
    for _ in range(2):
        queues.block(queues.head(), 0)
    assert queues.head() is None
    host = inventory.add(worker_info(0, cpus=2))
    assert not queues.wake(host, inventory)
    host.linked = True
    assert queues.wake(host, inventory)
    assert queues.head().jobs[0].job_id == "small"
    assert [shape.jobs[0].job_id for shape in queues.blocked.values()] == ["big"]


def test_a_blocked_shape_begins_its_turn_anew():
    """When it comes back it stands behind the others of its band, with one task of each of its jobs."""
    queues = Queues()
    wait(queues, "a", 2)
    wait(queues, "b", 2)
    assert take(queues) == ("a", 0)
    queues.block(queues.head(), 0)
    wait(queues, "big", 2, demand=BIG)
    inventory, host = usable(0)
    queues.wake(host, inventory)
    assert [take(queues)[0] for _ in range(5)] == ["big", "b", "a", "big", "b"]


def test_bands_keep_their_own_rings():
    """A shape that comes back comes back into its band."""
    queues = Queues()
    wait(queues, "late", 1, band=Band.BATCH)
    wait(queues, "first", 1, band=Band.PRODUCTION)
    queues.block(queues.head(), 0)
    assert queues.head().jobs[0].job_id == "late"
    inventory, host = usable(0)
    assert queues.wake(host, inventory)
    assert queues.head().jobs[0].job_id == "first"
    assert (queues.blocked, queues.head().blocked) == ({}, False)


def test_a_blocked_shape_counts_what_is_added_to_it():
    """It stays out all the same."""
    queues = Queues()
    wait(queues, "a", 2)
    shape = queues.head()
    queues.block(shape, 0)
    wait(queues, "b", 3)
    assert (shape.count, len(shape.jobs), queues.head()) == (5, 2, None)


def test_dropped_jobs_leave_nothing():
    """Counts and shapes go with the job, blocked or not."""
    queues = Queues()
    job, other = wait(queues, "a", 3), wait(queues, "b", 3)
    queues.drop(job)
    (shape,) = queues.shapes.values()
    assert (shape.count, job.count) == (3, 0)
    queues.block(shape, 0)
    queues.drop(other)
    assert not queues.shapes
    assert not queues.blocked
    queues.drop(other)


def test_pools_are_looked_up_anew_when_there_are_others():
    """A shape knows which pools may take it; a worker of a new kind, or the last of one that goes, changes that."""
    queues, inventory = Queues(), Inventory()
    wait(queues, "a", constraints=(Constraint("zone", Op.EQ, ("b",)),))
    shape = queues.head()
    assert shape.candidates(inventory) == []
    host = inventory.add(worker_info(0, zone="b"))
    assert shape.candidates(inventory) == [host.pool]
    inventory.add(worker_info(1, zone="a"))
    assert shape.candidates(inventory) == [host.pool]
    inventory.drop(host)
    assert shape.candidates(inventory) == []
    assert [pool.attributes.get("zone") for pool in inventory.pools.values()] == ["a"]
    again = inventory.add(worker_info(0, zone="b"))
    assert shape.candidates(inventory) == [again.pool]
