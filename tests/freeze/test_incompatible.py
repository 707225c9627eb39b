"""Each thing that keeps a tree from coming back here, or from being frozen: refused once, by its gate (INV-C7)."""

import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for freeze_laws, freeze_world

from freeze_laws import frozen_world, thaw_with
from freeze_world import SimGpus

from iriscw.freeze.effects import Looked, Opened
from iriscw.freeze.gates import (
    FREEZE_GATES,
    MEMORY_MARGIN_BYTES,
    THAW_GATES,
    VRAM_MARGIN_BYTES,
    first_shut,
    whole_map,
)
from iriscw.freeze.model import (
    CriuAbility,
    CriuOptions,
    CudaAbility,
    CudaState,
    CudaTask,
    FreeMemory,
    FreezePlan,
    FrozenTree,
    ImageHost,
    Kept,
    NvmlGpu,
    Outcome,
    ProcessTree,
    Room,
    Sealed,
    TaskIdentity,
    ThawPlan,
    TreeProcess,
)

GIB = 1 << 30
ROOT = TaskIdentity(100, 500, "boot")
HOST = ImageHost("boot", "x86_64", 4096, "6.18", "node", ("avx", "avx512f"))
DRIVER = CudaAbility(True, "580.95.05", "api", can_map_gpus=True)
GPU = NvmlGpu("GPU-1", "H200", 0, 80 * GIB, 0)
OTHER = NvmlGpu("GPU-2", "H200", 1, 80 * GIB, 0)
USER = CudaTask(ROOT, CudaState.RUNNING, 100, 70 * GIB, ("GPU-1",), (("GPU-1", 70 * GIB),))
FROZEN = FrozenTree(
    HOST,
    CriuAbility("criu", "4.2.1"),
    CriuOptions(),
    (TreeProcess(ROOT, 1, "trains", GIB),),
    cuda_driver="580.95.05",
    cuda_tasks=(USER,),
    gpus=(GPU,),
)
PLAN = ThawPlan("th-1", "ck-1")
MAPPED = ThawPlan("th-1", "ck-1", (("GPU-1", "GPU-2"),))
OPENED = Opened(
    Kept(FROZEN, Room("/i", "/w"), Sealed(70 * GIB, "d", 1)),
    HOST,
    FROZEN.criu,
    DRIVER,
    (GPU, OTHER),
    (),
    (),
    1 << 40,
    5,
)
SECOND = attrs.evolve(USER, identity=TaskIdentity(101, 501, "boot"), gpus=("GPU-2",), held=(("GPU-2", 70 * GIB),))
TWO = (USER, SECOND)
OF_TWO = Kept(attrs.evolve(FROZEN, cuda_tasks=TWO), Room("/i", "/w"), Sealed(1, "d", 1))


def on(**changes):
    """Return the machine with these changes."""
    return attrs.evolve(OPENED, **changes)


@pytest.mark.parametrize("plan", [PLAN, MAPPED])
def test_where_all_fits_nothing_is_refused(plan):
    """To the byte: the memory of the GPU and of the machine, each with its margin."""
    exactly = NvmlGpu("", "H200", 0, 70 * GIB + VRAM_MARGIN_BYTES, 0)
    gpus = (attrs.evolve(exactly, uuid="GPU-1"), attrs.evolve(exactly, uuid="GPU-2"))
    opened = on(gpus=gpus, free_memory_bytes=70 * GIB + MEMORY_MARGIN_BYTES)
    assert first_shut(THAW_GATES, plan, opened) is None


@pytest.mark.parametrize(
    ("gate", "plan", "opened", "said"),
    [
        ("architecture", PLAN, on(host=attrs.evolve(HOST, architecture="aarch64")), "frozen on x86_64"),
        ("architecture", PLAN, on(host=attrs.evolve(HOST, page_size=65536)), "pages of 4096 bytes"),
        ("criu", PLAN, on(criu=CriuAbility("criu", "4.2")), "this is CRIU 4.2"),
        ("processor", PLAN, on(host=attrs.evolve(HOST, cpu_features=("avx",))), "lacks avx512f"),
        ("source", PLAN, on(living=(ROOT,)), "still runs"),
        ("driver", PLAN, on(cuda=CudaAbility(False, reason="there is no driver")), "there is no driver"),
        ("driver", PLAN, on(cuda=attrs.evolve(DRIVER, driver_version="570.1")), "this is 570.1"),
        ("driver", MAPPED, on(cuda=attrs.evolve(DRIVER, can_map_gpus=False)), "cannot restore to other GPUs"),
        ("gpus", PLAN, on(gpus=(OTHER,)), "GPU-1 is not here: name another one"),
        ("gpus", MAPPED, on(gpus=(GPU,)), "GPU-2 is not here"),
        ("gpus", MAPPED, on(gpus=(GPU, attrs.evolve(OTHER, model="A100"))), "GPU-2 is a A100"),
        ("gpus", MAPPED, on(kept=OF_TWO), "two GPUs would come to one"),
        ("gpus", ThawPlan("th-1", "ck-1", (("GPU-9", "GPU-2"),)), OPENED, "names GPU GPU-9, and the tree used GPU-1"),
        ("vram", PLAN, on(gpus=(attrs.evolve(GPU, used_bytes=10 * GIB),)), "GPU-1 has 71680 MiB free"),
        ("vram", MAPPED, on(gpus=(GPU, attrs.evolve(OTHER, used_bytes=10 * GIB))), "GPU-2 has 71680 MiB free"),
        ("memory", PLAN, on(free_memory_bytes=70 * GIB), "of memory are free"),
    ],
)
def test_what_does_not_fit_is_refused(gate, plan, opened, said):
    """By the name of the gate, and with what is here and what it needs."""
    refusal = first_shut(THAW_GATES, plan, opened)
    assert refusal is not None
    assert refusal.gate == gate
    assert said in refusal.text


UNEVEN = attrs.evolve(USER, gpus=("GPU-1", "GPU-2"), device_bytes=71 * GIB)


@pytest.mark.parametrize(
    ("held", "free", "shut"),
    [
        ((("GPU-1", 70 * GIB), ("GPU-2", GIB)), (72, 2), None),
        ((("GPU-1", 70 * GIB), ("GPU-2", GIB)), (40, 80), "GPU-1"),
        ((("GPU-1", GIB), ("GPU-2", 70 * GIB)), (80, 40), "GPU-2"),
        ((), (72, 72), None),  # written by an older iriscw: all of it may have been on either
        ((), (72, 40), "GPU-2"),
    ],
)
def test_memory_is_asked_of_the_gpu_that_it_was_on(held, free, shut):
    """Not of all in the mean: a restore that runs out of it on one of them ruins the process for good."""
    kept = Kept(
        attrs.evolve(FROZEN, cuda_tasks=(attrs.evolve(UNEVEN, held=held),)), Room("/i", "/w"), Sealed(1, "d", 1)
    )
    gpus = tuple(
        attrs.evolve(gpu, used_bytes=gpu.total_bytes - left * GIB) for gpu, left in zip((GPU, OTHER), free, strict=True)
    )
    refusal = first_shut(THAW_GATES, PLAN, on(kept=kept, gpus=gpus))
    assert (refusal is not None and refusal.text.split()[1]) == (shut or False)


def test_a_driver_that_moves_nothing_takes_a_map_in_which_nothing_moves():
    """It is given none."""
    stays = ThawPlan("th-1", "ck-1", (("GPU-1", "GPU-1"),))
    assert first_shut(THAW_GATES, stays, on(cuda=attrs.evolve(DRIVER, can_map_gpus=False))) is None


def test_a_map_of_all_that_an_attempt_had_may_name_what_it_did_not_use():
    """Its job knows which GPUs it had, and not on which of them it put something: those are not asked for here."""
    had = ThawPlan("th-1", "ck-1", (("GPU-1", "GPU-2"), ("GPU-9", "GPU-8")), unused_gpus=True)
    assert first_shut(THAW_GATES, had, OPENED) is None
    assert first_shut(THAW_GATES, attrs.evolve(had, unused_gpus=False), OPENED) is not None
    assert whole_map(OPENED.kept.frozen, had.gpus) == (("GPU-1", "GPU-2"),)


def test_a_map_is_whole_or_none():
    """Each GPU that was used is in it, those that stay too: no other is taken by the driver. None if nothing moves."""
    both = OF_TWO.frozen
    assert both.used_gpus == ("GPU-1", "GPU-2")
    assert whole_map(both, (("GPU-1", "GPU-3"),)) == (("GPU-1", "GPU-3"), ("GPU-2", "GPU-2"))
    assert whole_map(both, (("GPU-2", "GPU-1"), ("GPU-1", "GPU-2"))) == (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1"))
    assert whole_map(both, ()) == whole_map(both, (("GPU-1", "GPU-1"),)) == ()


def test_another_processor_is_forced():
    """Only that: what the program uses of it nobody knows."""
    opened = on(host=attrs.evolve(HOST, cpu_features=()))
    assert first_shut(THAW_GATES, attrs.evolve(PLAN, force=True), opened) is None


@pytest.mark.parametrize(
    ("gate", "changes", "said"),
    [
        ("cuda", {"cuda": CudaAbility(False, reason="driver 550 cannot")}, "driver 550 cannot"),
        ("cuda-state", {"cuda_tasks": (attrs.evolve(USER, state=CudaState.LOCKED),)}, "locked for CUDA already"),
        ("cuda-state", {"cuda_tasks": (attrs.evolve(USER, state=CudaState.UNKNOWN),)}, "iriscw does not know"),
        ("cuda-state", {"tree": ProcessTree((attrs.evolve(FROZEN.tasks[0], stopped=True),))}, "let it go on"),
        ("gpus", {"gpus": (OTHER,)}, "GPU-1 is in use and not listed"),
    ],
)
def test_what_cannot_be_frozen_with_its_gpu_is_refused(gate, changes, said):
    """Before anything is locked."""
    seen = Looked(HOST, ProcessTree(FROZEN.tasks), FROZEN.criu, DRIVER, (USER,), (GPU,), FreeMemory(1 << 40), None)
    plan = FreezePlan("ck-1", ROOT, "disk")
    assert first_shut(FREEZE_GATES, plan, seen) is None
    refusal = first_shut(FREEZE_GATES, plan, attrs.evolve(seen, **changes))
    assert refusal is not None
    assert refusal.gate == gate
    assert said in refusal.text


def test_a_gpu_that_is_full_is_never_called(monkeypatch):
    """The thaw fails once, before CRIU and before any call that changes a GPU; with room it comes back."""

    async def full(self):
        return (NvmlGpu("GPU-1", "H200", 0, 80 * GIB, 80 * GIB),)

    world = frozen_world()
    world.log.clear()
    with monkeypatch.context() as patched:
        patched.setattr(SimGpus, "list", full)
        ended = thaw_with(world).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.FAILED, "GateRefused")
    assert ended.text.startswith("vram: GPU GPU-1 has 0 MiB free")
    assert not {"restore", "cuda_restore", "unlock", "verify"} & {*world.log}
    assert thaw_with(world).state.ended.outcome is Outcome.THAWED
    assert {"restore", "cuda_restore", "unlock", "verify"} & {*world.log}
