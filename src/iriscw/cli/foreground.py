"""How ``iriscw restore`` stays in front of a program that it brought back into its terminal.

To the user's shell this command is the job, and to the program it is the shell: its parent, which gives it the terminal
and takes it back. :func:`decide` is that as a table; :func:`attend` reads what happens, and does what the table says.

=================================  ===========================================================================
what happens                       what is done
=================================  ===========================================================================
the program ends                   the terminal is put back as it was; the command ends with the same exit code,
                                   or 128 and the number of the signal
it is stopped (Ctrl-Z, SIGTTIN)    the terminal is taken back, and this command stops itself the same way: its
                                   shell sees a job that is stopped
it wants the terminal, which the   it gets it, and goes on
shell gave to us (bg, then fg)
it is stopped, and nobody is       after Ctrl-Z it goes on at once; after SIGSTOP whoever sent that has it go on
there who could have us go on
we are told to go on (fg, bg)      it gets the terminal, if the shell gave that to us, and goes on
another signal comes               it is passed on to the program's process group
=================================  ===========================================================================

Keys (Ctrl-C, Ctrl-Z) go from the terminal to the program alone: it is in the foreground, and this command is not.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import attrs

from iriscw.freeze.drivers.processes.reading import below
from iriscw.freeze.drivers.terminal import ControllingTerminal
from iriscw.processes.identity import ProcessGone, read_stat

PASSED_ON: Final = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""What is meant for the program when somebody sends it to this command, or the terminal does: in its foreground are we
if the shell has put us there and the program has not asked for it since.
"""

STOPPING: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""What a terminal stops a program with. The kernel drops them where nobody could have it go on."""

WANTING: Final = (signal.SIGTTIN, signal.SIGTTOU)
"""What stops a program in the background that reads from the terminal, or changes it."""

MAX_SIGNALS: Final = 256
"""That are read at once; the rest is read next."""


@attrs.frozen
class Ended:
    """The program has ended, with this exit code as a shell gives it."""

    code: int


@attrs.frozen
class StoppedBySignal:
    """The program was stopped by this signal."""

    by: int


@attrs.frozen
class ToldToGoOn:
    """This command got SIGCONT."""


@attrs.frozen
class Signalled:
    """This command got a signal that is meant for the program."""

    number: int


Event = Ended | StoppedBySignal | ToldToGoOn | Signalled


@attrs.frozen
class ForegroundSight:
    """What is so when it happens."""

    alone: bool
    """Nobody is there who could have us go on: we must not stop."""
    ours: bool
    """Our process group is in the terminal's foreground."""
    its: bool
    """The program is: one of its process groups."""


class Act(enum.Enum):
    """What is done with the terminal and the program."""

    TAKE = "take the terminal back, with the modes that it had before"
    GIVE = "give the terminal to who had it, with the modes that it had then"
    CONTINUE = "let the program go on"


@attrs.frozen
class Stop:
    """Stop this command with its process group."""

    by: int


@attrs.frozen
class PassOn:
    """Send a signal to the program's process group."""

    number: int


@attrs.frozen
class EndCommand:
    """End this command."""

    code: int


def decide(event: Event, sight: ForegroundSight) -> tuple[Act | Stop | PassOn | EndCommand, ...]:
    """Say what is done about an event."""
    take = (Act.TAKE,) if sight.its else ()
    match event:
        case Ended(code):
            return (*take, EndCommand(code))
        case StoppedBySignal(by) if sight.ours and by in WANTING:
            return (Act.GIVE, Act.CONTINUE)
        case StoppedBySignal(by) if sight.alone:
            return (Act.CONTINUE,) if by in STOPPING else ()
        case StoppedBySignal(by):
            return (*take, Stop(by if by in STOPPING else signal.SIGSTOP))
        case ToldToGoOn():
            return (Act.GIVE, Act.CONTINUE) if sight.ours else (Act.CONTINUE,)
        case Signalled(number):
            return (PassOn(number),)


class Foreground:
    """A program that is our child, and the terminal that was given to it."""

    def __init__(self, terminal: ControllingTerminal, pid: int) -> None:
        self._terminal = terminal
        self._pid = pid
        self._group = os.getpgid(pid)
        self._front = terminal.foreground()
        self._modes, self._size = terminal.modes, terminal.size
        self._lent = self._front != terminal.group

    def redraw(self) -> None:
        """Have whoever is in front draw its screen anew: what this command wrote is on it."""
        _signal_group(self._front, signal.SIGWINCH)

    def happened(self) -> Iterator[Event]:
        """Yield what became of the program since it was asked last.

        Should somebody else in this process have waited for its end, that is taken for a good one.
        """
        try:
            while found := os.waitid(os.P_PID, self._pid, os.WEXITED | os.WSTOPPED | os.WNOHANG):
                if found.si_code == os.CLD_STOPPED:
                    yield StoppedBySignal(found.si_status)
                elif found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                    yield Ended(found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status)
                    return
        except ChildProcessError:
            yield Ended(0)

    def answer(self, event: Event) -> int | None:
        """Do what there is to do about an event. Give the exit code of this command, if it is to end."""
        front = self._terminal.foreground()
        ours = front == self._terminal.group
        if isinstance(event, ToldToGoOn) and not ours:  # a shell may have taken the terminal while we were stopped
            self._lent = self._is_of_program(front)
        for act in decide(event, ForegroundSight(alone=alone(), ours=ours, its=self._lent and not ours)):
            match act:
                case Act.TAKE:
                    self._take(front)
                case Act.GIVE:
                    self._give()
                case Act.CONTINUE:
                    self._continue()
                case Stop(by):
                    _stop(by)
                case PassOn(number):
                    _signal_group(self._group, number)
                case EndCommand(code):
                    return code
        return None

    def _take(self, front: int) -> None:
        self._front, self._lent = front, False
        self._modes, self._size = self._terminal.modes_now(), self._terminal.size_now()
        self._terminal.give(self._terminal.group)
        self._terminal.set_modes(self._terminal.modes)

    def _give(self) -> None:
        self._terminal.set_modes(self._modes)
        if not self._terminal.give(self._front):  # that group has ended
            self._front = self._group
            self._terminal.give(self._group)
        self._lent = True

    def _continue(self) -> None:
        if self._terminal.size_now() != self._size:
            _signal_group(self._front, signal.SIGWINCH)
        for group in dict.fromkeys((self._front, self._group)):
            _signal_group(group, signal.SIGCONT)

    def _is_of_program(self, group: int) -> bool:
        try:
            return any(each.group_id == group for each in below(self._pid))
        except ProcessGone:
            return False


def attend(terminal: ControllingTerminal, pid: int, ready: Callable[[], None]) -> int:
    """Stay in front of a program until it ends, and give the exit code that this command ends with.

    Args:
        terminal: which the program, or one of those below it, has.
        pid: the program, a child of this process. It runs already.
        ready: is called once signals are passed on; it may write to the terminal.
    """
    with _signals() as signals:
        program = Foreground(terminal, pid)
        ready()
        program.redraw()
        while True:
            for event in program.happened():
                code = program.answer(event)
                if code is not None:
                    return code
            numbers = signals()
            if signal.SIGCONT in numbers:
                program.answer(ToldToGoOn())
            for number in numbers:
                if number in PASSED_ON:
                    program.answer(Signalled(number))


def alone() -> bool:
    """Say whether nobody is there who could have us go on: no process of this session that leads to our group.

    To such a group the kernel does not deliver what a terminal stops with.
    """
    here, group, session = os.getppid(), os.getpgrp(), os.getsid(0)
    while here > 0:
        try:
            each = read_stat(here)
        except ProcessGone:
            return True
        if each.session_id != session:
            return True
        if each.group_id != group:
            return False
        here = each.parent_pid
    return True


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], tuple[int, ...]]]:
    """Yield a function that waits for signals. None of them does anything else to this process meanwhile."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait() -> tuple[int, ...]:
        select.select([reading], [], [])
        return tuple(os.read(reading, MAX_SIGNALS))

    def nothing(number: int, frame: FrameType | None) -> None:
        """Leave it to the descriptor, which the kernel's signal has made readable."""

    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {each: signal.signal(each, nothing) for each in (*PASSED_ON, signal.SIGCHLD, signal.SIGCONT)}
    try:
        yield wait
    finally:
        for each, action in before.items():
            signal.signal(each, action)
        signal.set_wakeup_fd(wakeup)
        os.close(reading)
        os.close(writing)


def _stop(number: int) -> None:
    """Stop this process with its group. It returns when somebody has had it go on."""
    here = signal.signal(number, signal.SIG_DFL) if number in PASSED_ON else None
    os.killpg(0, number)
    if here is not None:
        signal.signal(number, here)


def _signal_group(group: int, number: int) -> None:
    if group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
