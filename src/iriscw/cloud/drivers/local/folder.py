"""Where the local platform keeps what it knows: one folder per pool, one below it per pod.

::

    <root>/lock                         held by the one controller
    <root>/pools/<pool>/pool.json
    <root>/pools/<pool>/pods/<pod>/pod.json, pod.log, pod.log.1, identity.json, exit.json, work/

Names are RFC 1123 labels, so none of them can leave its folder. A record is written before what it describes
is begun and removed after everything else of it is gone; so whatever a crash leaves is found by reading the
records. All functions block.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from iriscw._errors import OperationError
from iriscw.cloud.drivers.local.records import PodRecord, PoolRecord, decode_pod, decode_pool, encode
from iriscw.files import PRIVATE_FILE_MODE, make_private_folder, read_bounded, remove_tree, write_atomic

_R = TypeVar("_R")

MAX_RECORD_BYTES = 4 << 20
"""A pool of 10,000 nodes takes about 1 MB."""


class WorkdirLocked(OperationError):
    """Another controller runs its local platform in this folder."""

    retryable = True


class WorkdirCorrupt(OperationError):
    """A record in the folder cannot be read; the error names the file."""


@attrs.frozen
class Folder:
    """The folder of one local platform."""

    root: Path

    def pool(self, name: str) -> Path:
        """Return the folder of a pool."""
        return self.root / "pools" / name

    def pod(self, record: PodRecord) -> Path:
        """Return the folder of a pod."""
        return self.pool(record.spec.pool) / "pods" / record.spec.name

    def pod_log(self, record: PodRecord) -> Path:
        """Return the file that takes the standard output and error of a pod."""
        return self.pod(record) / "pod.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other controllers; the lock goes with the process.

        Raises:
            WorkdirLocked: another one holds it.
        """
        make_private_folder(self.root / "pools")
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WorkdirLocked(f"another controller uses {self.root}") from error
            yield
        finally:
            os.close(descriptor)

    def save_pool(self, record: PoolRecord) -> None:
        """Write a pool's record."""
        make_private_folder(self.pool(record.spec.name) / "pods")
        write_atomic(self.pool(record.spec.name) / "pool.json", encode(record))

    def save_pod(self, record: PodRecord) -> None:
        """Write a pod's record."""
        make_private_folder(self.pod(record) / "work")
        write_atomic(self.pod(record) / "pod.json", encode(record))

    def remove_pool(self, name: str) -> None:
        """Remove a pool with all below it, its record last."""
        remove_tree(self.pool(name), last="pool.json")

    def remove_pod(self, record: PodRecord) -> None:
        """Remove a pod with all below it, its record last."""
        remove_tree(self.pod(record), last="pod.json")

    def load(self) -> tuple[list[PoolRecord], list[PodRecord]]:
        """Read all records; folders without one were never begun, or are all but removed, and go.

        Raises:
            WorkdirCorrupt: a record cannot be read.
        """
        pools: list[PoolRecord] = []
        pods: list[PodRecord] = []
        for pool_folder in sorted((self.root / "pools").iterdir()):
            pool = _load(pool_folder / "pool.json", decode_pool)
            if pool is None:
                remove_tree(pool_folder)
                continue
            pools.append(pool)
            for pod_folder in sorted((pool_folder / "pods").iterdir()):
                pod = _load(pod_folder / "pod.json", decode_pod)
                if pod is None:
                    remove_tree(pod_folder)
                    continue
                pods.append(pod)
        return pools, pods


def _load(path: Path, decode: Callable[[bytes], _R]) -> _R | None:
    try:
        return decode(read_bounded(path, MAX_RECORD_BYTES))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise WorkdirCorrupt(f"{path} cannot be read: {error}") from error
