"""The checkpoint interface of NVIDIA's driver behind the port ``iriscw.freeze.ports.Cuda``.

Theory of operation. Each call runs in a process of its own: our :mod:`~iriscw.freeze.drivers.cuda.caller`, which
loads the driver's library, or NVIDIA's ``cuda-checkpoint``, which is a thin front of the same. One that does not answer
by its deadline is killed; what it had done by then nobody knows, and nothing here is repeated (INV-C5).

Who has a CUDA context is told by the restore thread: the driver gives one for those that have, and an error for all
others. An error alone is not taken for "none": a process that holds NVIDIA's devices and that the driver does not know
is a refusal, since its GPU state would be missing from the images.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import anyio.to_thread
import attrs

from iriscw.freeze.cuda_codes import NOT_PERMITTED, SUCCESS, code_said, refusal, state_of, state_said, uuid_bytes
from iriscw.freeze.drivers.cuda.calling import ask, run
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.drivers.identities import lives
from iriscw.freeze.model import (
    CudaAbility,
    CudaMissing,
    CudaOverdue,
    CudaRefused,
    CudaState,
    CudaTask,
    RightsMissing,
    TargetGone,
    TaskIdentity,
    UnsafeRequest,
)
from iriscw.freeze.ports import Gpus

CUDA: Final = "libcuda.so.1"
BINARY: Final = "cuda-checkpoint"
PROBE_NS: Final = 30_000_000_000
"""For a probe: the first call after a boot loads the driver, which takes seconds on machines with eight GPUs."""

MARGIN: Final = 10
"""The driver's own limit for a lock is shorter than ours by one part in so many, so that it says no by itself."""

MAPPING_VERSION: Final = 580
"""The driver from which on a restore may name other GPUs. It cannot be probed without moving a process."""

MISSING_FOR_S: Final = 30.0
"""For how long it is believed that there is no driver: whoever freezes processes without a GPU asks each time."""

HOW: Final = "install NVIDIA's driver 570 or newer, or the program cuda-checkpoint from 555 on"


@attrs.frozen
class Call:
    """One call: a verb, and what it needs."""

    verb: str
    task: TaskIdentity
    timeout_ms: int = 0
    gpus: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Result:
    """The driver's result; ``value`` is a state, or a thread."""

    code: int
    value: object = None
    said: str = ""
    gone: bool = False


class Interface(Protocol):
    """A way to the driver."""

    @property
    def name(self) -> str:
        """``api``, ``binary``, or what stands in."""
        ...

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can."""
        ...

    async def call(self, calls: Sequence[Call], within_ns: int) -> tuple[Result, ...]:
        """Make calls, one after the other, and give the result of each.

        Raises:
            CudaOverdue: no answer.
            CudaMissing: it is not there.
            RightsMissing: it may not be used.
        """
        ...


class LibraryInterface:
    """The driver's library, called by our own program."""

    def __init__(self, library: str = CUDA, name: str = "api") -> None:
        self._library = library
        self.name = name

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can."""
        try:
            await self.call((), within_ns)
        except (CudaMissing, CudaOverdue, CudaRefused, RightsMissing) as error:
            return str(error)
        return ""

    async def call(self, calls: Sequence[Call], within_ns: int) -> tuple[Result, ...]:
        """Make calls (see :class:`Interface`)."""
        order = {"serve": "cuda", "library": self._library, "calls": [_ordered(call) for call in calls]}
        began, *answers = await ask(order, within_ns, _doing(calls))
        if "missing" in began:
            raise CudaMissing(f"the driver cannot checkpoint: {began['missing']}")
        if began["result"] == NOT_PERMITTED:
            raise RightsMissing("NVIDIA's driver may not be used by this user")
        if began["result"] != SUCCESS:
            raise CudaMissing(f"NVIDIA's driver does not start: result {began['result']}")
        if len(answers) != len(calls):
            raise CudaOverdue(f"the program that should {_doing(calls)} broke off: whether it did is not known")
        return tuple(
            Result(0, gone=True) if "gone" in each else Result(each["result"], each["value"]) for each in answers
        )


class BinaryInterface:
    """NVIDIA's program ``cuda-checkpoint``, one run for each call."""

    name = "binary"

    def __init__(self, program: str = BINARY) -> None:
        self._program = program

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can."""
        if shutil.which(self._program) is None:
            return f"there is no {self._program} in PATH"
        try:
            said = await run([self._program, "--help"], "", within_ns, "say how it is used")
        except (CudaMissing, CudaOverdue, RightsMissing) as error:
            return str(error)
        return "" if "--action" in said.text else f"{self._program} is too old: it knows no --action"

    async def call(self, calls: Sequence[Call], within_ns: int) -> tuple[Result, ...]:
        """Make calls (see :class:`Interface`)."""
        results = []
        for call in calls:
            if not lives(call.task):
                results.append(Result(0, gone=True))
                continue
            said = await run([self._program, *binary_arguments(call)], "", within_ns, _doing([call]))
            code = code_said(said.text) if said.code else SUCCESS
            results.append(Result(code, said.text.strip(), said.text if said.code else ""))
        return tuple(results)


def binary_arguments(call: Call) -> list[str]:
    """Give the command line of a call, without the program."""
    pid = ["--pid", str(call.task.pid)]
    if call.verb == "state":
        return ["--get-state", *pid]
    if call.verb == "restore-thread":
        return ["--get-restore-tid", *pid]
    arguments = ["--action", call.verb, *pid]
    if call.verb == "lock":
        arguments += ["--timeout", str(call.timeout_ms)]
    if call.gpus:
        arguments += ["--device-map", ",".join(f"{old}={new}" for old, new in call.gpus)]
    return arguments


def _ordered(call: Call) -> dict[str, Any]:
    return {
        "verb": call.verb,
        "pid": call.task.pid,
        "start_ticks": call.task.start_ticks,
        "timeout_ms": call.timeout_ms,
        "gpus": [(uuid_bytes(old).hex(), uuid_bytes(new).hex()) for old, new in call.gpus],
    }


def _doing(calls: Sequence[Call]) -> str:
    return f"{calls[0].verb} process {calls[0].task.pid}" if calls else "start"


class NvidiaCuda:
    """NVIDIA's driver. The first interface that can be used is taken, the library before the program."""

    def __init__(self, *interfaces: Interface, gpus: Gpus | None = None, missing_for_s: float = MISSING_FOR_S) -> None:
        """Take ways to the driver, or the usual two.

        Args:
            interfaces: Which, in the order in which they are tried.
            gpus: Who says what memory a process has on each GPU, instead of NVML.
            missing_for_s: For how long it is believed that there is no driver, in seconds.
        """
        self._interfaces = interfaces or (LibraryInterface(), BinaryInterface())
        self._gpus = NvmlGpus() if gpus is None else gpus
        self._chosen: Interface | None = None
        self._ability: CudaAbility | None = None
        self._missing_for_s = missing_for_s
        self._probed_s = 0.0

    async def ability(self) -> CudaAbility:
        """Probe what the driver can do (see the port). What was found is kept; that there is none, for a while."""
        known = self._ability
        if known is None or (not known.available and time.monotonic() - self._probed_s >= self._missing_for_s):
            known = self._ability = await self._probe()
            self._probed_s = time.monotonic()
        return known

    async def _probe(self) -> CudaAbility:
        reasons = []
        for interface in self._interfaces:
            reason = await interface.probe(PROBE_NS)
            if reason:
                reasons.append(f"{interface.name}: {reason}")
                continue
            self._chosen = interface
            version = (await self._gpus.look()).driver_version if isinstance(self._gpus, NvmlGpus) else ""
            major = int(version.partition(".")[0]) if version.partition(".")[0].isdigit() else 0
            return CudaAbility(True, version, interface.name, can_map_gpus=major >= MAPPING_VERSION)
        return CudaAbility(False, reason=f"no process of a GPU can be frozen here: {'; '.join(reasons)}; {HOW}")

    async def tasks(self, identities: Sequence[TaskIdentity], within_ns: int) -> tuple[CudaTask, ...]:
        """Give those that have a CUDA context (see the port)."""
        holding = await anyio.to_thread.run_sync(_holders, tuple(identities))
        if not (await self.ability()).available:
            if holding:
                raise CudaRefused(
                    f"process {holding[0].pid} holds NVIDIA's devices, and {(await self.ability()).reason}"
                )
            return ()
        found: list[tuple[TaskIdentity, int]] = []
        threads = await self._call([Call("restore-thread", task) for task in identities], within_ns)
        for task, result in zip(identities, threads, strict=True):
            if result.gone:
                continue
            thread = _number(result.value) if result.code == SUCCESS else 0
            if thread > 0:
                found.append((task, thread))
            elif task in holding:
                error = refusal("find the context of", task.pid, result.code, root=_is_root(), said=result.said)
                text = f"{error}; it holds NVIDIA's devices: a child that inherited them must close them or end"
                raise RightsMissing(text) if isinstance(error, RightsMissing) else CudaRefused(text, result.code)
        if not found:
            return ()
        states = await self._call([Call("state", task) for task, _ in found], within_ns)
        used = await self._gpus.used_by([task.pid for task, _ in found])
        return tuple(
            CudaTask(
                identity=task,
                state=self._state(task, result),
                restore_thread=thread,
                device_bytes=sum(used.get(task.pid, {}).values()),
                gpus=tuple(sorted(used.get(task.pid, {}))),
            )
            for (task, thread), result in zip(found, states, strict=True)
            if not result.gone
        )

    async def state(self, task: TaskIdentity, within_ns: int) -> CudaState:
        """Read the state of a process (see the port)."""
        (result,) = await self._call([Call("state", task)], within_ns)
        if result.gone:
            raise TargetGone(f"process {task.pid} has ended")
        return self._state(task, result)

    async def lock(self, task: TaskIdentity, within_ns: int) -> None:
        """RUNNING to LOCKED (see the port)."""
        timeout_ms = max(1, (within_ns - within_ns // MARGIN) // 1_000_000)  # 0 would be for ever
        await self._do(Call("lock", task, timeout_ms=timeout_ms), within_ns)

    async def checkpoint(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to CHECKPOINTED (see the port)."""
        await self._do(Call("checkpoint", task), within_ns)

    async def restore(self, task: TaskIdentity, within_ns: int, gpus: Mapping[str, str]) -> None:
        """CHECKPOINTED to LOCKED (see the port). A map in which nothing moves is none."""
        try:
            pairs = tuple((old, new) for old, new in gpus.items() if uuid_bytes(old) and uuid_bytes(new))
        except ValueError as error:
            raise UnsafeRequest(str(error)) from error
        moved = any(uuid_bytes(old) != uuid_bytes(new) for old, new in pairs)
        await self._do(Call("restore", task, gpus=pairs if moved else ()), within_ns)

    async def unlock(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to RUNNING (see the port)."""
        await self._do(Call("unlock", task), within_ns)

    async def _do(self, call: Call, within_ns: int) -> None:
        (result,) = await self._call([call], within_ns)
        if result.gone:
            raise TargetGone(f"process {call.task.pid} has ended")
        if result.code != SUCCESS:
            raise refusal(call.verb, call.task.pid, result.code, root=_is_root(), said=result.said)

    async def _call(self, calls: Sequence[Call], within_ns: int) -> tuple[Result, ...]:
        if within_ns <= 0:
            raise UnsafeRequest("a deadline that is not positive")
        if self._chosen is None and not (await self.ability()).available:
            raise CudaRefused((await self.ability()).reason)
        assert self._chosen is not None
        try:
            return await self._chosen.call(calls, within_ns)
        except CudaMissing as error:
            raise CudaRefused(str(error)) from error

    def _state(self, task: TaskIdentity, result: Result) -> CudaState:
        if result.code != SUCCESS:
            raise refusal("read the state of", task.pid, result.code, root=_is_root(), said=result.said)
        return state_said(result.value) if isinstance(result.value, str) else state_of(_number(result.value))


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return -1


def _is_root() -> bool:
    return os.geteuid() == 0


def _holders(tasks: tuple[TaskIdentity, ...]) -> tuple[TaskIdentity, ...]:
    """Give those that hold a device of NVIDIA's; one that may not be looked at holds none that we could name."""
    return tuple(task for task in tasks if _holds_device(task.pid))


def _holds_device(pid: int) -> bool:
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(link.readlink()).startswith("/dev/nvidia"):
                    return True
            except FileNotFoundError:
                continue
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return False
