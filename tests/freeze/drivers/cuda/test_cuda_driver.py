"""The driver of CUDA over a stand-in for NVIDIA's: every state, every refusal, and whatever hangs or dies."""

import os
import shutil
import signal
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.freeze.drivers.cuda import driver as driver_module
from iriscw.freeze.drivers.cuda.calling import environment
from iriscw.freeze.drivers.cuda.driver import BinaryInterface, LibraryInterface, NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.model import (
    CudaNoMemory,
    CudaOverdue,
    CudaRefused,
    CudaState,
    RightsMissing,
    TargetGone,
    UnsafeRequest,
)
from raised import that

pytestmark = pytest.mark.slow

GIB = 1 << 30
PATIENCE_S = 60.0
WITHIN = 60_000_000_000
NOT_TOLD = 2**64 - 1
"""NVML's word for a figure that it does not tell."""

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))


@pytest.fixture(params=["api", "binary"])
def cuda(request, standin) -> NvidiaCuda:
    """The driver behind its library, and behind its program."""
    return standin.cuda if request.param == "api" else NvidiaCuda(standin.program(), gpus=standin.gpus)


async def test_a_process_goes_through_all_states_and_back(cuda, standin, process) -> None:
    """Locked, its memory taken off the GPU, put back, let go; the lock has a finite time, shorter than ours."""
    task = process()
    ability = await cuda.ability()
    assert (ability.available, ability.driver_version, ability.can_map_gpus) == (True, "580.105.08", True)
    assert await cuda.state(task, WITHIN) is CudaState.RUNNING
    await cuda.lock(task, WITHIN)
    if ability.interface == "stand-in":
        assert standin.get("locked-for") == "54000"
    assert await cuda.state(task, WITHIN) is CudaState.LOCKED
    await cuda.checkpoint(task, WITHIN)
    assert await cuda.state(task, WITHIN) is CudaState.CHECKPOINTED
    assert standin.get("free") == str(10 * GIB)
    await cuda.restore(task, WITHIN, {})
    assert standin.get("free") == str(8 * GIB)
    await cuda.unlock(task, WITHIN)
    assert await cuda.state(task, WITHIN) is CudaState.RUNNING


async def test_what_a_state_does_not_allow_is_refused(cuda, process) -> None:
    """Nothing is done twice, and nothing out of order."""
    task = process()
    for verb in (cuda.checkpoint, cuda.unlock):
        with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names="401")) as caught:
            await verb(task, WITHIN)
        assert caught.value.code == 401
    await cuda.lock(task, WITHIN)
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names="401")):
        await cuda.lock(task, WITHIN)


async def test_a_gpu_without_memory_breaks_the_process_for_good(cuda, standin, process) -> None:
    """The first restore says what is missing; afterwards the process can only be killed."""
    task = process()
    await cuda.lock(task, WITHIN)
    await cuda.checkpoint(task, WITHIN)
    standin.put("free", GIB)
    with pytest.raises(CudaNoMemory):
        await cuda.restore(task, WITHIN, {})
    standin.put("free", 8 * GIB)
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names="304")):
        await cuda.restore(task, WITHIN, {})
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names="401")):
        await cuda.unlock(task, WITHIN)


async def test_the_driver_is_started_for_a_restore_and_for_nothing_else(standin, process) -> None:
    """It takes all GPUs: with persistence mode not even then, and where it does not start a restore is not tried."""
    task, cuda = process(), standin.cuda
    await cuda.tasks([task], WITHIN)
    await cuda.lock(task, WITHIN)
    await cuda.checkpoint(task, WITHIN)
    assert standin.inits() == 0
    standin.put("init.code", 100)
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names=("100", task.pid))) as caught:
        await cuda.restore(task, WITHIN, {})
    assert (caught.value.code, standin.inits()) == (100, 1)
    assert await cuda.state(task, WITHIN) is CudaState.CHECKPOINTED
    standin.put("persistence", 1)
    await cuda.restore(task, WITHIN, {})
    await cuda.unlock(task, WITHIN)
    assert standin.inits() == 1, "a GPU that does not start keeps no process from what does not need it"
    standin.remove("init.code")
    standin.remove("persistence")
    await cuda.lock(task, WITHIN)
    await cuda.checkpoint(task, WITHIN)
    await cuda.restore(task, WITHIN, {})
    assert standin.inits() == 2


async def test_a_call_that_says_that_it_needs_the_driver_is_made_again_after_that(standin, process) -> None:
    """It did nothing; where the driver does not start then, its own answer counts."""
    task = process()
    standin.put("needs-init", "")
    assert await standin.cuda.state(task, WITHIN) is CudaState.RUNNING
    assert standin.inits() == 1
    standin.put("init.code", 100)
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do", names="3")):
        await standin.cuda.lock(task, WITHIN)
    assert standin.get(str(task.pid)).startswith("0 ")


async def test_while_one_of_a_communicator_is_locked_nobody_answers_about_another(standin, process) -> None:
    """Each call ends at its own deadline; who is unlocked lets the other one be asked again."""
    first, second = process(), process()
    standin.put("communicator", f"{first.pid}\n{second.pid}\n")
    cuda = standin.cuda
    await cuda.lock(first, WITHIN)
    for call in (cuda.lock, cuda.state):
        with pytest.raises(CudaOverdue):
            await call(second, 1_000_000_000)
    await cuda.unlock(first, WITHIN)
    assert await cuda.state(second, WITHIN) is CudaState.RUNNING


async def test_who_has_a_context_is_told_by_the_restore_thread(cuda, standin, process) -> None:
    """With its state and its memory on each GPU; who has none is left out."""
    with_context, without, locked = process(), process(None), process(GIB)
    await cuda.lock(locked, WITHIN)
    standin.put("on-gpu", f"{with_context.pid} {2 * GIB}\n")
    found = await cuda.tasks([with_context, without, locked], WITHIN)
    assert [(each.identity, each.state, each.device_bytes, each.gpus) for each in found] == [
        (with_context, CudaState.RUNNING, 2 * GIB, UUIDS[:1]),
        (locked, CudaState.LOCKED, 0, ()),
    ]
    assert found[0].restore_thread == with_context.pid


async def test_what_is_held_is_known_by_gpu(standin, process) -> None:
    """Where NVML does not tell it of a process, it is at most all that is used of that GPU, and never nothing."""
    task = process()
    standin.put("free2", 12 * GIB)
    standin.put("on-gpu", f"{task.pid} {GIB}\n")
    standin.put("on-gpu2", f"{task.pid} {NOT_TOLD}\n")
    (found,) = await standin.cuda.tasks([task], WITHIN)
    assert found.held == ((UUIDS[0], GIB), (UUIDS[1], 4 * GIB))
    assert (found.device_bytes, found.gpus) == (5 * GIB, UUIDS)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("nvml.code", that(comes_from="nvml.NvmlGpus.used_by")),
        ("processes.code", that(comes_from="nvml.NvmlGpus.used_by")),
        ("memory.code", that(comes_from="nvml.NvmlGpus.used_by")),
    ],
)
async def test_a_gpu_that_does_not_tell_is_not_one_that_nobody_uses(standin, process, file, said) -> None:
    """Without NVML, without its list of processes, without either figure of one: who uses CUDA is refused by name."""
    task = process()
    standin.put("on-gpu", f"{task.pid} {NOT_TOLD}\n")
    standin.put(file, 999)
    with pytest.raises(CudaRefused, check=said):
        await standin.cuda.tasks([task], WITHIN)
    assert await standin.cuda.tasks([process(None)], WITHIN) == ()


@pytest.mark.parametrize("number", [4, 5, 17])
async def test_a_state_that_is_newer_than_we_are_has_a_name(cuda, standin, process, number) -> None:
    """It is none of those that we know; no call is made for it."""
    task = process()
    standin.put(str(task.pid), f"{number} {GIB} 0")
    assert await cuda.state(task, WITHIN) is CudaState.UNKNOWN


async def test_who_is_of_a_cuda_job_is_refused(standin, process, monkeypatch) -> None:
    """What its processes share is in the job's file, which no checkpoint has."""
    monkeypatch.setenv("CUDA_CHECKPOINT_JOB_FILE", "/proc/self/fd/3")
    member = process()
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda.tasks")) as caught:
        await standin.cuda.tasks([member], WITHIN)
    assert "/proc/self/fd/3" not in str(caught.value)


async def test_who_holds_a_device_and_has_no_context_is_no_process_without_a_gpu(standin, process, monkeypatch) -> None:
    """Its state on the GPU would be missing from the images: it is a refusal, with and without a driver."""
    child = process(None)
    monkeypatch.setattr(driver_module, "_holds_device", lambda pid: pid == child.pid)
    with pytest.raises(CudaRefused, check=that(names=("NVIDIA's", "CUDA", "NVML"))):
        await standin.cuda.tasks([child], WITHIN)
    nowhere = NvidiaCuda(LibraryInterface("libcuda-that-is-not-there.so"), gpus=standin.gpus)
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda.tasks")):
        await nowhere.tasks([child], WITHIN)
    assert await nowhere.tasks([attrs.evolve(child, pid=os.getpid())], WITHIN) == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["lock", "checkpoint", "restore", "unlock"])
async def test_a_driver_that_hangs_hangs_nobody_else(standin, process, verb, when) -> None:
    """Its caller is killed at the deadline; what it did until then is told by the state, and only by that."""
    task = process()
    states = ["lock", "checkpoint", "restore", "unlock"]
    cuda = standin.cuda
    calls = {
        "lock": lambda: cuda.lock(task, 1_000_000_000),
        "checkpoint": lambda: cuda.checkpoint(task, 1_000_000_000),
        "restore": lambda: cuda.restore(task, 1_000_000_000, {}),
        "unlock": lambda: cuda.unlock(task, 1_000_000_000),
    }
    after = {"": 0, "lock": 1, "checkpoint": 2, "restore": 1, "unlock": 0}
    before = states[: states.index(verb)]
    standin.put(str(task.pid), f"{after[before[-1] if before else '']} {2 * GIB} 0")
    await cuda.ability()
    standin.put(f"{verb}.{when}", "")
    with pytest.raises(CudaOverdue, check=that(names=verb)):
        await calls[verb]()
    standin.remove(f"{verb}.{when}")
    state = await cuda.state(task, WITHIN)
    began, done = ([*CudaState][number] for number in (after[before[-1] if before else ""], after[verb]))
    assert state in (began, done)
    if (standin.folder / f"{verb}.hangs").exists():  # on a slow machine it was killed before it had begun
        assert state is (done if when == "after" else began)
        assert not Path(f"/proc/{standin.get(f'{verb}.hangs')}").exists()  # noqa: ASYNC240


@pytest.mark.parametrize("verb", ["lock", "checkpoint", "restore", "unlock"])
async def test_a_caller_that_is_killed_is_an_outcome_nobody_knows(standin, process, verb) -> None:
    """In each state: the error says so, and the state is read as it is."""
    task = process()
    cuda = standin.cuda
    before = {"lock": 0, "checkpoint": 1, "restore": 2, "unlock": 1}[verb]
    after = {"lock": 1, "checkpoint": 2, "restore": 1, "unlock": 0}[verb]
    standin.put(str(task.pid), f"{before} {2 * GIB} 0")
    await cuda.ability()
    standin.put(f"{verb}.after", "")
    hangs = standin.folder / f"{verb}.hangs"

    async def killing() -> None:
        with anyio.fail_after(PATIENCE_S):
            while not await anyio.Path(hangs).exists():  # noqa: ASYNC110  # the stand-in makes a file, no event
                await anyio.sleep(0.01)
        os.kill(int(hangs.read_text()), signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(killing)
        with pytest.raises(CudaOverdue, check=that(names="SIGKILL")):
            await (cuda.restore(task, WITHIN, {}) if verb == "restore" else getattr(cuda, verb)(task, WITHIN))
    standin.remove(f"{verb}.after")
    assert await cuda.state(task, WITHIN) is list(CudaState)[after]


async def test_a_cancelled_call_kills_its_caller(standin, process) -> None:
    """Nothing of it is left when the cancellation goes on."""
    task = process()
    await standin.cuda.ability()
    standin.put("lock.before", "")
    hangs = standin.folder / "lock.hangs"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(standin.cuda.lock, task, WITHIN)
        with anyio.fail_after(PATIENCE_S):
            while not await anyio.Path(hangs).exists():  # noqa: ASYNC110  # the stand-in makes a file, no event
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert not Path(f"/proc/{hangs.read_text()}").exists()  # noqa: ASYNC240


async def test_the_number_of_another_process_is_not_touched(cuda, standin, process) -> None:
    """The caller looks again, after the library was loaded, whom the number means."""
    task = process()
    await cuda.ability()
    another = attrs.evolve(task, start_ticks=task.start_ticks - 1)
    for call in (cuda.state(another, WITHIN), cuda.lock(another, WITHIN)):
        with pytest.raises(TargetGone):
            await call
    assert standin.get(str(task.pid)).startswith("0 ")


@pytest.mark.parametrize(("code", "error"), [(801, CudaRefused), (800, RightsMissing), (999, CudaRefused)])
async def test_refusals_have_names(standin, process, code, error) -> None:
    """What the driver gives as a number is told in words."""
    task = process()
    standin.put("lock.code", code)
    with pytest.raises(error, check=that(names=str(code))):
        await standin.cuda.lock(task, WITHIN)


async def test_gpus_are_moved_by_a_whole_map_and_only_then(cuda, standin, process) -> None:
    """Each GPU that was used is in it; one in which each stays where it is is none; what is no UUID is refused."""
    task = process()
    standin.put("free2", 16 * GIB)
    standin.put(str(task.pid), f"2 {GIB} 0 {2 * GIB}")
    with pytest.raises(UnsafeRequest):
        await cuda.restore(task, WITHIN, {UUIDS[0]: "0"})
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._do")):
        await cuda.restore(task, WITHIN, {UUIDS[0]: UUIDS[1]})
    await cuda.restore(task, WITHIN, dict(zip(UUIDS, UUIDS[::-1], strict=True)))
    one, two = f"{'0' * 31}1", f"{'0' * 31}2"
    assert standin.get("moved") == f"{one}>{two}\n{two}>{one}\n"
    assert standin.get(str(task.pid)) == f"1 {2 * GIB} 0 {GIB}"
    standin.put(str(task.pid), f"2 {GIB} 0")
    await cuda.restore(task, WITHIN, {UUIDS[0]: UUIDS[0]})
    assert standin.get("moved") == ""


async def test_without_a_driver_the_answer_says_how_to_get_one(standin, process) -> None:
    """No library, no program; a library that is too old; a driver that does not start."""
    cuda = NvidiaCuda(
        LibraryInterface("libcuda-that-is-not-there.so"), BinaryInterface("no-cuda-checkpoint"), gpus=standin.gpus
    )
    ability = await cuda.ability()
    assert not ability.available
    assert "install" in ability.reason
    assert "no-cuda-checkpoint" in ability.reason
    task = process()
    with pytest.raises(CudaRefused, check=that(comes_from="driver.NvidiaCuda._call", names="install")):
        await cuda.lock(task, WITHIN)
    old = NvidiaCuda(LibraryInterface("libc.so.6"), gpus=standin.gpus)
    assert "cuCheckpointProcessGetState" in (await old.ability()).reason
    standin.put("version.code", 34)
    assert "34" in (await standin.cuda.ability()).reason
    standin.remove("version.code")
    assert (await standin.cuda.ability()).available, "that there was none is not kept for ever"
    assert standin.inits() == 0
    unloaded = LibraryInterface(str(standin.library), kernel=standin.folder / "no-kernel")
    assert "the kernel has not loaded" in await unloaded.probe(WITHIN)


async def test_the_program_is_told_only_what_it_knows(standin, process) -> None:
    """An old one has no limit for a lock, and no map: its help says so. A lock that hangs is killed all the same."""
    task = process()
    standin.put("help", "--get-state --get-restore-tid --action lock|checkpoint|restore|unlock")
    cuda = NvidiaCuda(standin.program(), gpus=standin.gpus)
    assert (await cuda.ability()).can_map_gpus is False
    await cuda.lock(task, WITHIN)
    assert standin.get("locked-for") == "0"
    standin.put(str(task.pid), f"0 {GIB} 0")
    standin.put("lock.before", "")
    with pytest.raises(CudaOverdue, check=that(names="lock")):
        await cuda.lock(task, 1_000_000_000)


async def test_the_program_says_that_the_driver_does_not_start(standin, process) -> None:
    """It starts it for each call, whether that needs it or not."""
    task = process()
    cuda = NvidiaCuda(standin.program(), gpus=standin.gpus)
    await cuda.lock(task, WITHIN)
    standin.put("init.code", 100)
    with pytest.raises(CudaRefused, check=that(code=100)):
        await cuda.state(task, WITHIN)


async def test_the_library_may_be_named(standin, process, monkeypatch) -> None:
    """By a variable; NVML is the one beside it. What others could change is not loaded, and is said."""
    monkeypatch.setenv("IRISCW_CUDA_LIBRARY", str(standin.library))
    shutil.copy(standin.library, standin.folder / "libnvidia-ml.so.1")
    task = process()
    cuda = NvidiaCuda(LibraryInterface(kernel=None), missing_for_s=0)
    standin.put("on-gpu", f"{task.pid} {GIB}\n")
    (found,) = await cuda.tasks([task], WITHIN)
    assert found.device_bytes == GIB
    standin.library.chmod(0o666)
    nobody = NvidiaCuda(LibraryInterface(kernel=None), missing_for_s=0)
    assert "others could change what is loaded" in (await nobody.ability()).reason


async def test_the_library_is_found_where_the_environment_says(standin, process, monkeypatch) -> None:
    """By LD_LIBRARY_PATH, which is passed on, as on machines of GKE; nothing else is that NVIDIA's libraries hear."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.folder))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    cuda = NvidiaCuda(LibraryInterface(kernel=None), gpus=standin.gpus)
    assert await cuda.state(process(), WITHIN) is CudaState.RUNNING
    assert [*environment()] == ["PATH", "LC_ALL", "LD_LIBRARY_PATH"]


async def test_gpus_are_seen_with_their_memory(standin) -> None:
    """Total, used, and by process; nothing where there is no NVML."""
    standin.put("on-gpu", f"12 {GIB}\n13 {2 * GIB}\n")
    (gpu,) = await standin.gpus.list()
    assert (gpu.uuid, gpu.model, gpu.index) == (UUIDS[0], "Stand-in", 0)
    assert (gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == (16 * GIB, 8 * GIB, 8 * GIB)
    assert await standin.gpus.used_by([13, 14]) == {13: {UUIDS[0]: 2 * GIB}}
    nowhere = NvmlGpus("libnvidia-ml-that-is-not-there.so")
    assert await nowhere.list() == ()
    with pytest.raises(CudaRefused, check=that(comes_from="nvml.NvmlGpus.used_by")):
        await nowhere.used_by([13])
    assert (await nowhere.look()).missing
    standin.put("nvml.code", 9)
    assert await standin.gpus.list() == ()
