"""NVIDIA's numbers and words: what the driver and ``cuda-checkpoint`` say, as our errors and states."""

from __future__ import annotations

import re
from typing import Final

from iriscw.errors import OperationError
from iriscw.freeze.model import CudaNoMemory, CudaRefused, CudaState, RightsMissing

SUCCESS: Final = 0
OUT_OF_MEMORY: Final = 2
OPERATING_SYSTEM: Final = 304
ILLEGAL_STATE: Final = 401
NOT_PERMITTED: Final = 800
NOT_SUPPORTED: Final = 801
UNKNOWN: Final = 999

NAMES: Final = {
    1: "invalid value",
    OUT_OF_MEMORY: "out of memory",
    3: "not initialized",
    34: "the library is a stub",
    35: "the driver is older than what was asked of it",
    100: "no device",
    101: "invalid device",
    OPERATING_SYSTEM: "a call of the operating system failed: rights are missing, or the state is broken",
    400: "invalid handle",
    ILLEGAL_STATE: "the process is in a state that does not allow this",
    500: "not found",
    600: "not ready: it did not come to rest in time",
    NOT_PERMITTED: "not permitted",
    NOT_SUPPORTED: "not supported: managed memory, IPC, MIG, MPS, this GPU, or this driver",
    UNKNOWN: "unknown",
}
"""What a result means, in words of ours. A number that is not here is told as it is."""

STATES: Final = (CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED, CudaState.FAILED)
"""By the driver's numbers. CUDA 13.4 adds two that only a caller who copies memory itself ever sees."""

_SAID: Final = (
    (re.compile(r"out of memory", re.IGNORECASE), OUT_OF_MEMORY),
    (re.compile(r"OS call failed", re.IGNORECASE), OPERATING_SYSTEM),
    (re.compile(r"present state|illegal state", re.IGNORECASE), ILLEGAL_STATE),
    (re.compile(r"not permitted|permission", re.IGNORECASE), NOT_PERMITTED),
    (re.compile(r"not supported", re.IGNORECASE), NOT_SUPPORTED),
    (re.compile(r"not ready|timed? ?out", re.IGNORECASE), 600),
)
"""How ``cuda-checkpoint`` words a result; the first that fits. ``OS call failed or operation not supported`` is 304."""

_UUID: Final = re.compile(r"(?:GPU-)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")


def code_said(text: str) -> int:
    """Give the number of what ``cuda-checkpoint`` said when it failed."""
    return next((code for pattern, code in _SAID if pattern.search(text)), UNKNOWN)


def state_of(number: int) -> CudaState:
    """Give the state of a number of the driver.

    Raises:
        CudaRefused: it is one that iriscw does not know.
    """
    if 0 <= number < len(STATES):
        return STATES[number]
    raise CudaRefused(f"the driver says that the process is in state {number}, which iriscw does not know")


def state_said(text: str) -> CudaState:
    """Give the state that ``cuda-checkpoint --get-state`` said.

    Raises:
        CudaRefused: it said none.
    """
    word = text.strip().lower()
    for state in CudaState:
        if word == state.value:
            return state
    raise CudaRefused(f"cuda-checkpoint did not say a state: {word[:80]!r}")


def refusal(verb: str, pid: int, code: int, *, root: bool, said: str = "") -> OperationError:
    """Give the error of a call that the driver refused.

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
    """Give the sixteen bytes of a GPU's UUID.

    Raises:
        ValueError: it is none.
    """
    match = _UUID.fullmatch(uuid)
    if match is None:
        raise ValueError(f"{uuid!r} is no UUID of a GPU")
    return bytes.fromhex(match.group(1).replace("-", ""))
