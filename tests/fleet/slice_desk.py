"""How tests have a slice decide, and read what it said."""

from iriscw.fleet.model import PodState, WorkerInfo, worker_name
from iriscw.fleet.signals import PodReported, SliceBriefed
from iriscw.fleet.slices import rules as slice_rules
from iriscw.runtime.vocabulary import SECOND, Run, Tell

NAME = "iris-gpu-a"


def send(it, ctx, message):
    """Have a slice decide."""
    return slice_rules.RULES[type(message)](it, message, ctx) or ()


def runs(commands):
    """Return the effects that are asked for."""
    return [command.effect for command in commands if isinstance(command, Run)]


def told(commands, kind):
    """Return the messages of a kind that are told to anybody."""
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]


def brief(pool=None, uid="", doomed="", pods=()):
    """Return what a slice is told first."""
    return SliceBriefed(9000 * SECOND, uid, doomed, pool, pods, 30 * SECOND, 45 * SECOND)


def registered(it, index, incarnation="i1"):
    """Return the report of a worker that is there."""
    name = worker_name(NAME, index)
    config = it.seed.config
    info = WorkerInfo(name, incarnation, NAME, config.name, config.per_worker, config.attributes, "")
    return PodReported(name, PodState.REGISTERED, info, "", 0)
