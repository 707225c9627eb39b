"""The first process of a PID namespace that a tree is thawed into: a program of its own, and all it does is be there.

Theory of operation. Whoever starts it holds the other end of its standard input. It makes the two namespaces, says who
is the first process in them, and ends; that one mounts a ``/proc`` of its own and says that it is ready. From then on
its life is that of the namespace: when it ends, the kernel kills all that is in there.

* Until it hears that the tree is whole it ends as soon as the other end is closed. So whoever restores may die at any
  instant, and nothing of what CRIU had begun is left (INV-C6).
* From then on it belongs to the tree. It reaps who is left to it, and ends when nobody else is there. Should it fail,
  the tree would die of that: what it can open it has opened before, and what fails is tried again.

Who sees less of ``/proc`` outside, because something is mounted over parts of it, sees no more in there: a container
runtime hides the machine's memory and settings so.

It takes no signal but SIGKILL, as the kernel has it for the first process of a namespace, and hands none on.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

NAME: Final = "iriscw-first"
"""How it is named in ``/proc/<pid>/stat``: at most 15 bytes."""

FIRST: Final = b"first "
"""Said by who made the namespaces, with the number that the first process has outside."""
READY: Final = b"ready\n"
FAILED: Final = b"failed "
GO: Final = b"go"
"""What it hears when the tree is whole."""

CLONE_NEWNS: Final = 0x20000
CLONE_NEWPID: Final = 0x20000000
MS_NOSUID_NODEV_NOEXEC: Final = 0xE
MS_REC_SLAVE: Final = 0x4000 | 0x80000
MS_REC_BIND: Final = 0x4000 | 0x1000
PR_SET_NAME: Final = 15

CHANNEL: Final = 0
"""The descriptor of the other end."""

AGAIN_S: Final = 0.2
"""Until what failed is tried again: nobody is told when there is memory, or a descriptor, again."""

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
"""How ``mountinfo`` writes bytes that would end a field."""


def main() -> int:
    """Make the namespaces. ``sys.argv[1]`` is the number after which new ones are given in there."""
    after = int(sys.argv[1])
    try:
        _call("unshare", CLONE_NEWNS | CLONE_NEWPID)
        pid = os.fork()
    except OSError as error:
        _say(FAILED + f"{error.errno} {error.strerror}\n".encode())
        return 1
    if pid:
        _say(FIRST + b"%d\n" % pid)
        return 0
    os._exit(_be_first(after))


def _be_first(after: int) -> int:
    try:
        os.setsid()
        os.chdir("/")
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler: none means that it is not taken
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        _call("prctl", PR_SET_NAME, NAME.encode(), 0, 0, 0)
        nothing = os.open("/dev/null", os.O_RDWR)
        covers = {path: os.open(path, os.O_PATH) for path in covered(Path("/proc/self/mountinfo").read_bytes())}
        # What is mounted and unmounted outside is so in here, but not the other way round.
        _call("mount", None, b"/", None, MS_REC_SLAVE, None)
        _call("mount", b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(after), encoding="ascii")  # it may be covered next
        for path, descriptor in covers.items():
            _call("mount", b"/proc/self/fd/%d" % descriptor, path, None, MS_REC_BIND, None)
            os.close(descriptor)
    except OSError as error:
        _say(FAILED + f"{error.errno} {error.strerror}\n".encode())
        return 1
    _say(READY)
    if os.read(CHANNEL, len(GO)) != GO:
        return 1
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    outlive(_others)
    return 0


def covered(mountinfo: bytes) -> list[bytes]:
    """Return where something is mounted below ``/proc``, without what lies below another one of these.

    Places of processes are left out, because numbers are others in there; and places where something is mounted when
    somebody looks, because it is mounted outside then.
    """
    kinds: dict[bytes, bytes] = {}
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(b" - ")
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), fields.split()[4])
        if place.startswith(b"/proc/") and not place.split(b"/")[2].isdigit():
            kinds[place] = rest.split()[0]  # the last one is the uppermost
    found: list[bytes] = []
    for place, kind in sorted(kinds.items()):
        if kind != b"autofs" and not any(place.startswith(each + b"/") for each in found):
            found.append(place)
    return found


def outlive(others: Callable[[], bool]) -> None:
    """Stay as long as there are others. Whoever ended here for want of a descriptor would kill them."""
    while True:
        try:
            if not others():
                return
        except (OSError, MemoryError):
            if not anybody():
                return
            select.select((), (), (), AGAIN_S)


def anybody() -> bool:
    """Whether there is anybody in here, also one who has ended and was not reaped. That needs no descriptor."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _others() -> bool:
    """Wait while there are processes of ours; then for one that came from outside, as a CRIU does. Say if there was."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    names = os.listdir("/proc")  # noqa: PTH208  # they are all that is wanted
    return any(name.isdigit() and int(name) != os.getpid() and _wait_for(int(name)) for name in names)


def _wait_for(pid: int) -> bool:
    """Wait for the end of a process that is not ours; say whether it had not ended before."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(0):  # it has ended, and who started it has not reaped it: the kernel waits for that
            return False
        poll.poll()
    finally:
        os.close(descriptor)
    return True


def _say(text: bytes) -> None:
    try:
        os.write(CHANNEL, text)
    except OSError:  # nobody is there any more: reading tells the same
        return


def _call(name: str, *arguments: int | bytes | None) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    values = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    if function(*values):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main())
