"""How long each step may take: a base, and more for every byte (INV-C2).

The rates are a tenth of what slow machines were seen to do, because a deadline that is met too early leaves a process
locked, and one that is met too late only costs patience: CRIU writes 3 GB/s to memory and 50 MB/s to a poor disk, the
driver copies 10 GB/s over PCIe.
"""

from __future__ import annotations

from iriscw.runtime.vocabulary import SECOND

DUMP_BASE_NS = 60 * SECOND
DUMP_BYTES_PER_S = 20_000_000

RESTORE_BASE_NS = 60 * SECOND
RESTORE_BYTES_PER_S = 20_000_000

PAGING_BASE_NS = 60 * SECOND
PAGING_BYTES_PER_S = 20_000_000
"""Of pages that are read, compared and put into a tree that runs."""

CUDA_START_NS = 60 * SECOND
"""For the driver to start on all GPUs (``cuInit``), where persistence mode is off: seconds on machines with eight, and
no page says how many. A restore may need that; and any other call may have the kernel's half of it loaded."""

COPY_BASE_NS = 60 * SECOND + CUDA_START_NS
COPY_BYTES_PER_S = 500_000_000
"""Of device memory, to the host or back."""

UNLOCK_NS = 60 * SECOND + CUDA_START_NS
STATE_NS = CUDA_START_NS
"""One question to the driver, which may wait for a call of another process: 7 s were seen. ``cuda-checkpoint`` starts
the driver for it. One that is not answered is asked again: see :mod:`iriscw.freeze.settling`."""

END_NS = 30 * SECOND
"""From SIGKILL to the end of the last task. One in a driver's call dies when that returns."""

LOOK_NS = CUDA_START_NS

GUARD_NS = 60 * SECOND
"""For a supervisor that came back to see whether it may go on: milliseconds, but on a disk that hangs."""

GRANT_NS = 10 * SECOND
"""For who has the grant of a program to offer it in a folder that has just come: milliseconds, from when it hears."""


def grown(base_ns: int, size_bytes: int, bytes_per_s: int) -> int:
    """Return the time for a step that handles so many bytes."""
    return base_ns + size_bytes * SECOND // bytes_per_s


def dump_ns(size_bytes: int) -> int:
    """Return the time for a dump of so much memory."""
    return grown(DUMP_BASE_NS, size_bytes, DUMP_BYTES_PER_S)


def restore_ns(size_bytes: int) -> int:
    """Return the time for a restore of so much memory."""
    return grown(RESTORE_BASE_NS, size_bytes, RESTORE_BYTES_PER_S)


def paging_ns(size_bytes: int) -> int:
    """Return the time for so many pages of a tree that runs."""
    return grown(PAGING_BASE_NS, size_bytes, PAGING_BYTES_PER_S)


def copy_ns(device_bytes: int) -> int:
    """Return the time for a CUDA checkpoint or restore of so much device memory."""
    return grown(COPY_BASE_NS, device_bytes, COPY_BYTES_PER_S)
