"""The gate of memory: what a freeze takes before it gives anything back, held against what is free."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for freeze_laws, freeze_world

from freeze_laws import freeze_with
from freeze_world import MIB, World

from iriscw.freeze.gates import IMAGE_SLACK_BYTES, MEMORY_MARGIN_BYTES
from iriscw.freeze.model import FreeMemory, Outcome

RESIDENT = 3 * 10 * MIB
DEVICE = 2 * 100 * MIB
IMAGES = RESIDENT + DEVICE + IMAGE_SLACK_BYTES
PLENTY = 1 << 40


def ended(memory, *, cuda=(0, 2), promised=0, tier="ram"):
    """Freeze a tree on a machine with so much memory; give how it ended."""
    world = World(cuda=cuda)
    world.memory, world.promised = memory, promised
    runner = freeze_with(world, tier=tier)
    if runner.state.ended.outcome is Outcome.UNDONE:
        assert not {"reserve", "lock", "dump"} & {*world.log}, "something was touched"
    return runner.state.ended


@pytest.mark.parametrize("promised", [0, 500 * MIB])
def test_images_in_memory_and_device_memory_are_counted(promised):
    """Images take what is resident and what is on GPUs; CUDA copies that once more; and what others were promised."""
    needed = IMAGES + DEVICE + promised + MEMORY_MARGIN_BYTES
    assert ended(FreeMemory(needed), promised=promised).outcome is Outcome.FROZEN
    end = ended(FreeMemory(needed - 1), promised=promised)
    assert (end.outcome, end.kind) == (Outcome.UNDONE, "GateRefused")
    assert end.text.startswith("memory: ")
    assert end.text.endswith("freeze it to disk")


def test_a_disk_takes_device_memory_only():
    """Images are not in memory then; without a GPU nothing is asked for."""
    needed = DEVICE + MEMORY_MARGIN_BYTES
    assert ended(FreeMemory(needed), tier="disk").outcome is Outcome.FROZEN
    end = ended(FreeMemory(needed - 1), tier="disk")
    assert (end.kind, "disk" in end.text) == ("GateRefused", False)
    assert ended(FreeMemory(0), tier="disk", cuda=()).outcome is Outcome.FROZEN


def test_limits_of_control_groups_count():
    """Images count against our group, device memory against that of the process; in one group both do."""
    images, device = IMAGES + MEMORY_MARGIN_BYTES, DEVICE + MEMORY_MARGIN_BYTES
    assert ended(FreeMemory(PLENTY, images, device, together=False)).outcome is Outcome.FROZEN
    assert "control group," in ended(FreeMemory(PLENTY, images - 1, device, together=False)).text
    assert "control group of the process" in ended(FreeMemory(PLENTY, images, device - 1, together=False)).text
    assert "control group," in ended(FreeMemory(PLENTY, images, images, together=True)).text
    assert ended(FreeMemory(PLENTY, images + DEVICE, images, together=True)).outcome is Outcome.FROZEN
