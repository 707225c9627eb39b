# A test's own loop may block: nobody else waits for it.
"""What CRIU wrote, damaged in five hundred ways: each is found by reading, before any CRIU is asked to restore it."""

import random
import sys
from pathlib import Path

import anyio.to_thread
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "checkpoint"))  # for artifacts

from artifacts import FROZEN, damage, folders, verify

from iriscw.checkpoint.drivers.store import MANIFEST, default_reading
from iriscw.freeze.model import ArtifactRefused

pytestmark = pytest.mark.slow

DAMAGES = 500
PATIENCE_NS = 60_000_000_000


async def test_five_hundred_damages_are_found(criu, program, folder) -> None:
    """Flipped bits, truncations and bytes too many, in each file of an artifact in turn, its manifest included."""
    target = program("threads", "files", "unix", "locks", "epoll")
    tier = folders(folder)
    room = tier.reserve("op-1", 1 << 28)
    held = await criu.dump(attrs.evolve(target.dump(), images=room.images), lambda progress: None)
    await held.resume(PATIENCE_NS)

    def damaged_and_found() -> None:
        tier.seal("op-1", FROZEN, (), default_reading(lambda count: None), lambda size: None)
        tier.publish("op-1")
        place = tier.root / "artifacts" / "op-1"
        wholes = {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
        assert {MANIFEST, "inventory.img", "pages-1.img", "files.img"} <= {path.name for path in wholes}
        verify(tier, "op-1")
        rng, missed = random.Random(11), []
        for number in range(DAMAGES):
            path = [*wholes][number % len(wholes)]
            what = damage(path, rng)
            try:
                verify(tier, "op-1")
            except ArtifactRefused:
                path.write_bytes(wholes[path])
            else:
                missed.append(what)
        assert missed == []
        verify(tier, "op-1")

    await anyio.to_thread.run_sync(damaged_and_found)
