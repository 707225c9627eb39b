"""NVIDIA's numbers and words: what the driver and ``cuda-checkpoint`` say, as our errors and states."""

from __future__ import annotations

import re
from typing import Final

from iriscw._errors import OperationError
from iriscw.freeze.model import CudaNoMemory, CudaRefused, CudaState, RightsMissing

SUCCESS: Final = 0
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
NO_DEVICE: Final = 100
OPERATING_SYSTEM: Final = 304
ILLEGAL_STATE: Final = 401
NOT_READY: Final = 600
NOT_PERMITTED: Final = 800
NOT_SUPPORTED: Final = 801
UNKNOWN: Final = 999

NAMES: Final = {
    1: "invalid value",
    OUT_OF_MEMORY: "out of memory",
    NOT_INITIALIZED: "not initialized",
    34: "the library is a stub",
    35: "the driver is older than what was asked of it",
    NO_DEVICE: "no device",
    101: "invalid device",
    OPERATING_SYSTEM: "a call of the operating system failed: rights are missing, or the state is broken",
    400: "invalid handle",
    ILLEGAL_STATE: "the process is in a state that does not allow this",
    500: "not found",
    NOT_READY: "not ready: it did not come to rest in time",
    NOT_PERMITTED: "not permitted",
    NOT_SUPPORTED: (
        "not supported: managed memory (UVM), CUDA IPC and jobs of cuda-checkpoint --launch-job, MIG, MPS, this GPU,"
        " or this driver"
    ),
    UNKNOWN: "unknown",
}
"""What a result means, in words of ours. A number that is not here is told as it is."""

STATES: Final = (CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED, CudaState.FAILED)
"""By the driver's numbers. CUDA 13.4 adds 4 and 5, seen while another program copies a process's memory."""

_SAID: Final = (
    (re.compile(r"out of memory", re.IGNORECASE), OUT_OF_MEMORY),
    (re.compile(r"OS call failed", re.IGNORECASE), OPERATING_SYSTEM),
    (re.compile(r"initialization error", re.IGNORECASE), NOT_INITIALIZED),
    (re.compile(r"no CUDA-capable device", re.IGNORECASE), NO_DEVICE),
    (re.compile(r"present state|illegal state", re.IGNORECASE), ILLEGAL_STATE),
    (re.compile(r"not permitted|permission", re.IGNORECASE), NOT_PERMITTED),
    (re.compile(r"not supported", re.IGNORECASE), NOT_SUPPORTED),
    (re.compile(r"not ready|timed? ?out", re.IGNORECASE), NOT_READY),
)
"""How ``cuda-checkpoint`` words a result; the first that fits. ``OS call failed or operation not supported`` is 304."""

_WORD: Final = re.compile(r"[a-z][a-z_ -]{0,40}")

_UUID: Final = re.compile(r"(?:GPU-)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")


def code_said(text: str) -> int:
    """Return the number of what ``cuda-checkpoint`` said when it failed."""
    return next((code for pattern, code in _SAID if pattern.search(text)), UNKNOWN)


def state_of(number: int) -> CudaState:
    """Return the state of a number of the driver; a number that is newer than we are is ``UNKNOWN``.

    Raises:
        CudaRefused: it is no state at all.
    """
    if number < 0:
        raise CudaRefused(f"the driver did not say a state: {number}")
    return STATES[number] if number < len(STATES) else CudaState.UNKNOWN


def state_said(text: str) -> CudaState:
    """Return the state that ``cuda-checkpoint --get-state`` said; a word that is newer than we are is ``UNKNOWN``.

    Raises:
        CudaRefused: it said none.
    """
    word = text.strip().lower()
    if not _WORD.fullmatch(word):
        raise CudaRefused(f"cuda-checkpoint did not say a state: {word[:80]!r}")
    return next((state for state in CudaState if word == state.value), CudaState.UNKNOWN)


def refusal(verb: str, pid: int, code: int, *, root: bool, said: str = "") -> OperationError:
    """Return the error of a call that the driver refused.

    Args:
        verb: What was asked.
        pid: Of which process.
        code: The driver's number.
        root: Whether this process has the rights of root: if not, they are what is missing.
        said: What the program said beside it.
    """
    means = NAMES.get(code, "no result that iriscw knows")
    text = f"CUDA could not {verb} process {pid}: {means} (result {code}{f', {said.strip()[:200]}' if said else ''})"
    if code == NOT_PERMITTED or (code == OPERATING_SYSTEM and not root):
        return RightsMissing(f"{text}; it takes root, or the rights to trace the process")
    if code == OUT_OF_MEMORY:
        return CudaNoMemory(text, code)
    return CudaRefused(text, code)


def uuid_bytes(uuid: str) -> bytes:
    """Return the sixteen bytes of a GPU's UUID.

    Raises:
        ValueError: it is none.
    """
    match = _UUID.fullmatch(uuid)
    if match is None:
        raise ValueError(f"{uuid!r} is not the UUID of a GPU")
    return bytes.fromhex(match.group(1).replace("-", ""))
