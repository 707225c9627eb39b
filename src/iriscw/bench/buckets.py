"""Contenders of ``iriscw bench repository``: each writes a folder of images into a bucket, and fetches it back.

A process for each: it is run with the contender's name, the folder, and where to fetch to; the environment says where
the bucket is. It writes a line of JSON for each step: wall time and CPU time of the process in seconds, and how much
memory it had at most beside what it had before, in bytes. Clients are open, and have asked something, before a step
begins. What was fetched is compared with what was there, beside the clock.

* ``iriscw`` stores a checkpoint and fetches it, as a move does: every byte is compared with the tier's digests in both.
* ``s3transfer`` is boto3's transfer manager, with its defaults: what most programs use.
* ``obstore`` is object_store in Rust: objects are written in parts by its own means, and read by ranges of 8 MiB, eight
  at the same time, because it has nothing of its own for that.
"""

from __future__ import annotations

import filecmp
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from iriscw.bench.plane import MeasurementFailed
from iriscw.checkpoint.drivers.digests import Reading, best_algorithm, listed, open_folder
from iriscw.checkpoint.drivers.repository.opening import open_repository
from iriscw.checkpoint.drivers.store import Folders, default_reading
from iriscw.checkpoint.manifest import seal
from iriscw.freeze.model import (
    CriuAbility,
    CriuOptions,
    FrozenTree,
    ImageHost,
    Progress,
    TaskIdentity,
    TreeProcess,
)
from iriscw.objects.drivers.opening import open_store

BUCKET: Final = "bucket"
PAGES: Final = "pages-1.img"
READ_BYTES: Final = 8 << 20
READERS: Final = 8
CHANGED_SHARE: Final = 0.01
"""Of the memory, in one region, before the second checkpoint."""

FROZEN: Final = FrozenTree(
    host=ImageHost("boot", "x86_64", 4096, "6.1", "node", ()),
    criu=CriuAbility("criu", "4.2"),
    options=CriuOptions(),
    tasks=(TreeProcess(TaskIdentity(100, 500, "boot"), 1, "program", 1 << 20),),
)
"""A tree that never was: a repository stores what it says and looks at nothing of it."""


def give(step: str, **figures: float) -> None:
    """Write what a step took."""
    sys.stdout.write(json.dumps({"step": step, **figures}) + "\n")
    sys.stdout.flush()


@contextmanager
def measured(step: str) -> Iterator[dict[str, float]]:
    """Measure a step; more figures can be put into what is yielded."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most so far is what it is now
    before_bytes, before = _memory("VmRSS"), resource.getrusage(resource.RUSAGE_SELF)
    began_s = time.perf_counter()
    more: dict[str, float] = {}
    yield more
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    give(step, wall_s=wall_s, cpu_s=cpu_s, memory_bytes=max(0, _memory("VmHWM") - before_bytes), **more)


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def compared(one: Path, other: Path) -> None:
    """Compare what was fetched with what was written.

    Raises:
        MeasurementFailed: it is something else.
    """
    names = sorted(each.name for each in one.iterdir())
    if not names or filecmp.cmpfiles(one, other, names, shallow=False)[0] != names:
        raise MeasurementFailed(f"what was fetched into {other} is not what was written")


# iriscw


async def iriscw_contender(images: Path, into: Path) -> None:
    """Store a checkpoint, fetch it into a tier, and store it again with a region that has changed."""
    repository = open_repository(f"s3://{BUCKET}/iriscw", lambda pagemaps, window: {}, open_store)
    try:
        await repository.has("first")
        text = await anyio.to_thread.run_sync(_sealed, images, "first")
        with measured("up") as more:
            stored = await repository.store("first", images, text, _unseen)
            more.update(size_bytes=stored.size_bytes, added_bytes=stored.added_bytes)
        tier = Folders("memory", into / "tier", 1 << 50)
        room = tier.reserve("move", stored.size_bytes + len(text))
        with measured("fetch"):
            await repository.fetch("first", Path(room.images), _unseen, compare=False)
            await anyio.to_thread.run_sync(tier.adopt, "move", "first", text, (), _reader)
        compared(images, Path(room.images))
        with _changed(images / PAGES):
            text = await anyio.to_thread.run_sync(_sealed, images, "second")
            with measured("second") as more:
                stored = await repository.store("second", images, text, _unseen)
                more.update(size_bytes=stored.size_bytes, added_bytes=stored.added_bytes)
    finally:
        await repository.aclose()


def _sealed(images: Path, artifact: str) -> bytes:
    folder = open_folder(images)
    try:
        files = tuple(default_reading(lambda count: None).digests(folder, listed(folder)))
    finally:
        os.close(folder)
    return seal(artifact, frozen=FROZEN, files=files, algorithm=best_algorithm())[0]


def _reader(algorithm: str, total: int) -> Reading:
    return Reading(algorithm, max(1, os.cpu_count() or 1), lambda count: None)


@contextmanager
def _changed(pages: Path) -> Iterator[None]:
    """Have other bytes in a region in the middle."""
    size = pages.stat().st_size
    with pages.open("r+b", buffering=0) as file:
        before = os.pread(file.fileno(), int(size * CHANGED_SHARE), size // 2)
        os.pwrite(file.fileno(), os.urandom(len(before)), size // 2)
        yield
        os.pwrite(file.fileno(), before, size // 2)


def _unseen(progress: Progress) -> None:
    """Take progress that nobody looks at."""


# Peers


def s3transfer_contender(images: Path, into: Path) -> None:
    """Write each file as an object, and read it back."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1")
    client.list_objects_v2(Bucket=BUCKET)
    names = sorted(each.name for each in images.iterdir())
    with measured("up"):
        for name in names:
            client.upload_file(str(images / name), BUCKET, name)
    with measured("fetch"):
        for name in names:
            client.download_file(BUCKET, name, str(into / name))
    compared(images, into)


def obstore_contender(images: Path, into: Path) -> None:
    """Write each file as an object, and read it back."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        region="us-east-1",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
    obstore.list(store).collect()
    names = sorted(each.name for each in images.iterdir())
    with measured("up"):
        for name in names:
            obstore.put(store, name, images / name)
    with measured("fetch"), ThreadPoolExecutor(READERS) as pool:
        for name in names:
            _ranges(store, obstore.head(store, name)["size"], name, into / name, pool, obstore.get_range)
    compared(images, into)


def _ranges(
    store: Any, size: int, name: str, into: Path, pool: ThreadPoolExecutor, get_range: Callable[..., Any]
) -> None:
    descriptor = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(start: int) -> None:
        view, at = memoryview(get_range(store, name, start=start, end=min(size, start + READ_BYTES))), start
        while view:
            count = os.pwrite(descriptor, view, at)
            view, at = view[count:], at + count

    try:
        os.ftruncate(descriptor, size)
        list(pool.map(read, range(0, size, READ_BYTES)))
    finally:
        os.close(descriptor)


def main() -> None:
    """Measure the contender named on the command line."""
    contender, images, into = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if contender == "iriscw":
        anyio.run(iriscw_contender, images, into)
    elif contender == "s3transfer":
        s3transfer_contender(images, into)
    else:
        obstore_contender(images, into)


if __name__ == "__main__":
    main()
