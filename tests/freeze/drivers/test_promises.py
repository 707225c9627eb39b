"""What others are about to take is not there for who looks: all of the machine know of it for as long as it lasts."""

import sys

import anyio
import pytest

from iriscw.freeze.drivers.processes import promises
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.drivers.processes.promises import MemoryPromise, left, named
from iriscw.freeze.model import NoRoom
from iriscw.processes.names import MAX_NAME_CHARS
from raised import that

pytestmark = pytest.mark.anyio

GIB = 1 << 30
POD = "kubepods.slice/kubepods-pod1.slice/cri-a.scope"
SIBLING = "kubepods.slice/kubepods-pod1.slice/cri-b.scope"
STRANGER = "kubepods.slice/kubepods-pod2.slice/cri-c.scope"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


LOOK = """
from iriscw.freeze.drivers.processes.promises import of_others
print(sum(each.size_bytes for each in of_others("x")))
"""


def said(*names):
    """Return the promises that these names make."""
    return tuple(promises.promises(name.removeprefix(promises.PREFIX) for name in names))


def test_a_name_says_what_it_is_about():
    """How much, and in which groups, whatever the length of their names; what is no promise is none."""
    deep = "/".join(f"group-{number}-{'x' * 60}" for number in range(20))
    names = [
        named("op-1", 3 * GIB, POD),
        named("o" * 200, 10**17, deep),
        named("op-3", 0, "."),
        "iriscw-thaw-a",
        "other",
    ]
    assert [len(name) <= MAX_NAME_CHARS for name in names] == [True] * 5
    found = said(*names)
    assert [each.size_bytes for each in found] == [3 * GIB, 10**17, 0]
    assert [len(each.groups) for each in found] == [4, 8, 1]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 100 - 10 - 60),
        ({POD: 50}, 20),  # of its own group the one that is in it takes 30
        ({SIBLING: 25}, 5),
        ({STRANGER: 25}, 25 - 10),
        ({"kubepods.slice/kubepods-pod1.slice": 55}, 55 - 50),
        ({".": 70}, 70 - 60),
    ],
)
def test_who_takes_it_counts_where_it_is_taken(limits, expected):
    """On the machine all count, and what tiers take; within a limit those that are below it."""
    others = said(named("a", 30, POD), named("b", 20, SIBLING), named("c", 10, STRANGER))
    assert left(100, limits, others, 10) == expected


async def test_two_operations_do_not_get_the_same_memory(monkeypatch):
    """The second one is told what is left beside the first, until that has taken it; also by another process."""
    monkeypatch.setattr("iriscw.freeze.drivers.processes.driver.machine_free_bytes", lambda: 100 * GIB)
    monkeypatch.setattr("iriscw.freeze.drivers.processes.driver.limits_on", lambda group: {})
    ours, theirs = KernelProcesses(), KernelProcesses()
    before = {promise.who for promise in promises.of_others("")}
    nobody = await ours.promise_memory("test-promises-1", 0, POD)
    assert await ours.promise_memory("test-promises-1", 60 * GIB, POD) == nobody, "its own is not held against it"
    assert await theirs.promise_memory("test-promises-2", 50 * GIB, POD) == nobody - 60 * GIB
    assert await ours.promise_memory("test-promises-1", 60 * GIB, POD, GIB) == nobody - 51 * GIB
    assert int((await anyio.run_process([sys.executable, "-c", LOOK])).stdout) >= 110 * GIB
    theirs.memory_taken("test-promises-2")
    theirs.memory_taken("test-promises-2")
    assert await ours.promise_memory("test-promises-1", 60 * GIB, POD) == nobody
    ours.memory_taken("test-promises-1")
    assert {promise.who for promise in promises.of_others("")} <= before


async def test_a_promise_that_cannot_be_made_known(monkeypatch):
    """Without a descriptor nobody hears of it, so nothing is taken."""

    def none(name):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("iriscw.freeze.drivers.processes.driver.hold", none)
    with pytest.raises(NoRoom, check=that(comes_from="driver.KernelProcesses.promise_memory")):
        await KernelProcesses().promise_memory("test-promises-3", GIB, POD)


def test_a_promise_is_what_it_says():
    """Values that are equal are one."""
    (found,) = said(named("op", 5, "."))
    assert found == MemoryPromise(found.who, 5, found.groups)
