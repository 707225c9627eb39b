"""Looking at GPUs, with a stand-in for ``nvidia-smi``: one that answers, one that does not, and one that hangs."""

import subprocess
import time
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.worker.drivers import gpu_watch
from iriscw.worker.drivers.gpu_watch import GpuWatch
from iriscw.worker.gpu_readings import GpuReading, parse_readings, readings_of
from iriscw.worker.gpus import Gpu

GPUS = (Gpu("NVIDIA H100 80GB HBM3", "GPU-a", 80 << 30, 0), Gpu("NVIDIA H100 80GB HBM3", "GPU-b", 80 << 30, 1))
SAYS = """\
GPU-a, 97, 40960, 81559, 61, 688.21
GPU-b, 0, 4, 81559, 29, 71.9
GPU-somebody-elses, 1, 1, 1, 1, 1
"""
READ = {
    "GPU-a": GpuReading("GPU-a", 97, 40960 << 20, 81559 << 20, 61, 688_210),
    "GPU-b": GpuReading("GPU-b", 0, 4 << 20, 81559 << 20, 29, 71_900),
}


@pytest.fixture
def smi(tmp_path):
    """Make a program that counts how often it is called, and does what it is told."""

    def make(text):
        path = tmp_path / "nvidia-smi"
        path.write_text(f'#!/bin/sh\necho x >> "{tmp_path}/calls"\n{text}\n')
        path.chmod(0o700)
        return [str(path)]

    make.calls = lambda: (tmp_path / "calls").read_text().count("x") if (tmp_path / "calls").exists() else 0
    return make


def saying(text):
    return f"cat <<'END'\n{text}END"


def test_lines_become_figures():
    """Of the GPUs that are asked about; percent, MiB, degrees and W, and nothing of what is no such line."""
    assert parse_readings(SAYS, ["GPU-a", "GPU-b"]) == READ
    assert parse_readings(SAYS, ["GPU-b"]) == {"GPU-b": READ["GPU-b"]}
    assert parse_readings("no devices were found\n\nGPU-a, 1\n", ["GPU-a"]) == {}


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Unknown Error]", "", "-1", "1e3", "nan"])
def test_what_the_machine_does_not_say_is_none(word):
    """A figure that is no number is left out; the others are there."""
    read = parse_readings(f"GPU-a, {word}, {word}, 81559, 61, {word}", ["GPU-a"])
    assert read == {"GPU-a": GpuReading("GPU-a", None, None, 81559 << 20, 61, None)}


def test_of_an_instance_only_the_temperature_is_known():
    """What else is said is of the whole GPU, which others use as well; one whose GPU is not named is not known."""
    part = Gpu("NVIDIA H100 MIG 3g.40gb", "MIG-1", 40 << 30, 0, part="3g.40gb", whole="GPU-a")
    other = attrs.evolve(part, uuid="MIG-2", whole="GPU-z")
    assert readings_of(SAYS, [part, other, GPUS[1]]) == {
        "MIG-1": GpuReading("MIG-1", temperature_c=61),
        "GPU-b": READ["GPU-b"],
    }


async def test_one_look_is_one_question(smi):
    """Whatever the number of GPUs."""
    watch = GpuWatch(GPUS, command=smi(saying(SAYS)))
    assert (watch.last().readings, bool(watch.last().problem)) == ({}, True)
    await watch.look()
    assert (watch.last().readings, watch.last().problem, watch.last().failures) == (READ, "", 0)
    assert (watch.last().gpus, smi.calls()) == (GPUS, 1)


@pytest.mark.parametrize("text", ["exit 9", saying("no devices\n"), "kill -9 $$", f"{saying(SAYS)}\nexit 1"])
async def test_a_broken_one_is_a_problem_and_no_error(smi, text):
    """What was read before is shown meanwhile, as long as it is young."""
    watch = GpuWatch(GPUS, command=smi(saying(SAYS)))
    await watch.look()
    smi(text)
    await watch.look()
    assert (watch.last().failures, bool(watch.last().problem)) == (1, True)
    if "no devices" not in text:
        assert watch.last().readings == READ


async def test_a_missing_one_is_a_problem_and_no_error():
    """A machine whose driver was taken away."""
    watch = GpuWatch(GPUS, command=["/no/such/nvidia-smi"])
    await watch.look()
    assert (watch.last().readings, watch.last().failures) == ({}, 1)
    assert "/no/such/nvidia-smi" in watch.last().problem


async def test_what_is_old_is_not_shown(smi, monkeypatch):
    """A figure of an hour ago would be taken for one of now."""
    watch = GpuWatch(GPUS, command=smi(saying(SAYS)), period_s=10)
    await watch.look()
    now = time.monotonic()
    monkeypatch.setattr(gpu_watch.time, "monotonic", lambda: now + 29)
    assert watch.last().readings == READ
    monkeypatch.setattr(gpu_watch.time, "monotonic", lambda: now + 31)
    assert watch.last().readings == {}


@pytest.mark.parametrize("text", ["exec sleep 600", f"{saying(SAYS)}\nexec sleep 600", "exec yes"])
async def test_one_that_hangs_is_killed(smi, text):
    """Also in the midst of its answer, and one that never stops to talk."""
    watch = GpuWatch(GPUS, command=smi(text), answer_s=0.3)
    with anyio.fail_after(20):
        await watch.look()
    assert watch.last().failures == 1
    assert watch.last().readings == {}
    smi(saying(SAYS))
    await watch.look()
    assert watch.last().readings == READ


async def test_one_that_a_kill_does_not_end_is_not_waited_for(smi, monkeypatch):
    """It hangs in the driver: nobody waits, no second one is started beside it, and another is when it is gone."""
    watch = GpuWatch(GPUS, command=smi("exec sleep 600"), answer_s=0.2)
    monkeypatch.setattr(gpu_watch, "GONE_S", 0.1)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    with anyio.fail_after(20):
        await watch.look()
        await watch.look()
        await watch.look()
    assert (smi.calls(), watch.last().failures) == (1, 3)
    monkeypatch.undo()
    watch._hung.kill()
    watch._hung.wait()
    smi(saying(SAYS))
    await watch.look()
    assert watch.last().readings == READ


async def test_who_is_cancelled_leaves_nothing_behind(smi):
    """A worker that ends does not wait for an answer."""
    watch = GpuWatch(GPUS, command=smi("exec sleep 600"), answer_s=60)
    with anyio.move_on_after(0.3):
        await watch.serve()
    assert (smi.calls(), watch._hung) == (1, None)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_looks_leave_no_descriptor_open(smi):
    """A worker lives for months."""
    watch = GpuWatch(GPUS, command=smi(saying(SAYS)))
    before = descriptors()
    for _ in range(5):
        await watch.look()
    assert descriptors() <= before
