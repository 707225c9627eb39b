# ruff: noqa: PTH123
# pathlib would double the time that this process takes to start.
"""The process that calls NVIDIA's libraries, so that one that hangs hangs nobody else.

It is run by path (``python -I -S caller.py``) with nothing but the standard library. An order comes as one line of JSON
on standard input: the library's name, and calls. Each call is answered by one line with the library's result and a
value. It ends with the last one. Before each call that changes a process, and after whatever takes long, it looks
whether the number still means the process that was meant: if not, it answers ``gone`` (INV-C3).

The driver is not started (``cuInit``) for a call that does not need it: that takes all GPUs, and long where persistence
mode is off, and fails if one of them is broken, which is no reason to leave a process locked. NVIDIA asks for it before
a restore alone, and there only without persistence mode. A call that answers that it needs it did nothing, and is made
again after it.

It is not killed when its starter dies: a call that was cut off half-way leaves the driver in a state that nobody knows.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

NOT_INITIALIZED = 3
NVML_NAME_BYTES = 96
MAX_PROCESSES = 4096


class _GpuPair(ctypes.Structure):
    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class _LockArguments(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved", ctypes.c_uint),
        ("reserved_too", ctypes.c_uint64 * 7),
    )


class _NoArguments(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class _RestoreArguments(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.POINTER(_GpuPair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_char * (64 - ctypes.sizeof(ctypes.c_void_p) - ctypes.sizeof(ctypes.c_uint))),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def _is_meant(call: dict[str, Any]) -> bool:
    try:
        with open(f"/proc/{call['pid']}/stat", encoding="utf-8", errors="surrogateescape") as file:
            fields = file.read().rpartition(") ")[2].split()
    except OSError:
        return False
    return int(fields[19]) == call["start_ticks"] and fields[0] not in "ZXx"


def _cuda(library: Any, call: dict[str, Any]) -> tuple[int, Any]:
    verb, pid = call["verb"], call["pid"]
    if verb == "state":
        state = ctypes.c_int(-1)
        return library.cuCheckpointProcessGetState(pid, ctypes.byref(state)), state.value
    if verb == "restore-thread":
        thread = ctypes.c_int(0)
        return library.cuCheckpointProcessGetRestoreThreadId(pid, ctypes.byref(thread)), thread.value
    if verb == "lock":
        lock = _LockArguments(timeout_ms=call["timeout_ms"])
        return library.cuCheckpointProcessLock(pid, ctypes.byref(lock)), None
    if verb == "checkpoint":
        return library.cuCheckpointProcessCheckpoint(pid, ctypes.byref(_NoArguments())), None
    if verb == "restore":
        pairs = [
            _GpuPair((ctypes.c_ubyte * 16)(*bytes.fromhex(old)), (ctypes.c_ubyte * 16)(*bytes.fromhex(new)))
            for old, new in call["gpus"]
        ]
        restore = _RestoreArguments()
        if pairs:  # without a map none is given: the driver takes another way with one, even if nothing moves
            restore.pairs = (_GpuPair * len(pairs))(*pairs)
            restore.count = len(pairs)
        return library.cuCheckpointProcessRestore(pid, ctypes.byref(restore)), None
    if verb == "unlock":
        return library.cuCheckpointProcessUnlock(pid, ctypes.byref(_NoArguments())), None
    raise ValueError(f"no such verb: {verb}")


def _answer(**content: Any) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def _serve_cuda(order: dict[str, Any]) -> None:
    try:
        library = ctypes.CDLL(order["library"])
        probed = library.cuCheckpointProcessGetState
    except (OSError, AttributeError) as error:
        _answer(missing=str(error))
        return
    assert probed is not None
    version = ctypes.c_int(0)
    result = library.cuDriverGetVersion(ctypes.byref(version))
    _answer(result=result, value=version.value)
    if result != 0:
        return
    started = False
    for call in order["calls"]:
        if call["verb"] == "restore" and not started and not _stays_loaded(order["nvml"]):
            result = library.cuInit(0)
            if result != 0:
                _answer(result=result, value=None, unstarted=True)
                continue
            started = True
        if not _is_meant(call):
            _answer(gone=True)
            continue
        result, value = _cuda(library, call)
        if result == NOT_INITIALIZED and not started:
            started = library.cuInit(0) == 0
            if started and not _is_meant(call):
                _answer(gone=True)
                continue
            result, value = _cuda(library, call) if started else (result, value)
        _answer(result=result, value=value)


def _stays_loaded(nvml: str) -> bool:
    """Say whether persistence mode is on for all GPUs: then the driver need not be started for a restore."""
    count, device, mode = ctypes.c_uint(0), ctypes.c_void_p(), ctypes.c_uint(0)
    try:
        library = ctypes.CDLL(nvml)
        told = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        return (
            told
            and count.value > 0
            and all(
                library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
                and library.nvmlDeviceGetPersistenceMode(device, ctypes.byref(mode)) == 0
                and mode.value == 1
                for index in range(count.value)
            )
        )
    except (OSError, AttributeError):
        return False


def _text(size: int, call: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(size)
    return buffer.value.decode(errors="replace") if call(*arguments, buffer, size) == 0 else ""


def _serve_nvml(order: dict[str, Any]) -> None:
    try:
        library = ctypes.CDLL(order["library"])
        result = library.nvmlInit_v2()
    except (OSError, AttributeError) as error:
        _answer(missing=str(error))
        return
    if result != 0:
        _answer(missing=f"nvmlInit gave {result}")
        return
    count = ctypes.c_uint(0)
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = [_gpu(library, index) for index in range(count.value)]
    version = _text(NVML_NAME_BYTES, library.nvmlSystemGetDriverVersion)
    _answer(result=0, value={"driver": version, "gpus": [gpu for gpu in gpus if gpu is not None]})


def _gpu(library: Any, index: int) -> dict[str, Any] | None:
    device = ctypes.c_void_p()
    memory = _Memory()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return None
    told = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    count = ctypes.c_uint(MAX_PROCESSES)
    processes = (_Process * MAX_PROCESSES)()
    listed = library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes)
    # -1: not told. That is not nothing: at most it is all that is used of the GPU, and None if that is not told either.
    most = memory.used if told else None
    used = {str(each.pid): each.used if each.used < 1 << 63 else most for each in processes[: count.value]}
    return {
        "uuid": _text(NVML_NAME_BYTES, library.nvmlDeviceGetUUID, device),
        "model": _text(NVML_NAME_BYTES, library.nvmlDeviceGetName, device),
        "index": index,
        "total_bytes": memory.total,
        "used_bytes": memory.used,
        "processes": used if listed == 0 else None,
    }


def main() -> int:
    """Carry out the order on standard input."""
    order = json.loads(sys.stdin.readline())
    (_serve_nvml if order["serve"] == "nvml" else _serve_cuda)(order)
    return 0


if __name__ == "__main__":
    sys.exit(main())
