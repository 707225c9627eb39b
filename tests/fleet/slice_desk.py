"""How tests have a slice decide, and read what it said."""

from iriscw.fleet.model import PodState, WorkerInfo, worker_name
from iriscw.fleet.signals import PodReported, SliceBriefed
from iriscw.fleet.slices import rules as slice_rules
from iriscw.runtime.vocabulary import SECOND, CancelTimer, Run, SetTimer, Tell

NAME = "iris-gpu-a"
FIRST, OTHER = worker_name(NAME, 0), worker_name(NAME, 1)


def send(it, ctx, message):
    """Have a slice decide."""
    return slice_rules.RULES[type(message)](it, message, ctx) or ()


def runs(commands):
    """Return the effects that are asked for."""
    return [command.effect for command in commands if isinstance(command, Run)]


def told(commands, kind):
    """Return the messages of a kind that are told to anybody."""
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]


def timers(commands):
    """Return the clocks that are started, by key."""
    return {command.key: command for command in commands if isinstance(command, SetTimer)}


def stopped(commands):
    """Return the keys of the clocks that are stopped."""
    return [command.key for command in commands if isinstance(command, CancelTimer)]


def brief(pool=None, uid="", doomed="", pods=()):
    """Return what a slice is told first."""
    return SliceBriefed(9000 * SECOND, uid, doomed, pool, pods, 30 * SECOND, 45 * SECOND)


def registered(it, index, incarnation="i1"):
    """Return the report of a worker that is there."""
    name = worker_name(NAME, index)
    config = it.seed.config
    info = WorkerInfo(name, incarnation, NAME, config.name, config.per_worker, config.attributes, "")
    return PodReported(name, PodState.REGISTERED, info, "", 0)


def unregistered(index, state=PodState.STARTING, failures=0):
    """Return the report of a worker that is not."""
    return PodReported(worker_name(NAME, index), state, None, "pulling its image", failures)


def whole(it, ctx, pool):
    """Have a slice of two workers be ready."""
    for message in (brief(pool(nodes=2)), registered(it, 0), registered(it, 1)):
        send(it, ctx, message)
    assert it.state.value == "ready"
    return it
