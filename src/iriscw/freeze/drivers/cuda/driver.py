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
from iriscw.freeze.drivers.cuda.finding import cuda_library, nvml_library
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
from iriscw.processes.identity import read_environment

BINARY: Final = "cuda-checkpoint"
KERNEL: Final = Path("/proc/driver/nvidia/gpus")
"""There where the kernel's half of the driver is loaded. CRIU's plugin looks for the same."""

JOB: Final = b"CUDA_CHECKPOINT_JOB_FILE="
"""In the environment of who was started by ``cuda-checkpoint --launch-job``."""

PROBE_NS: Final = 60_000_000_000
"""For a probe, where the first call after a boot loads the driver: seconds on machines with eight GPUs."""

MARGIN: Final = 10
"""The driver's own limit for a lock is shorter than ours by one part in so many, so that it says no by itself."""

MAPPING_VERSION: Final = 580
"""The driver from which on a restore may name other GPUs. It cannot be probed without moving a process."""

MISSING_FOR_S: Final = 30.0
"""For how long it is believed that there is no driver: whoever freezes processes without a GPU asks each time."""

DRIVERS: Final = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of them is there where the kernel, or who stands in for it, has a driver of NVIDIA's. Without one its library
finds no GPU; to have it say so takes another program, and half as long as a whole freeze of a small process.
"""

HOW: Final = "install NVIDIA's driver 570 or newer, or the program cuda-checkpoint from 555 on"

HOLDS: Final = (
    "it holds NVIDIA's devices and has no CUDA context: it was forked from one that has, or it only asks NVML, as a"
    " parent that counts GPUs does. Have it close them or end (start children by spawn, call nvmlShutdown), or freeze"
    " the processes below it without it"
)
"""What is said of who holds a device that the driver knows nothing of, with the way out."""


@attrs.frozen
class CudaCall:
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
    unstarted: bool = False
    """The driver did not start, and the call was not made: ``code`` says why."""


class Interface(Protocol):
    """A way to the driver."""

    @property
    def name(self) -> str:
        """``api``, ``binary``, or what stands in."""
        ...

    @property
    def can_map(self) -> bool | None:
        """Whether a restore may name other GPUs, as a probe found; None: the driver's version says so."""
        ...

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can."""
        ...

    async def call(self, calls: Sequence[CudaCall], within_ns: int) -> tuple[Result, ...]:
        """Make calls, one after the other, and give the result of each.

        Raises:
            CudaOverdue: no answer.
            CudaMissing: it is not there.
            RightsMissing: it may not be used.
        """
        ...


class LibraryInterface:
    """The driver's library, called by our own program."""

    can_map: bool | None = None

    def __init__(self, library: str = "", name: str = "api", nvml: str = "", kernel: Path | None = KERNEL) -> None:
        """Take libraries.

        Args:
            library: The driver's; empty: see :mod:`iriscw.freeze.drivers.cuda.finding`.
            name: How it is called in answers.
            nvml: NVML; likewise.
            kernel: What is there if the kernel's half of the driver is; None: nobody looks.
        """
        self._library, self._nvml, self._kernel = library, nvml, kernel
        self.name = name

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can. The driver is not started for that."""
        try:
            await self.call((), within_ns)
        except (CudaMissing, CudaOverdue, CudaRefused, RightsMissing) as error:
            return str(error)
        if self._kernel is not None and not await anyio.Path(self._kernel).exists():
            return f"the kernel has not loaded NVIDIA's driver: there is no {self._kernel}"
        return ""

    async def call(self, calls: Sequence[CudaCall], within_ns: int) -> tuple[Result, ...]:
        """Make calls (see :class:`Interface`)."""
        libraries = {"library": self._library or cuda_library(), "nvml": self._nvml or nvml_library()}
        order = {"serve": "cuda", **libraries, "calls": [_ordered(call) for call in calls]}
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
            Result(0, gone=True)
            if "gone" in each
            else Result(each["result"], each["value"], unstarted="unstarted" in each)
            for each in answers
        )


class BinaryInterface:
    """NVIDIA's program ``cuda-checkpoint``, one run for each call.

    It starts the driver for each call, as its messages say: without persistence mode each takes as long as that.
    """

    name = "binary"

    def __init__(self, program: str = BINARY) -> None:
        self._program = program
        self._can_limit = False
        self.can_map: bool | None = None

    async def probe(self, within_ns: int) -> str:
        """Say why it cannot be used; empty if it can. Its help, which is the driver's, says what it can."""
        if shutil.which(self._program) is None:
            return f"there is no {self._program} in PATH"
        try:
            said = await run([self._program, "--help"], "", within_ns, "say how it is used")
        except (CudaMissing, CudaOverdue, RightsMissing) as error:
            return str(error)
        self._can_limit, self.can_map = "--timeout" in said.text, "--device-map" in said.text
        return "" if "--action" in said.text else f"{self._program} is too old: it knows no --action"

    async def call(self, calls: Sequence[CudaCall], within_ns: int) -> tuple[Result, ...]:
        """Make calls (see :class:`Interface`)."""
        results = []
        for call in calls:
            if not lives(call.task):
                results.append(Result(0, gone=True))
                continue
            arguments = binary_arguments(call, can_limit=self._can_limit)
            said = await run([self._program, *arguments], "", within_ns, _doing([call]))
            code = code_said(said.text) if said.code else SUCCESS
            results.append(Result(code, said.text.strip(), said.text if said.code else ""))
        return tuple(results)


def binary_arguments(call: CudaCall, *, can_limit: bool = True) -> list[str]:
    """Return the command line of a call, without the program.

    Args:
        call: The call.
        can_limit: The program knows ``--timeout``. One that does not waits in a lock until it is killed.
    """
    pid = ["--pid", str(call.task.pid)]
    if call.verb == "state":
        return ["--get-state", *pid]
    if call.verb == "restore-thread":
        return ["--get-restore-tid", *pid]
    arguments = ["--action", call.verb, *pid]
    if call.verb == "lock" and can_limit:
        arguments += ["--timeout", str(call.timeout_ms)]
    if call.gpus:
        arguments += ["--device-map", ",".join(f"{old}={new}" for old, new in call.gpus)]
    return arguments


def _ordered(call: CudaCall) -> dict[str, Any]:
    return {
        "verb": call.verb,
        "pid": call.task.pid,
        "start_ticks": call.task.start_ticks,
        "timeout_ms": call.timeout_ms,
        "gpus": [(uuid_bytes(old).hex(), uuid_bytes(new).hex()) for old, new in call.gpus],
    }


def _doing(calls: Sequence[CudaCall]) -> str:
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
        self._interfaces = interfaces
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
        interfaces = self._interfaces or ((LibraryInterface(), BinaryInterface()) if _in_kernel() else ())
        reasons = [] if interfaces else ["this kernel has no driver of NVIDIA's"]
        for interface in interfaces:
            reason = await interface.probe(PROBE_NS)
            if reason:
                reasons.append(f"{interface.name}: {reason}")
                continue
            self._chosen = interface
            version = (await self._gpus.look()).driver_version if isinstance(self._gpus, NvmlGpus) else ""
            major = int(version.partition(".")[0]) if version.partition(".")[0].isdigit() else 0
            can_map = major >= MAPPING_VERSION if interface.can_map is None else interface.can_map
            return CudaAbility(True, version, interface.name, can_map_gpus=can_map)
        return CudaAbility(False, reason=f"no process of a GPU can be frozen here: {'; '.join(reasons)}; {HOW}")

    async def tasks(self, identities: Sequence[TaskIdentity], within_ns: int) -> tuple[CudaTask, ...]:
        """Return those that have a CUDA context (see the port)."""
        holding = await anyio.to_thread.run_sync(_holders, tuple(identities))
        if not (await self.ability()).available:
            if holding:
                raise CudaRefused(
                    f"process {holding[0].pid} holds NVIDIA's devices, and {(await self.ability()).reason}"
                )
            return ()
        found: list[tuple[TaskIdentity, int]] = []
        threads = await self._call([CudaCall("restore-thread", task) for task in identities], within_ns)
        for task, result in zip(identities, threads, strict=True):
            if result.gone:
                continue
            thread = _number(result.value) if result.code == SUCCESS else 0
            if thread > 0:
                found.append((task, thread))
            elif task in holding:
                error = refusal("find the context of", task.pid, result.code, root=_is_root(), said=result.said)
                text = f"{error}; {HOLDS}"
                raise RightsMissing(text) if isinstance(error, RightsMissing) else CudaRefused(text, result.code)
        if not found:
            return ()
        in_job = await anyio.to_thread.run_sync(_in_jobs, tuple(task for task, _ in found))
        if in_job:
            raise CudaRefused(
                f"process {in_job[0].pid} is of a CUDA job (cuda-checkpoint --launch-job), which iriscw cannot freeze:"
                " the driver keeps what its processes share (CUDA IPC) in a file of the job, which is in no checkpoint"
            )
        states = await self._call([CudaCall("state", task) for task, _ in found], within_ns)
        used = await self._gpus.used_by([task.pid for task, _ in found])
        return tuple(
            CudaTask(
                identity=task,
                state=self._state(task, result),
                restore_thread=thread,
                device_bytes=sum(used.get(task.pid, {}).values()),
                gpus=tuple(sorted(used.get(task.pid, {}))),
                held=tuple(sorted(used.get(task.pid, {}).items())),
            )
            for (task, thread), result in zip(found, states, strict=True)
            if not result.gone
        )

    async def state(self, task: TaskIdentity, within_ns: int) -> CudaState:
        """Read the state of a process (see the port)."""
        (result,) = await self._call([CudaCall("state", task)], within_ns)
        if result.gone:
            raise TargetGone(f"process {task.pid} has ended")
        return self._state(task, result)

    async def lock(self, task: TaskIdentity, within_ns: int) -> None:
        """RUNNING to LOCKED (see the port)."""
        timeout_ms = max(1, (within_ns - within_ns // MARGIN) // 1_000_000)  # 0 would be for ever
        await self._do(CudaCall("lock", task, timeout_ms=timeout_ms), within_ns)

    async def checkpoint(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to CHECKPOINTED (see the port)."""
        await self._do(CudaCall("checkpoint", task), within_ns)

    async def restore(self, task: TaskIdentity, within_ns: int, gpus: Mapping[str, str]) -> None:
        """CHECKPOINTED to LOCKED (see the port). A map in which nothing moves is none."""
        try:
            pairs = tuple((old, new) for old, new in gpus.items() if uuid_bytes(old) and uuid_bytes(new))
        except ValueError as error:
            raise UnsafeRequest(str(error)) from error
        moved = any(uuid_bytes(old) != uuid_bytes(new) for old, new in pairs)
        await self._do(CudaCall("restore", task, gpus=pairs if moved else ()), within_ns)

    async def unlock(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to RUNNING (see the port)."""
        await self._do(CudaCall("unlock", task), within_ns)

    async def _do(self, call: CudaCall, within_ns: int) -> None:
        (result,) = await self._call([call], within_ns)
        if result.gone:
            raise TargetGone(f"process {call.task.pid} has ended")
        if result.unstarted:
            raise CudaRefused(
                f"NVIDIA's driver does not start (cuInit: result {result.code}), and without persistence mode it must"
                f" for a restore: process {call.task.pid} was not touched",
                result.code,
            )
        if result.code != SUCCESS:
            raise refusal(call.verb, call.task.pid, result.code, root=_is_root(), said=result.said)

    async def _call(self, calls: Sequence[CudaCall], within_ns: int) -> tuple[Result, ...]:
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


def _in_kernel() -> bool:
    return any(path.exists() for path in DRIVERS)


def _is_root() -> bool:
    return os.geteuid() == 0


def _holders(tasks: tuple[TaskIdentity, ...]) -> tuple[TaskIdentity, ...]:
    """Return those that hold a device of NVIDIA's; one that may not be looked at holds none that we could name."""
    return tuple(task for task in tasks if _holds_device(task.pid))


def _in_jobs(tasks: tuple[TaskIdentity, ...]) -> tuple[TaskIdentity, ...]:
    """Return those that were started in a CUDA job."""
    return tuple(task for task in tasks if _in_job(task.pid))


def _in_job(pid: int) -> bool:
    try:
        return any(each.startswith(JOB) for each in read_environment(pid))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


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
