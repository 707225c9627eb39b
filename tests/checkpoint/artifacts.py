"""Artifacts without CRIU: files with the names that it gives, and facts of a tree that never was."""

import os
import random
from pathlib import Path

from iriscw.checkpoint.drivers.digests import Reading
from iriscw.checkpoint.drivers.plug import TierContext
from iriscw.checkpoint.drivers.store import Folders, default_reading
from iriscw.freeze.model import CriuAbility, CriuOptions, FrozenTree, ImageHost, Room, TaskIdentity, TreeProcess

TASKS = tuple(TreeProcess(TaskIdentity(pid, 500, "boot-1"), 1, f"t{pid}", 1 << 20) for pid in (100, 101))
FROZEN = FrozenTree(
    host=ImageHost("boot-1", "x86_64", 4096, "6.1", "node-1", ("avx",)),
    criu=CriuAbility("criu", "4.2"),
    options=CriuOptions(),
    tasks=TASKS,
)


def folders(tmp_path: Path, *, budget_bytes: int = 1 << 30, **words) -> Folders:
    """Return a tier below ``tmp_path``."""
    return Folders("disk", tmp_path / "tier", budget_bytes, **words)


def fill(room: Room, *, large: bool = True) -> None:
    """Write what CRIU would have."""
    images = Path(room.images)
    rng = random.Random(3)
    for name in ("inventory.img", "pstree.img", "core-100.img", "core-101.img", "empty.img"):
        (images / name).write_bytes(b"" if name == "empty.img" else rng.randbytes(300))
    (images / "pages-1.img").write_bytes(rng.randbytes(70_000) * (256 if large else 1))


def published(tmp_path: Path, *, large: bool = True, **words) -> Folders:
    """Return a tier with the artifact ``op-1``, of an operation that is over."""
    tier = folders(tmp_path, **words)
    fill(tier.reserve("op-1", 40 << 20), large=large)
    tier.seal("op-1", FROZEN, (("model", "a"),), default_reading(lambda count: None), lambda size: None)
    tier.publish("op-1")
    tier.unpin("op-1", "op-1")
    return tier


def verify(tier: Folders, artifact: str) -> None:
    """Read every byte and compare."""
    tier.verify(artifact, lambda algorithm, total: Reading(algorithm, 2, lambda count: None))


def damage(path: Path, rng: random.Random) -> str:
    """Flip a bit of a file, or make it shorter or longer."""
    size = path.stat().st_size
    kind = rng.choice(["flip", "flip", "cut", "grow"]) if size else "grow"
    with path.open("r+b") as file:
        if kind == "cut":
            file.truncate(rng.randrange(size))
        elif kind == "grow":
            file.seek(0, os.SEEK_END)
            file.write(b"\0")
        else:
            at = rng.randrange(size)
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))
    return f"{kind} of {path.name}"


def context_of(tmp_path: Path, name: str, **words) -> TierContext:
    """Return what a tier is opened with, for a state folder below ``tmp_path``."""
    given = {"environment": {}, "folder": None, "budget_bytes": 0, "boot_id": "boot-1", **words}
    return TierContext(name=name, state=tmp_path / "state", forget=lambda images, work: None, **given)
