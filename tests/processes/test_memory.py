"""What memory is left, by the machine's figures and by the limits of control groups in either layout."""

import pytest

from iriscw.freeze.drivers.processes.driver import free_memory_of
from iriscw.freeze.model import FreeMemory
from iriscw.processes.memory import free_bytes, group_free_bytes, group_of, limits_on, machine_free_bytes, memory_group

MIB = 1 << 20


def group(folder, names, limit, used, idle):
    """Write a group's figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    prefix = "" if names[0] == "memory.max" else "total_"
    once, twice = idle // 3, idle - idle // 3  # read once, and more often
    (folder / "memory.stat").write_text(f"anon 7\n{prefix}inactive_file {once}\n{prefix}active_file {twice}\n")


UNIFIED = ("memory.max", "memory.current")
OLDER = ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0::/a/b\n", "a/b"),
        ("0::/\n", "."),
        ("4:memory:/x\n0::/\n", "memory/x"),
        ("4:cpu,memory:/x\n", "memory/x"),
        ("1:cpu:/x\n", ""),
        ("0::/../../b\n", ""),
        ("", ""),
        ("nonsense\n", ""),
    ],
)
def test_whose_limit_counts(text, found):
    """The memory controller's own tree where there is one, else the unified one; nothing outside of what is seen."""
    assert memory_group(text) == found


def test_the_lowest_limit_on_the_way_up_counts(tmp_path):
    """A group's own limit, or a tighter one above; cache that nobody uses is free; "max" is none."""
    group(tmp_path / "a" / "b", UNIFIED, 100 * MIB, 60 * MIB, 10 * MIB)
    assert group_free_bytes("a/b", tmp_path) == 50 * MIB
    group(tmp_path / "a", UNIFIED, 100 * MIB, 80 * MIB, 0)
    assert group_free_bytes("a/b", tmp_path) == 20 * MIB
    group(tmp_path / "a", UNIFIED, "max", 80 * MIB, 0)
    group(tmp_path / "a" / "b", UNIFIED, 10 * MIB, 60 * MIB, 0)
    assert group_free_bytes("a/b", tmp_path) == 0
    group(tmp_path / "a" / "b", UNIFIED, "max", 60 * MIB, 0)
    assert group_free_bytes("a/b", tmp_path) is None
    assert group_free_bytes("", tmp_path) is None


def test_the_older_layout(tmp_path):
    """It names figures otherwise, with a huge number for no limit; of a group that is not seen those above count."""
    group(tmp_path / "memory", OLDER, 9223372036854771712, 5, 0)
    group(tmp_path / "memory" / "a", OLDER, 100 * MIB, 60 * MIB, 20 * MIB)
    assert group_free_bytes("memory/a", tmp_path) == 60 * MIB
    assert group_free_bytes("memory/elsewhere", tmp_path) is None
    group(tmp_path / "memory", OLDER, 30 * MIB, 5 * MIB, 0)
    assert group_free_bytes("memory/a", tmp_path) == 25 * MIB
    assert group_free_bytes("memory/elsewhere", tmp_path) == 25 * MIB


def test_a_limit_above_two_groups_is_one_for_both(tmp_path):
    """Two groups below a limited one have it together, and each its own by itself; so has a group in which both are."""
    group(tmp_path / "pod", UNIFIED, 100 * MIB, 70 * MIB, 0)
    group(tmp_path / "pod" / "agent", UNIFIED, 50 * MIB, 10 * MIB, 0)
    group(tmp_path / "pod" / "job", UNIFIED, "max", 60 * MIB, 0)
    agent, job = limits_on("pod/agent", tmp_path), limits_on("pod/job", tmp_path)
    assert free_memory_of(7, agent, job) == FreeMemory(7, 40 * MIB, None, 30 * MIB)
    assert free_memory_of(7, job, agent) == FreeMemory(7, None, 40 * MIB, 30 * MIB)
    assert free_memory_of(7, agent, agent) == FreeMemory(7, None, None, 30 * MIB)
    assert free_memory_of(7, {}, {}) == FreeMemory(7)


def test_a_machine_that_does_not_say_what_is_available(tmp_path):
    """What is free counts then, with the cache of files that is none of shared memory; nothing ends for want of it."""
    meminfo = tmp_path / "meminfo"
    assert machine_free_bytes(meminfo) > 0
    meminfo.write_text("MemTotal: 9 kB\nMemFree: 4 kB\n")
    assert machine_free_bytes(meminfo) == 4 << 10
    meminfo.write_text("MemTotal: 9 kB\nMemFree: 4 kB\nCached: 5 kB\nShmem: 3 kB\n")
    assert machine_free_bytes(meminfo) == 6 << 10
    for broken in ("", "MemAvailable: many kB\n"):
        meminfo.write_text(broken)
        assert machine_free_bytes(meminfo) > 0


def test_this_machine(tmp_path):
    """Its figures are read, and a group never leaves more than the machine has."""
    assert isinstance(group_of(), str)
    assert group_of(1 << 30) == ""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       9 kB\nMemAvailable:       3 kB\n")
    assert machine_free_bytes(meminfo) == 3072
    assert 0 <= free_bytes() < 1 << 60
