"""A job of one task that is frozen and thawed: jobs, links and scheduler with scripted workers and agents."""

from jobs_world import World, command_spec, worker_info

from iriscw.fleet.messages import WorkerLost
from iriscw.jobs.messages import DescribeJob, ListJobs, ListTasks
from iriscw.jobs.model import Observation, Suspension, TaskState
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt, Frozen, ThawAttempt, Thawed
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask

RUNS = Observation("", TaskState.RUNNING, started=True)


def runs(order):
    """Run for ever."""
    return [(0.1, RUNS)]


class Bench:
    """A world with one job of one task that runs, and what is asked of those who freeze and thaw."""

    def __init__(self, workers=2, script=runs, **spec):
        self.world = World(script=script)
        self.sim = self.world.sim
        self.world.add(*(worker_info(number, cpus=1) for number in range(workers)))
        self.job = self.world.submit(command_spec(**spec))
        self.sim.advance(1)

    def ask(self, message):
        """Ask the job."""
        return self.sim.ask(f"/jobs/{self.job}", message)

    @property
    def row(self):
        """What is shown of the task."""
        return self.ask(ListTasks()).rows[0]

    def suspended(self):
        """Return how many tasks are, as the job says it and as the listing does, a second late at most."""
        self.sim.advance(1)
        (row,) = self.sim.ask("/jobs", ListJobs()).rows
        return self.ask(DescribeJob()).suspended, row.tally.suspended

    @property
    def phase(self):
        """Where its attempt stands."""
        return self.row.suspension.phase

    def effect(self, kind):
        """Take the one effect of a kind that waits."""
        self.sim.advance(1)
        (operation,) = [each for each in self.world.freezes if isinstance(each.effect, kind) and not each.ended]
        self.world.freezes.remove(operation)
        return operation

    def freeze(self, outcome=Frozen.FROZEN):
        """Answer the freeze."""
        operation = self.effect(FreezeAttempt)
        operation.complete(self.world.bodies.freeze(operation.effect, outcome))
        self.sim.advance(1)
        return operation.effect

    def thaw(self, outcome=Thawed.THAWED):
        """Answer the thaw."""
        operation = self.effect(ThawAttempt)
        operation.complete(self.world.bodies.thaw(operation.effect, outcome))
        self.sim.advance(1)
        return operation.effect

    def drop(self):
        """Answer the removal of a checkpoint."""
        operation = self.effect(DropCheckpoint)
        self.world.bodies.drop(operation.effect)
        operation.complete()
        self.sim.advance(1)
        return operation.effect

    def suspend(self, key="s"):
        """Have it suspended, to the end."""
        self.ask(SuspendTask(0, key))
        self.freeze()
        assert self.phase is Suspension.SUSPENDED

    def resume(self, key="r"):
        """Have it resumed, to the end."""
        self.ask(ResumeTask(0, key))
        self.thaw()
        assert self.phase is Suspension.NONE

    def lose(self, worker_id, *, fenced=True):
        """Lose a worker with all its processes."""
        worker = self.world.workers.pop(worker_id)
        worker.hang_up()
        self.sim.tell("/jobs/scheduler", WorkerLost(worker_id, worker.info.incarnation, "gone", fenced))
        self.sim.advance(1)

    def room(self):
        """Return how much is taken."""
        return len(self.sim.state("/jobs/scheduler").inventory.where)
