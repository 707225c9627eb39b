"""What a checkpoint in an object store costs, beside programs that copy its files there: ``iriscw bench repository``.

A folder of images goes into a bucket on loopback (:mod:`iriscw.bench.sink`) and comes back, by iriscw and by each peer
that is installed (:mod:`iriscw.bench.buckets`): each in a process of its own with a bucket of its own, in turns within
a round, and in turns each of them begins. A ratio is the peer's time by ours, of one round; of all rounds the one in
the middle counts. More than 1 is faster than the peer. Wall time counts what others do on the machine and what the
bucket does, CPU time is that of the contender's process alone.

Three kinds of memory: *dense* is random, so all of it is sent; *sparse* has zeros in seven pages of eight; *text* is
what zstd makes half of. Peers send all bytes of each.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iriscw.bench.buckets import PAGES
from iriscw.bench.plane import Figures, MeasurementFailed
from iriscw.processes.memory import free_bytes

GOALS: Final[Figures] = {
    "up_beside_s3transfer": 1.2,
    "fetch_beside_s3transfer": 1.2,
    "up_beside_obstore": 0.9,
    "fetch_beside_obstore": 0.9,
    "second_share": 0.05,
}
"""What each is to be at least; ``second_share``, of the bytes that a second checkpoint stores, at most."""

PEERS: Final = {"s3transfer": "boto3", "obstore": "obstore"}
"""Contenders, and the package that each needs."""

KINDS: Final = ("dense", "sparse", "text")
MIB: Final = 1 << 20
FULL_MIB: Final = 512
QUICK_MIB: Final = 64
ROUNDS: Final = 5
TIMEOUT_S: Final = 600
"""Of one contender; it takes seconds."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has mode 0700
COPIES: Final = 4
"""Of the images: the folder, the bucket, what was fetched, and what the second checkpoint writes."""

PAGE_BYTES: Final = 4096

Steps = dict[str, dict[str, float]]
"""What a contender said of each of its steps."""


def run(
    progress: Callable[[str], None], mib: int = FULL_MIB, rounds: int = ROUNDS, kinds: Sequence[str] = KINDS
) -> dict[str, Any]:
    """Measure everything and give the report of ``iriscw bench repository -o json``.

    Raises:
        MeasurementFailed: a contender failed, or there is too little memory.
    """
    if free_bytes() < COPIES * mib * MIB:
        raise MeasurementFailed(f"{mib} MiB are copied {COPIES - 1} times, and the machine has too little memory")
    contenders = ["iriscw", *(peer for peer, package in PEERS.items() if importlib.util.find_spec(package))]
    figures = {}
    for kind in kinds:
        done: list[dict[str, Steps]] = []
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            images = Path(folder) / "images"
            write_images(images, kind, mib)
            for number in range(rounds):
                progress(f"{kind}, {mib} MiB: round {number + 1} of {rounds}")
                turn = number % len(contenders)
                order = [*contenders[turn:], *contenders[:turn]]
                done.append({each: contend(each, images, Path(folder)) for each in order})
        figures[f"{kind} memory"] = [{"mib": mib, **figures_of(done)}]
    return {"figures": figures, "goals": GOALS, "rounds": rounds, "peers": contenders[1:]}


def write_images(images: Path, kind: str, mib: int) -> None:
    """Write a folder of images whose pages are of this kind."""
    images.mkdir(0o700)
    (images / "inventory.img").write_bytes(os.urandom(300))
    (images / "pstree.img").write_bytes(os.urandom(300))
    with (images / PAGES).open("wb") as file:
        for _ in range(mib):
            if kind == "dense":
                file.write(os.urandom(MIB))
            elif kind == "text":
                file.write(os.urandom(MIB // 2).hex().encode())
            else:
                file.write(
                    b"".join(os.urandom(PAGE_BYTES) + bytes(7 * PAGE_BYTES) for _ in range(MIB // PAGE_BYTES // 8))
                )


def contend(contender: str, images: Path, folder: Path) -> Steps:
    """Run a contender with a new bucket, and give what it said of its steps.

    Raises:
        MeasurementFailed: it failed, or took too long.
    """
    with tempfile.TemporaryDirectory(dir=folder) as into, _sink() as port:
        command = [sys.executable, "-m", "iriscw.bench.buckets", contender, str(images), into]
        keys = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}
        place = {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"}
        environment = {**os.environ, **place, **keys}
        try:
            done = subprocess.run(  # noqa: S603  # a list of arguments
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise MeasurementFailed(f"{contender} took more than {TIMEOUT_S} s") from error
    if done.returncode:
        raise MeasurementFailed(f"{contender} failed: {done.stderr.strip()[-500:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line.pop("step"): line for line in lines}


@contextlib.contextmanager
def _sink() -> Iterator[int]:
    """Run a bucket, and give its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "iriscw.bench.sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sink:
        assert sink.stdin is not None
        assert sink.stdout is not None
        try:
            line = sink.stdout.readline()
            if not line:
                raise MeasurementFailed("the bucket does not listen")
            yield int(line)
        finally:
            sink.stdin.close()  # it ends with it
            sink.wait(TIMEOUT_S)


def figures_of(rounds: Sequence[Mapping[str, Steps]]) -> Figures:
    """Say what rounds come to: the middle of each figure, and of each ratio within a round."""
    found: Figures = {}
    for step in ("up", "fetch", "second"):
        of_step = [each["iriscw"][step] for each in rounds]
        found |= {
            f"{step}_s": statistics.median(one["wall_s"] for one in of_step),
            f"{step}_cpu_s": statistics.median(one["cpu_s"] for one in of_step),
            f"{step}_memory_mib": statistics.median(one["memory_bytes"] for one in of_step) / MIB,
        }
        for peer in PEERS:
            both = [(each["iriscw"][step], each[peer][step]) for each in rounds if step in each.get(peer, {})]
            if both:
                found |= {
                    f"{step}_beside_{peer}": statistics.median(its["wall_s"] / our["wall_s"] for our, its in both),
                    f"{step}_cpu_beside_{peer}": statistics.median(its["cpu_s"] / our["cpu_s"] for our, its in both),
                    f"{step}_memory_mib_{peer}": statistics.median(its["memory_bytes"] for _, its in both) / MIB,
                }
    for name, step in (("stored_share", "up"), ("second_share", "second")):
        last = rounds[-1]["iriscw"][step]
        found[name] = last["added_bytes"] / last["size_bytes"]
    return found
