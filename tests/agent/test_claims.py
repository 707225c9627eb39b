"""Who may work on what: one operation for each tree of processes, whichever of them it names."""

import itertools
import os
import signal
import socket
import subprocess
import sys

import pytest

from iriscw.agent import claims
from iriscw.agent.claims import TargetBusy, claim, frozen_by_us, thawed_by_us
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.processes.reading import descendants
from raised import that

pytestmark = pytest.mark.usefixtures("claims_of_ours")

THREE_DEEP = """
import os, signal
for _ in range(2):
    if os.fork():
        break
else:
    os.write(1, b"up")
signal.pause()
"""


@pytest.fixture
def line():
    """A process, its child, and the child of that."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", THREE_DEEP], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout.read(2) == b"up"
    below = descendants(process.pid)
    yield identify_task(process.pid), *below
    for pid in (*(task.pid for task in below), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def names(line):
    """Return the names of their freezes."""
    return [frozen_by_us(task) for task in line]


def test_one_at_a_time(line):
    """The same target is claimed once, and again when it was given back."""
    for target in (names(line)[0], thawed_by_us("ck-1")):
        for _ in range(2):
            with claim(target), pytest.raises(TargetBusy), claim(target):
                pass


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(range(3), 2)])
def test_a_tree_is_claimed_with_all_that_is_above_and_below(line, first, second):
    """Whoever comes second is refused, and told whom the other one freezes; what it had claimed is free again."""
    targets = names(line)
    with (
        claim(targets[first]),
        pytest.raises(
            TargetBusy,
            check=that(comes_from="claims._refuse_relatives", names=(line[first].pid, line[second].pid)),
        ),
        claim(targets[second]),
    ):
        pass
    with claim(targets[second]):
        pass


def test_strangers_do_not_disturb_each_other(line):
    """Neither the thaw of something, nor the freeze of a tree beside it, nor a number that means another process."""
    me = identify_task(line[0].pid)
    with claim(frozen_by_us(line[2])), claim(thawed_by_us("ck-1")):
        for other in (frozen_by_us(me).replace(f"-{me.pid}-", f"-{1 << 22}-"), f"{frozen_by_us(me)}7"):
            with claim(other):
                pass


def test_names_that_are_none_of_ours_disturb_nobody(line):
    """Anybody may take a name that begins as ours do: what names no process is no claim of one."""
    boot = line[0].boot_id
    for text in ("", "x", f"{boot}-1", f"{boot}-x-1", f"{boot}-{line[1].pid}-{'9' * 30}", f"{boot}-{line[1].pid}-²"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind(f"\0{claims.PREFIX}freeze-{text}".encode())
            with claim(frozen_by_us(line[0])):
                pass
