"""One system call inside a stopped process, as if the process had made it.

Some things only a process itself can do: take a lock that is its own, choose its NUMA policy or its personality. CRIU
loses these, so they are done in its place before it is let run. It is stopped (by a signal) before and after; it never
runs a step of its own meanwhile, for the kernel lets a traced process make just the one that it was told.

Everything here blocks, for less than a millisecond, and has to be called from one thread: the kernel knows a tracer by
its thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import platform
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from iriscw.freeze.model import TargetGone
from iriscw.processes.identity import ProcessGone, read_process_file, read_stat

CALLABLE: Final = ("x86_64",)
"""Architectures whose registers are known here."""


@attrs.frozen
class Here:
    """An argument that is the address of the memory that goes along, or so many bytes behind its beginning."""

    offset: int = 0


HERE: Final = Here()

_SEIZE, _TO_CALL, _DETACH = 0x4206, 24, 17
_GETSIGMASK, _SETSIGMASK, _SIGNALS_BYTES = 0x420A, 0x420B, 8
_GETREGSET, _SETREGSET, _NT_PRSTATUS = 0x4204, 0x4205, 1
_TELL_CALLS: Final = 1
"""A stop before or after a call is told from others by this bit of its status, and is no signal."""

_AT_CALL: Final = 0x80 | 5

_SUSPEND_SECCOMP: Final = 1 << 21
"""A filter of the program must not judge what it did not ask for. Takes ``CAP_SYS_ADMIN``."""

_END_WITH_US: Final = 1 << 20
"""If we are killed, so is what we trace: changed as it is, it must never run. All of it came out of a checkpoint."""

_WALL: Final = 0x40000000
"""Wait for threads, too."""

_REGISTERS: Final = 27
_R10, _R9, _R8, _RAX, _RDX, _RSI, _RDI, _ORIG_RAX, _RIP, _RSP = 7, 8, 9, 10, 12, 13, 14, 15, 16, 19
_ARGUMENTS: Final = (_RDI, _RSI, _RDX, _R10, _R8, _R9)
_SYSCALL: Final = b"\x0f\x05"
_WORD: Final = (1 << 64) - 1

_BELOW_STACK: Final = 512
"""Memory that goes along is written that far below the stack: the 128 bytes right below it are in use."""

STOP_PATIENCE_S: Final = 5.0
"""For a thread to be stopped again: on a busy machine it may wait for a processor."""

_STOPS: Final = 8
"""Until the call is made: a stopped thread may report that it is stopped first."""


class NotCallable(OSError):
    """No system call can be made in that process."""


class CallingThread:
    """A thread of a stopped process, in which calls can be made. Use :func:`calling`."""

    def __init__(self, pid: int, number: int) -> None:
        self._number = number
        self._at = _instruction(pid)
        self._memory = Path(f"/proc/{pid}/mem")
        self.left = b""
        """What the last call that had memory made of it."""

    def __call__(self, call: int, *arguments: object, memory: bytes = b"") -> int:
        """Make a call; give what it returned.

        Args:
            call: its number.
            arguments: integers, or :class:`Here`.
            memory: what :data:`HERE` is the address of. What the call made of it is ``self.left`` afterwards.

        Raises:
            OSError: the call failed, with its number; or the thread cannot be told to make it.
            TargetGone: it has ended.
        """
        before = self._registers()
        place = before[_RSP] - _BELOW_STACK - len(memory) & ~0xF
        after = list(before)
        for register, value in zip(_ARGUMENTS, arguments, strict=False):
            after[register] = place + value.offset if isinstance(value, Here) else int(str(value)) & _WORD
        after[_RIP], after[_RAX], after[_ORIG_RAX], after[_RSP] = self._at, call, _WORD, place - _BELOW_STACK
        with self._memory.open("r+b", buffering=0) as file:
            file.seek(place)
            was = file.read(len(memory))
            try:
                if memory:
                    file.seek(place)
                    file.write(memory)
                self._set_registers(after)
                found = self._called()
                if memory:
                    file.seek(place)
                    self.left = file.read(len(memory))
            finally:
                if memory:
                    file.seek(place)
                    file.write(was)
                self._set_registers(before)
        if found >= _WORD - 4094:
            error = (1 << 64) - found
            raise OSError(error, os.strerror(error))
        return found

    def _called(self) -> int:
        # No single step: its trap is a signal that the kernel forces, which takes the program's own handler away.
        begun = False
        for _ in range(_STOPS):
            _ptrace(_TO_CALL, self._number, 0, 0)
            _, status = os.waitpid(self._number, _WALL)
            if not os.WIFSTOPPED(status):
                raise TargetGone(f"thread {self._number} has ended")
            if os.WSTOPSIG(status) == _AT_CALL:
                if begun:
                    return self._registers()[_RAX]
                begun = True
        raise NotCallable(errno.EIO, f"thread {self._number} does not make the call that it was told")

    def _registers(self) -> list[int]:
        data = ctypes.create_string_buffer(8 * _REGISTERS)
        place = _Place(ctypes.addressof(data), len(data))
        _ptrace(_GETREGSET, self._number, _NT_PRSTATUS, ctypes.addressof(place))
        if place.length != len(data):  # the kernel gives what there is, and an i386 program has other registers
            raise NotCallable(errno.ENOEXEC, f"thread {self._number} is of a 32-bit program")
        return list(struct.unpack(f"{_REGISTERS}Q", data.raw))

    def _set_registers(self, registers: list[int]) -> None:
        packed = struct.pack(f"{_REGISTERS}Q", *registers)
        data = ctypes.create_string_buffer(packed, len(packed))
        place = _Place(ctypes.addressof(data), len(packed))
        _ptrace(_SETREGSET, self._number, _NT_PRSTATUS, ctypes.addressof(place))


class _Place(ctypes.Structure):
    """Where registers lie in our memory, as the kernel wants to be told (``struct iovec``)."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@contextlib.contextmanager
def calling(pid: int, number: int) -> Iterator[CallingThread]:
    """Trace a stopped thread as long as the block lasts; it is stopped again afterwards.

    Only for what was thawed, and has not run: if we are killed meanwhile, the kernel kills it.

    Args:
        pid: the process, stopped by a signal.
        number: of its thread, as everybody sees it.

    Raises:
        NotCallable: the architecture is another one, or it has no place for that.
        TargetGone: it has ended.
        OSError: it may not be traced.
    """
    if platform.machine() not in CALLABLE:
        raise NotCallable(errno.ENOSYS, f"no call can be made in a process on {platform.machine()}")
    _ptrace(_SEIZE, number, 0, _SUSPEND_SECCOMP | _TELL_CALLS | _END_WITH_US)
    try:
        _, status = os.waitpid(number, _WALL)
        if not os.WIFSTOPPED(status):
            raise TargetGone(f"thread {number} has ended")
        # A signal that waits for it would be taken off its queue for who traces it: none comes while all are blocked.
        blocked = ctypes.create_string_buffer(_SIGNALS_BYTES)
        _ptrace(_GETSIGMASK, number, _SIGNALS_BYTES, ctypes.addressof(blocked))
        every = ctypes.create_string_buffer(b"\xff" * _SIGNALS_BYTES, _SIGNALS_BYTES)
        _ptrace(_SETSIGMASK, number, _SIGNALS_BYTES, ctypes.addressof(every))
        try:
            yield CallingThread(pid, number)
        finally:
            _ptrace(_SETSIGMASK, number, _SIGNALS_BYTES, ctypes.addressof(blocked))
    finally:
        with contextlib.suppress(TargetGone):
            _ptrace(_DETACH, number, 0, 0)
            _stopped_again(number)


def _stopped_again(number: int) -> None:
    """Wait until a thread that is traced no more is stopped as it was: it goes there by itself, in the kernel.

    Raises:
        NotCallable: it runs.
    """
    deadline_s = time.monotonic() + STOP_PATIENCE_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ProcessGone):
            if read_stat(number).state in "TZX":
                return
            os.sched_yield()  # there is no event for who is not its parent, and it takes microseconds
            continue
        return
    raise NotCallable(errno.ETIMEDOUT, f"thread {number} does not stop again")


def _instruction(pid: int) -> int:
    """Find an instruction that makes a system call: the kernel puts one into every program, in its ``vdso``."""
    try:
        lines = read_process_file(pid, "maps").splitlines()
        for line in lines:
            if line.endswith("[vdso]"):
                begin, end = (int(each, 16) for each in line.split()[0].split("-"))
                with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
                    file.seek(begin)
                    at = file.read(end - begin).find(_SYSCALL)
                if at >= 0:
                    return begin + at
    except (FileNotFoundError, ProcessLookupError, ProcessGone) as error:
        raise TargetGone(f"process {pid} has ended") from error
    raise NotCallable(errno.ENOENT, f"process {pid} has no vdso with a system call in it")


@functools.cache
def _library() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    found.ptrace.restype = ctypes.c_long
    found.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return found


def _ptrace(request: int, number: int, address: int, data: int) -> None:
    if _library().ptrace(request, number, address, data) < 0:
        error = ctypes.get_errno()
        if error == errno.ESRCH:
            raise TargetGone(f"thread {number} has ended, or is not stopped")
        raise OSError(error, os.strerror(error))
