"""How tests have a worker's place decide, and read what it said."""

from iriscw.fleet import pods
from iriscw.fleet.messages import WorkerLost
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import PodBriefed, PodReported
from iriscw.runtime.vocabulary import CancelTimer, Completed, Run, SetTimer, Tell

WORKER = "iris-gpu-a-0"


def send(place, ctx, message):
    """Have a place decide."""
    return pods.RULES[type(message)](place, message, ctx) or ()


def runs(commands):
    """Return the effects that are asked for."""
    return [command.effect for command in commands if isinstance(command, Run)]


def timers(commands):
    """Return the clocks that are started, by key."""
    return {command.key: command for command in commands if isinstance(command, SetTimer)}


def stopped(commands):
    """Return the keys of the clocks that are stopped."""
    return [command.key for command in commands if isinstance(command, CancelTimer)]


def told(commands, kind):
    """Return the messages of a kind that are told to anybody."""
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]


def losses(commands):
    """Return the workers that are called lost."""
    return told(commands, WorkerLost)


def reports(commands):
    """Return what the slice is told of the place."""
    return told(commands, PodReported)


def start(place, ctx, pod):
    """Have a fresh place's pod exist; its worker has not dialled."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Completed("pod", create, pod(place.incarnation)))
    assert place.state is PodState.STARTING
    return place
