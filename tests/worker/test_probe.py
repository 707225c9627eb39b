"""What a machine has is what the kernel lets us use of it."""

import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw.worker import probe as module
from iriscw.worker.gpus import Gpu
from iriscw.worker.probe import (
    AddressUnknown,
    find_address,
    parse_cfs,
    parse_cgroup_path,
    parse_cpu_max,
    parse_gpus,
    parse_meminfo,
    parse_memory_limit,
    probe,
    read_gpus,
)
from raised import that


def test_memory_of_the_machine() -> None:
    """KiB in the kernel's words."""
    assert parse_meminfo("MemTotal:       16384 kB\nMemFree: 1 kB\n") == 16 << 20
    with pytest.raises(ValueError, check=that(comes_from="probe.parse_meminfo")):
        parse_meminfo("MemFree: 1 kB")


@pytest.mark.parametrize(
    ("text", "expected"), [("max 100000\n", None), ("250000 100000", 2500), ("1 100000", 1), ("50000", 500)]
)
def test_cpu_bounds_of_cgroup_2(text: str, expected: int | None) -> None:
    """Quota by period, never rounded down to nothing."""
    assert parse_cpu_max(text) == expected


def test_cpu_bounds_of_cgroup_1() -> None:
    """-1 is no bound."""
    assert parse_cfs("-1\n", "100000\n") is None
    assert parse_cfs("150000\n", "100000\n") == 1500


@pytest.mark.parametrize(
    ("text", "expected"), [("max\n", None), ("9223372036854771712\n", None), ("1073741824\n", 1 << 30)]
)
def test_memory_bounds(text: str, expected: int | None) -> None:
    """Version 1 spells "none" as nearly 2^63."""
    assert parse_memory_limit(text) == expected


def test_the_group_of_a_controller() -> None:
    """Version 1 names controllers, version 2 has one line for all."""
    mixed = "12:cpu,cpuacct:/a\n4:memory:/m:x\n0::/u\n"
    assert parse_cgroup_path(mixed, "cpu") == ("/a", False)
    assert parse_cgroup_path(mixed, "memory") == ("/m:x", False)
    assert parse_cgroup_path("0::/pod\n", "memory") == ("/pod", True)
    assert parse_cgroup_path("", "memory") is None


def test_gpus_and_their_kinds() -> None:
    """The kind is the name without its maker; they come in the order of their indexes."""
    text = "NVIDIA A100-SXM4-80GB, GPU-2, 81920, 1\nNVIDIA H100 80GB HBM3, GPU-1, 81559, 0\n"
    gpus = parse_gpus(text)
    assert [(gpu.kind, gpu.uuid, gpu.memory_bytes >> 20, gpu.index) for gpu in gpus] == [
        ("H100", "GPU-1", 81559, 0),
        ("A100", "GPU-2", 81920, 1),
    ]


@given(st.text())
def test_any_text_of_nvidia_smi_is_survived(text: str) -> None:
    """An error message is no GPU."""
    assert all(isinstance(gpu, Gpu) for gpu in parse_gpus(text))
    assert parse_gpus("Unable to determine the device handle for GPU 0000:07:00.0: Unknown Error\n") == ()


@pytest.mark.parametrize("code", ["raise SystemExit(9)", "import time; time.sleep(60)", "print('[N/A], x, [N/A], 0')"])
def test_a_broken_nvidia_smi_is_no_gpu(code: str) -> None:
    """Failing, hanging or talking nonsense: 0, and in time."""
    assert read_gpus([sys.executable, "-I", "-S", "-c", code], timeout_s=0.3) == ()
    assert read_gpus(["/no/such/nvidia-smi"]) == ()


def test_addresses() -> None:
    """What is given wins; else the way to the controller decides; without a way there is a named error."""
    assert find_address("127.0.0.1", {"IRIS_VM_ADDRESS": "10.1.2.3"}) == "10.1.2.3"
    assert find_address("127.0.0.1", {}) == "127.0.0.1"
    with pytest.raises(AddressUnknown):
        find_address("no.such.host.invalid", {"IRIS_VM_ADDRESS": ""})


def test_the_local_platforms_share_bounds_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least bound counts; a share larger than the machine is no more than the machine."""
    monkeypatch.setattr(module, "read_gpus", lambda: ())
    whole = probe(disk=tmp_path, controller_host="127.0.0.1", environment={})
    assert whole.capacity.cpu_milli >= 1
    assert 0 < whole.capacity.disk_bytes <= shutil.disk_usage(tmp_path).total
    assert whole.address == "127.0.0.1"
    share = {"IRISCW_CPU_MILLI": "1", "IRISCW_MEMORY_BYTES": "1024", "IRISCW_DISK_BYTES": "9" * 30}
    part = probe(disk=tmp_path, controller_host="127.0.0.1", environment=share).capacity
    assert (part.cpu_milli, part.memory_bytes) == (1, 1024)
    assert part.disk_bytes <= shutil.disk_usage(tmp_path).total


def test_instances_of_a_divided_gpu_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``nvidia-smi`` is asked for them where there are GPUs at all; a bound may name them."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "-L) echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'\n"
        "    echo '  MIG 3g.40gb     Device  0: (UUID: MIG-a)'\n"
        "    echo '  MIG 3g.40gb     Device  1: (UUID: MIG-b)';;\n"
        "--query*) echo 'NVIDIA H100 80GB HBM3, GPU-1, 81559, 0';;\n"
        "esac\n"
    )
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = probe(disk=tmp_path, controller_host="127.0.0.1", environment={})
    assert [gpu.uuid for gpu in found.gpus] == ["MIG-a", "MIG-b"]
    assert (found.capacity.gpu_count, found.capacity.gpu_class) == (2, "H100-3g.40gb")
    found = probe(disk=tmp_path, controller_host="127.0.0.1", environment={"CUDA_VISIBLE_DEVICES": "MIG-b"})
    assert [gpu.uuid for gpu in found.gpus] == ["MIG-b"]
