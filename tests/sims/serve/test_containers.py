"""Simulated containers end as their command says, if it can be foreseen, and once."""

import pytest

from iriscw_sims.serve.containers import Ending, ScriptedContainers, ending_of
from iriscw_sims.serve.surroundings import LiveSurroundings
from iriscw_sims.serve.timeline import Clock, Timeline

SECOND = 1_000_000_000


def pod(*argv, uid="u", args=()):
    """Return a pod with a command."""
    container = {"name": "main", "image": "x", "command": [*argv], "args": [*args]}
    return {"metadata": {"name": "p", "uid": uid}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("argv", "ending"),
    [
        (("sleep", "30"), Ending(30 * SECOND, 0)),
        (("sleep", "1.5m"), Ending(90 * SECOND, 0)),
        (("true",), Ending(0, 0)),
        (("false",), Ending(0, 1)),
        (("sh", "-c", "sleep 5; exit 3"), Ending(5 * SECOND, 3)),
        (("/bin/bash", "-c", "echo 'a b' && sleep 2s && false"), Ending(2 * SECOND, 1)),
        (("sh", "-c", "false; exit"), Ending(0, 1)),
        (("python", "train.py"), None),
        (("sh", "-c", "sleep 5; python train.py"), None),
        (("sh", "-c", "echo 'unbalanced"), None),
        (("sleep", "infinity"), None),
        (("sleep", "-5"), None),
        ((), None),
    ],
)
def test_commands_that_can_be_foreseen(argv, ending):
    """Sleeps, exits and lines of them; everything else runs on."""
    assert ending_of(pod(*argv)) == ending


def test_arguments_belong_to_the_command():
    """As a container runtime puts them together."""
    assert ending_of(pod("sleep", args=["4"])) == Ending(4 * SECOND, 0)


class World:
    """Containers, and a clock that is always far ahead."""

    def __init__(self):
        self.timeline = Timeline(Clock(0, iter(range(0, 10**15, 10**12)).__next__, 1))
        self.containers = ScriptedContainers(LiveSurroundings(self.timeline, 1))
        self.ends = []
        self.containers.exited = lambda *end: self.ends.append(end)

    def run(self):
        """Let everything happen."""
        while self.timeline.waiting:
            timer = self.timeline.take()
            if timer is not None:
                timer.run()


def test_an_end_is_told_once():
    """With exit code and reason."""
    world = World()
    world.containers.started(pod("sh", "-c", "exit 3"), "n")
    assert world.containers.running == 1
    world.run()
    assert world.ends == [("u", 3, "Error")]
    assert world.containers.running == 0


def test_a_container_that_was_killed_does_not_end_again():
    """Nor does the timer of an earlier start end a later one."""
    world = World()
    world.containers.started(pod("sleep", "5"), "n")
    world.containers.killed("u", "deleted")
    world.containers.started(pod("sleep", "9000"), "n")
    world.containers.started(pod("serve", uid="v"), "n")
    world.run()
    assert world.ends == [("u", 0, "Completed")]
    assert world.containers.running == 1
