"""The command line in a process that is killed, or kills its CRIU, at an instant that its order names.

usage: crash_launcher.py ORDER ARGUMENTS...

ORDER is JSON: ``memory`` is the folder of the tier "ram", ``library`` a stand-in for NVIDIA's driver or empty, ``said``
a file that takes what was done. ``at`` is the instant, or null: ``phase`` is a phase of a freeze or a thaw whose record
is on the disk, or ``taken up`` for a journal that was opened and owes something; ``by`` says what is counted from then
on, ``count`` how many of these there are, ``share`` which part of the bytes; ``victim`` is ``self`` or ``criu``. If the
next phase comes before the instant does, it is now.

Everything is reached by what happens in this process: a record that was committed, a turn of the event loop, a change
of a file or a folder, a signal that was sent, bytes that were read, a file that grew. Nothing waits for a time.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import signal
import struct
import sys
import threading
from collections import deque
from pathlib import Path

from iriscw.agent import machine
from iriscw.checkpoint.drivers import tiers
from iriscw.cli import main
from iriscw.freeze.drivers.cuda.driver import LibraryInterface, NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.records import (
    FreezeAccepted,
    FreezeBegan,
    FreezeEnded,
    FreezeHoused,
    FreezeMeasured,
    FreezeUndoing,
    ThawAccepted,
    ThawEnded,
    ThawEnding,
    ThawLetGo,
    ThawOpened,
    ThawRestored,
    ThawRestoring,
)
from iriscw.journal.sqlite import SqliteJournal
from iriscw.processes.identity import ProcessGone, decode_identity, send_signal

PHASES = {
    FreezeAccepted: "looking",
    FreezeMeasured: "reserving",
    FreezeUndoing: "undoing",
    FreezeEnded: "over",
    ThawAccepted: "opening",
    ThawOpened: "verifying",
    ThawRestoring: "restoring",
    ThawRestored: "starting",
    ThawLetGo: "leaving",
    ThawEnding: "killing",
    ThawEnded: "over",
}
TAKEN_UP = "taken up"
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
IN_MODIFY, IN_CREATE = 0x2, 0x100
LOG_BYTES_OF_A_PROCESS = 60_000
"""What CRIU writes to its log of a restore, about: there is nothing else that grows."""


class Strike:
    """Waits for the instant, and strikes once."""

    def __init__(self, order):
        self.at, self.said, self.memory = order["at"], order["said"], Path(order["memory"])
        self.state = Path(order["state"])
        self.armed = self.struck = False
        self.count = 0
        self.lock = threading.Lock()
        self.room = self.request = None
        self.reserved_bytes = 0

    def say(self, text):
        """Write down what was done, before it is."""
        with open(self.said, "a", encoding="utf-8") as file:  # noqa: PTH123 - no new path: this may be the last breath
            file.write(f"{text}\n")

    def strike(self, why):
        """Kill whom the order names. Of all threads that come here one does it."""
        with self.lock:
            if self.struck:
                return
            self.struck = True
            if self.at["victim"] == "self":
                self.say(f"killed itself: {why}")
                os.kill(os.getpid(), signal.SIGKILL)
            self.say(f"killed {self.kill_criu() or 'nobody, there is no CRIU'}: {why}")

    def kill_criu(self):
        """Kill each CRIU of an operation here that lives; name them."""
        killed = []
        for root in (self.memory, self.state / "checkpoints"):
            for file in root.glob("work/*/criu-run.json"):
                try:
                    criu = decode_identity(json.loads(file.read_bytes())["criu"])
                    send_signal(criu, signal.SIGKILL)
                except (ProcessGone, FileNotFoundError):
                    continue
                killed.append(f"CRIU, process {criu.pid}")
        return ", ".join(killed)

    # What happens

    def entered(self, phase):
        """A phase is on the disk."""
        if self.armed and (self.at["phase"] != TAKEN_UP or phase == "over"):
            self.strike(f"{phase} came first")
        elif phase == self.at["phase"]:
            self.arm(phase)

    def arm(self, phase):
        """Count from now on."""
        self.armed = True
        if self.at["by"] == "now":
            self.strike(f"when {phase} was on the disk")
        elif self.at["by"] == "share" and phase == "dumping":
            wanted = int(self.at["share"] * self.reserved_bytes)
            self.look_at(Path(self.room.images), "pages-*.img", wanted)
        elif self.at["by"] == "share" and phase == "restoring":
            wanted = int(self.at["share"] * LOG_BYTES_OF_A_PROCESS * len(self.request.pids))
            self.look_at(Path(self.request.work), "restore.log", wanted)

    def counted(self, what):
        """One more of what may be counted."""
        if self.armed and not self.struck and self.at["by"] == what:
            self.count += 1
            if self.count >= self.at["count"]:
                self.strike(f"{what} {self.count} of {self.at['phase']}")

    def read(self, phase, done, total):
        """So many bytes were read."""
        if self.armed and self.at["by"] == "share" and phase == self.at["phase"] and done >= self.at["share"] * total:
            self.strike(f"{done} of {total} bytes of {phase}")

    def look_at(self, *about):
        """Strike when files have grown so far; whoever ends before does not wait for that."""
        threading.Thread(target=self.growing, args=about, daemon=True).start()

    def growing(self, folder, pattern, wanted):
        """Strike when files of a folder have so many bytes: the kernel tells of each change."""
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_CLOEXEC)
        if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(folder), IN_MODIFY | IN_CREATE) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        with contextlib.suppress(FileNotFoundError):  # a file went between two looks
            while not self.struck:
                found = sum(each.stat().st_size for each in folder.glob(pattern))
                if found > wanted:
                    self.strike(f"{pattern} had {found} bytes")
                os.read(watch, 64 * struct.calcsize("iIII") + 4096)


def install(strike):
    """Have it hear of everything."""
    waiting = deque()
    append, forget, snapshot, commit, opened = (
        getattr(SqliteJournal, name) for name in ("append", "forget", "snapshot", "_commit", "open")
    )

    def heard(function, count):
        @functools.wraps(function)
        def call(self, path, *records):
            waiting.extend(count(*records))
            return function(self, path, *records)

        return call

    def committed(self, rows):
        commit(self, rows)
        for record in [waiting.popleft() for _ in rows]:
            if isinstance(record, FreezeMeasured):
                strike.reserved_bytes = record.reserved_bytes
            elif isinstance(record, FreezeHoused):
                strike.room = record.room
            elif isinstance(record, ThawRestoring):
                strike.request = record.request
            strike.counted("record")
            phase = record.phase.value if isinstance(record, FreezeBegan) else PHASES.get(type(record))
            if phase is not None:
                strike.entered(phase)

    def open_journal(*arguments, **words):
        journal = opened(*arguments, **words)
        if strike.at["phase"] == TAKEN_UP and journal.paths():
            strike.arm(TAKEN_UP)
        return journal

    SqliteJournal.append = heard(append, lambda records: records)
    SqliteJournal.forget = heard(forget, lambda: [None])
    SqliteJournal.snapshot = heard(snapshot, lambda records: [None])
    SqliteJournal._commit = committed
    SqliteJournal.open = staticmethod(open_journal)

    once = asyncio.BaseEventLoop._run_once

    def turn(self):
        strike.counted("turn")
        once(self)

    asyncio.BaseEventLoop._run_once = turn

    def audited(event, arguments):
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
            strike.counted("change")

    sys.addaudithook(audited)

    send = signal.pidfd_send_signal

    def sent(*arguments):
        send(*arguments)
        strike.counted("signal")

    signal.pidfd_send_signal = sent

    add = tiers.ByteCount.add

    def added(self, count):
        add(self, count)
        strike.read(self.phase, self.done, self.total)

    tiers.ByteCount.add = added


def run(order, arguments):
    """Run the command line on tiers of its own, over the stand-in if there is one."""
    this_machine = machine.this_machine
    machine.this_machine = functools.partial(this_machine, folders={"ram": Path(order["memory"])})
    if order["library"]:
        gpus = NvmlGpus(order["library"])
        machine.NvmlGpus = lambda: gpus
        interface = LibraryInterface(order["library"], "stand-in", nvml=order["library"], kernel=None)
        machine.NvidiaCuda = lambda: NvidiaCuda(interface, gpus=gpus)
    if order["at"] is not None:
        install(Strike(order))
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1]), sys.argv[2:]))
