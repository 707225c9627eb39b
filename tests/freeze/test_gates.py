"""What is refused before anything is touched: secrets in a hook, and a freeze that takes more memory than is free."""

import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for freeze_laws, freeze_world

from freeze_laws import freeze_with
from freeze_world import BOOT, MIB, Runner, World, thaw

from iriscw.freeze import freezing
from iriscw.freeze.effects import Opened
from iriscw.freeze.gates import (
    IMAGE_SLACK_BYTES,
    MEMORY_MARGIN_BYTES,
    THAW_GATES,
    TREE_GATES,
    first_shut,
    fresh_numbers,
    hook_trouble,
)
from iriscw.freeze.messages import FreezeTree, OperationEnded
from iriscw.freeze.model import (
    Container,
    CriuAbility,
    CriuOptions,
    CudaAbility,
    CudaState,
    CudaTask,
    FreeMemory,
    FreezePlan,
    FrozenTree,
    Hook,
    HookKind,
    ImageHost,
    Kept,
    Met,
    Numbers,
    Outcome,
    ProcessTree,
    Room,
    Sealed,
    TaskIdentity,
    ThawPlan,
    TreeProcess,
)
from iriscw.freeze.traits import CarriedFolder, FolderSight, FolderStanding, Hindrance, Holder, Obstacle, OpenFile

RESIDENT = 3 * 10 * MIB
DEVICE = 2 * 100 * MIB
IMAGES = RESIDENT + DEVICE + IMAGE_SLACK_BYTES
PLENTY = 1 << 40
HOST, CRIU = ImageHost(BOOT, "x86_64", 4096, "6.18", "node"), CriuAbility("criu", "4.2")
FROZEN = FrozenTree(HOST, CRIU, CriuOptions(), (TreeProcess(TaskIdentity(100, 500, BOOT), 1, "init", 1),))


@pytest.mark.parametrize(
    ("address", "trouble"),
    [
        ("http://127.0.0.1:8080/app", ""),
        ("https://example.com", ""),
        ("http://[::1]:80/app/", ""),
        ("http://user:hunter2@example.com/app", "a user or a password"),
        ("http://hunter2@example.com", "a user or a password"),
        ("http://example.com/app?token=hunter2", "goes on after its path"),
        ("http://example.com/app#hunter2", "goes on after its path"),
        ("http://user:hunter2/x@example.com", "is none"),
        ("http://user:hunter2", "is none"),
        ("ftp://example.com/hunter2", "is none"),
        ("hunter2", "is none"),
        ("http://[hunter2", "is none"),
    ],
)
def test_secrets_in_an_address_go_nowhere(address, trouble):
    """An address with more than a machine and a path is refused before a record of it, and not repeated."""
    hook = Hook(HookKind.HTTP, (address,))
    assert trouble in hook_trouble(hook)
    assert bool(hook_trouble(hook)) == bool(trouble)
    runner = Runner(World(), freezing)
    runner.run(FreezeTree(FreezePlan("op-1", TaskIdentity(100, 500, BOOT), "ram", hook=hook)))
    ends = [each for each in runner.events if isinstance(each, OperationEnded)]
    if trouble:
        assert [(each.outcome, each.kind) for each in ends] == [(Outcome.UNDONE, "UnsafeRequest")]
        assert "hunter2" not in f"{runner.records} {runner.events}"
        assert runner.world.log == []
    else:
        assert [each.outcome for each in ends] == [Outcome.FROZEN]


def test_hooks_that_are_none():
    """A hook names something, and one thing."""
    for hook in (Hook(HookKind.EXEC, ()), Hook(HookKind.FILES, ("",)), Hook(HookKind.HTTP, ("http://a", "http://b"))):
        assert "a hook is one program" in hook_trouble(hook)
    assert hook_trouble(Hook(HookKind.EXEC, ("program", "argument"))) == ""
    assert hook_trouble(None) == ""


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


@pytest.mark.parametrize("taken", [0, 1])
def test_what_others_are_about_to_take_is_not_there(taken):
    """It looked free when it was looked at. So it is refused before anything is touched, and nobody waits for it."""
    world = World(cuda=(0, 2))
    world.memory = FreeMemory(DEVICE + MEMORY_MARGIN_BYTES)
    world.taken = taken
    end = freeze_with(world, tier="disk").state.ended
    assert (end.outcome, end.kind) == ((Outcome.UNDONE, "NoRoom") if taken else (Outcome.FROZEN, ""))
    assert ("lock" in world.log) is not bool(taken)
    if not taken:
        world.taken = world.memory.machine_bytes - 30 * MIB - MEMORY_MARGIN_BYTES
        assert thaw(world).state.ended.outcome is Outcome.THAWED


@pytest.mark.parametrize("lazy", [False, True])
def test_a_thaw_of_what_others_are_about_to_take(lazy):
    """CRIU is not asked, and the checkpoint can be thawed when they have taken it, or not."""
    world = World(cuda=())
    freeze_with(world)
    world.taken = world.memory.machine_bytes - 30 * MIB - MEMORY_MARGIN_BYTES + 1
    end = thaw(world, lazy=lazy).state.ended
    assert (end.outcome, end.kind, "restore" in world.log) == (Outcome.FAILED, "NoRoom", False)
    world.taken = 0
    assert thaw(world, lazy=lazy).state.ended.outcome is Outcome.THAWED


def test_limits_of_control_groups_count():
    """Images count against our groups, device memory against those of the process; where one limits both, both do."""
    images, device = IMAGES + MEMORY_MARGIN_BYTES, DEVICE + MEMORY_MARGIN_BYTES
    assert ended(FreeMemory(PLENTY, images, device)).outcome is Outcome.FROZEN
    assert "control group," in ended(FreeMemory(PLENTY, images - 1, device)).text
    assert "control group of the process" in ended(FreeMemory(PLENTY, images, device - 1)).text
    assert ended(FreeMemory(PLENTY, both_bytes=images + DEVICE)).outcome is Outcome.FROZEN
    assert "control group of both," in ended(FreeMemory(PLENTY, images, device, images + DEVICE - 1)).text


def test_a_tree_whose_pages_are_still_to_come_is_not_frozen():
    """No option helps: its images would be hollow."""
    hindrance = Hindrance(Obstacle.PAGES, 100, "process 100 waits for pages")
    plan = FreezePlan("op-1", TaskIdentity(100, 500, BOOT), "ram", force=True)
    refusal = first_shut(TREE_GATES, plan, ProcessTree((), (hindrance,)))
    assert (refusal.gate, refusal.text) == ("target", hindrance.text)


def test_the_first_process_of_a_namespace():
    """Its container's runtime may freeze it; nobody else may, and nobody what stands below it."""
    root, other = TaskIdentity(100, 500, BOOT), TaskIdentity(101, 500, BOOT)
    tasks = (TreeProcess(root, 1, "init", 1, inner_pid=1), TreeProcess(other, 100, "nested", 1, inner_pid=2))
    box = Container("box", "/run/runc")
    for who, container, shut in ((root, box, False), (root, None, True), (other, box, True), (other, None, True)):
        hindrance = Hindrance(Obstacle.NAMESPACE, who.pid, "it is the first")
        plan = FreezePlan("op-1", root, "ram", container=container)
        refusal = first_shut(TREE_GATES, plan, ProcessTree(tasks, (hindrance,)))
        assert (refusal is not None) == shut
        assert refusal is None or (refusal.gate, refusal.text) == ("target", "it is the first")


@pytest.mark.parametrize("obstacle", Obstacle)
def test_what_is_seen_of_a_tree_is_never_only_seen(obstacle):
    """Each obstacle shuts a gate for who names no option; the leader of a terminal, for who names the one for those."""
    root = TaskIdentity(100, 500, BOOT)
    tree = ProcessTree((TreeProcess(root, 1, "sleep", 1),), (Hindrance(obstacle, 100, "this is in the way"),))
    options = CriuOptions(shell_job=obstacle is Obstacle.LEADER)
    refusal = first_shut(TREE_GATES, FreezePlan("op-1", root, "ram", options=options), tree)
    assert refusal is not None
    assert "this is in the way" in refusal.text


def test_a_tree_in_a_namespace_of_somebody():
    """Its container's runtime may freeze it; CRIU alone would wait for ever."""
    root = TaskIdentity(100, 500, BOOT)
    hindrance = Hindrance(Obstacle.ELSEWHERE, 100, "it is elsewhere")
    tree = ProcessTree((TreeProcess(root, 1, "sleep", 1, inner_pid=7),), (hindrance,))
    for container in (None, Container("box", "/run/runc")):
        refusal = first_shut(TREE_GATES, FreezePlan("op-1", root, "ram", container=container), tree)
        assert (refusal is None) == (container is not None)
        assert refusal is None or (refusal.gate, refusal.text) == ("target", "it is elsewhere")


@pytest.mark.parametrize(
    ("was", "plan", "taken", "shut"),
    [
        (Container("box", "/run/runc"), None, (), "only its runtime"),
        (None, Container("box", "/run/runc"), (), "not a container's"),
        (Container("box", "/run/runc"), Container("other", "/run/runc"), (100,), ""),
        (None, None, (100,), "is taken"),
    ],
)
def test_a_container_comes_back_by_its_runtime(was, plan, taken, shut):
    """It has numbers of its own, so those of this machine may be taken; what is not a container needs them."""
    frozen = attrs.evolve(FROZEN, container=was)
    kept = Kept(frozen, Room("/i", "/w"), Sealed(1, "d", 1))
    opened = Opened(kept, HOST, CRIU, CudaAbility(False), (), taken, (), PLENTY, 5)
    refusal = first_shut(THAW_GATES, ThawPlan("op-2", "op-1", container=plan), opened)
    assert shut in (refusal.text if refusal else "")
    assert (refusal is None) == (shut == "")


USES_CUDA = {"cuda_tasks": (CudaTask(TaskIdentity(100, 500, BOOT), CudaState.RUNNING, 100, 1),), "cuda_driver": "1"}


@pytest.mark.parametrize(
    ("was", "numbers", "taken", "shut"),
    [
        ({}, Numbers.SAME, (), ""),
        ({}, Numbers.SAME, (100,), "numbers: thaw it with --pids auto"),
        ({}, Numbers.AUTO, (100,), ""),
        ({}, Numbers.FRESH, (100,), ""),
        ({"guard": "/attempt"}, Numbers.SAME, (100,), "numbers: thaw it with --pids auto"),
        ({"guard": "/attempt"}, Numbers.AUTO, (), ""),
        ({"guard": "/attempt"}, Numbers.AUTO, (100,), ""),
        ({"guard": "/attempt"}, Numbers.FRESH, (), ""),
        (USES_CUDA, Numbers.AUTO, (100,), "numbers: uses CUDA"),
        (USES_CUDA, Numbers.FRESH, (), "namespace: uses CUDA"),
        ({"options": CriuOptions(shell_job=True)}, Numbers.AUTO, (100,), "numbers: with a terminal"),
        ({"options": CriuOptions(shell_job=True)}, Numbers.FRESH, (), "namespace: with a terminal"),
    ],
)
def test_numbers_that_are_taken(was, numbers, taken, shut):
    """Who may not have a namespace of its own is not told to ask for one."""
    kept = Kept(attrs.evolve(FROZEN, **was), Room("/i", "/w"), Sealed(1, "d", 1))
    cuda = CudaAbility(True, driver_version="1")
    opened = Opened(kept, HOST, CRIU, cuda, (), taken, (), PLENTY, 5)
    plan = ThawPlan("op-2", "op-1", numbers=numbers)
    refusal = first_shut(THAW_GATES, plan, opened)
    gate, _, text = shut.partition(": ")
    assert (refusal.gate if refusal else "") == gate
    assert text in (refusal.text if refusal else "")
    assert "--pids" in shut or refusal is None or "--pids" not in refusal.text
    assert fresh_numbers(plan, opened) == (numbers is Numbers.FRESH or (numbers is Numbers.AUTO and bool(taken)))


@pytest.mark.parametrize(
    ("was", "plan", "way_out"),
    [
        ({"shell_job": True}, {"terminal": True}, ""),
        ({"shell_job": True}, {}, "in the foreground of a terminal"),
        ({"shell_job": True}, {"container": Container("box", "/run/runc")}, ""),
        ({"shell_job": True}, {"terminal": True, "lazy": True}, "without --lazy"),
        ({"shell_job": True}, {"terminal": True, "numbers": Numbers.AUTO}, "without --pids"),
        ({}, {}, ""),
        ({}, {"terminal": True, "lazy": True, "numbers": Numbers.AUTO}, ""),
    ],
)
def test_what_had_a_terminal_comes_back_in_one(was, plan, way_out):
    """Who thaws it has one and stays; a container's runtime gives its own, and what had none needs none."""
    frozen = attrs.evolve(FROZEN, options=CriuOptions(**was), container=plan.get("container"))
    kept = Kept(frozen, Room("/i", "/w"), Sealed(1, "d", 1))
    opened = Opened(kept, HOST, CRIU, CudaAbility(False), (), (), (), PLENTY, 5)
    refusal = first_shut(THAW_GATES, ThawPlan("op-2", "op-1", **plan), opened)
    assert (refusal.gate if refusal else "") == ("terminal" if way_out else "")
    assert way_out in (refusal.text if refusal else "")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("close", [False, True])
def test_connections_are_kept_or_given_up_or_in_the_way(keep, close):
    """One of the two is said where there are any; both are never."""
    options = CriuOptions(tcp_established=keep, tcp_close=close)
    plan = FreezePlan("op-1", TaskIdentity(100, 500, BOOT), "ram", options=options)
    gate = next(each for each in TREE_GATES if each.name == "connections")

    def said(*hindrances):
        return gate.check(plan, ProcessTree((), hindrances))

    connected = said(Hindrance(Obstacle.TCP, 100, "process 100 has a connection"))
    assert bool(connected) == (keep == close)
    assert ("not both" in connected) == (keep and close)
    assert bool(said()) == (keep and close)


OUTSIDE = (
    Hindrance(Obstacle.TERMINAL, 100, "it has a terminal"),
    Hindrance(Obstacle.NO_LEADER, 100, "it leads no session"),
)
SHELL_JOB = CriuOptions(shell_job=True)


@pytest.mark.parametrize(
    ("hindrances", "options", "shut"),
    [
        ((), CriuOptions(), ""),
        ((), SHELL_JOB, ""),
        (OUTSIDE, CriuOptions(), "--shell-job"),
        (OUTSIDE, SHELL_JOB, ""),
        (OUTSIDE[1:], CriuOptions(), "setsid"),
        (OUTSIDE[1:], SHELL_JOB, ""),
        ((*OUTSIDE, Hindrance(Obstacle.TERMINAL, 101, "it has a second one")), SHELL_JOB, "another one"),
        ((OUTSIDE[0], Hindrance(Obstacle.LEADER, 100, "it leads the session")), SHELL_JOB, "leads the session"),
    ],
)
def test_a_terminal_is_one_of_somebody_else_or_none(hindrances, options, shut):
    """A tree gets one terminal back, that of who thaws it, and only if it leads no session itself."""
    plan = FreezePlan("op-1", TaskIdentity(100, 500, BOOT), "ram", options=options)
    refusal = first_shut(TREE_GATES, plan, ProcessTree((), tuple(hindrances)))
    assert (refusal is None) == (shut == "")
    assert refusal is None or (refusal.gate, shut in refusal.text) == ("terminal", True)


LOG = OpenFile("/log", 100, 1, 2, size_bytes=10, changed_ns=5, appended=True)
DATA = OpenFile("/data", 100, 1, 3, size_bytes=10, changed_ns=5)
HELD = attrs.evolve(DATA, guarded=True)
ANOTHER_BOOT = attrs.evolve(HOST, boot_id="other")
RENAMED = attrs.evolve(HOST, node="other")
AWAY = attrs.evolve(ANOTHER_BOOT, node="other")
CARRIED = CarriedFolder("/attempts/a1", "op-1", 0, 3, 10)
COMES = FolderSight(FolderStanding.ABSENT, free_bytes=10)
THERE = FolderSight(FolderStanding.SAME)
INSIDE = attrs.evolve(DATA, path="/attempts/a1/work/data")
BESIDE = attrs.evolve(DATA, path="/attempts/a10/work/data")
CAME_BACK = TaskIdentity(300, 900, BOOT)
HEIR = TaskIdentity(301, 901, BOOT)


@pytest.mark.parametrize(
    ("was", "found", "plan", "shut"),
    [
        ({}, {"living": (CAME_BACK,)}, {}, "source"),
        ({}, {"living": (CAME_BACK,)}, {"clone": True}, ""),
        ({}, {"living": (CAME_BACK,)}, {"force": True}, "source"),
        ({"namespaces": (("mnt", 7),)}, {"namespaces": (("mnt", 7), ("net", 3))}, {}, ""),
        ({"namespaces": (("mnt", 7),)}, {"namespaces": (("mnt", 8),)}, {}, "place"),
        ({"namespaces": (("mnt", 7),)}, {"namespaces": (("mnt", 8),)}, {"force": True}, ""),
        (
            {"namespaces": (("mnt", 7),), "host": attrs.evolve(HOST, boot_id="other")},
            {"namespaces": (("mnt", 8),)},
            {},
            "",
        ),
        ({"files": (LOG,)}, {"files": (attrs.evolve(LOG, size_bytes=20, changed_ns=6),)}, {}, ""),
        ({"files": (LOG,)}, {"files": (attrs.evolve(LOG, inode=4),)}, {}, ""),
        ({"files": (LOG,)}, {"files": (None,)}, {}, "files"),
        ({"files": (DATA,)}, {"host": AWAY, "files": (attrs.evolve(DATA, device=9, inode=4),)}, {}, ""),
        ({"files": (DATA,)}, {"host": AWAY, "files": (attrs.evolve(DATA, size_bytes=9),)}, {}, "files"),
        ({"files": (LOG,)}, {"host": AWAY, "files": (attrs.evolve(LOG, changed_ns=9),)}, {}, "files"),
        ({"files": (LOG,)}, {"host": AWAY, "files": (attrs.evolve(LOG, changed_ns=9),)}, {"force": True}, ""),
        ({"files": (DATA,)}, {"host": ANOTHER_BOOT, "files": (attrs.evolve(DATA, inode=4),)}, {}, "files"),
        ({"files": (DATA,)}, {"host": RENAMED, "files": (attrs.evolve(DATA, inode=4),)}, {}, "files"),
        ({"carried": CARRIED, "files": (INSIDE, DATA)}, {"folder": COMES, "files": (None, DATA)}, {}, ""),
        ({"carried": CARRIED, "files": (INSIDE, BESIDE)}, {"folder": COMES, "files": (None, None)}, {}, "files"),
        ({"carried": CARRIED, "files": (INSIDE,)}, {"folder": THERE, "files": (INSIDE,)}, {}, ""),
        ({"carried": CARRIED, "files": (INSIDE,)}, {"folder": THERE, "files": (None,)}, {}, "files"),
        ({"carried": CARRIED, "files": (INSIDE,)}, {"folder": THERE, "host": AWAY, "files": (None,)}, {}, ""),
        ({"carried": attrs.evolve(CARRIED, path="/attempts/a2")}, {"folder": COMES}, {"force": True}, "folder"),
        ({"carried": CARRIED}, {"folder": attrs.evolve(COMES, free_bytes=9)}, {}, "folder"),
        ({"carried": CARRIED}, {"folder": attrs.evolve(COMES, trouble="no")}, {"force": True}, "folder"),
        ({"carried": CARRIED}, {"folder": attrs.evolve(COMES, standing=FolderStanding.LEFT)}, {}, ""),
        ({"carried": CARRIED}, {"folder": attrs.evolve(COMES, standing=FolderStanding.KEPT)}, {}, "folder"),
        (
            {"carried": CARRIED},
            {"folder": attrs.evolve(COMES, standing=FolderStanding.KEPT)},
            {"force": True},
            "folder",
        ),
        ({"carried": CARRIED}, {"folder": attrs.evolve(THERE, trouble="no", free_bytes=0)}, {}, ""),
        ({"files": (DATA,)}, {"files": (attrs.evolve(DATA, size_bytes=20, changed_ns=6),)}, {}, ""),
        ({"files": (DATA,)}, {"files": (attrs.evolve(DATA, inode=4),)}, {}, "files"),
        ({"files": (DATA,)}, {"files": (attrs.evolve(DATA, inode=4),)}, {"force": True}, ""),
        ({"files": (HELD,)}, {"files": (HELD,)}, {}, ""),
        ({"files": (HELD,)}, {"files": (attrs.evolve(HELD, changed_ns=6),)}, {}, "files"),
        ({"files": (HELD,)}, {"files": (attrs.evolve(HELD, size_bytes=20),)}, {}, "files"),
        ({}, {"met": Met(heirs=(HEIR,))}, {}, "source"),
        ({}, {"met": Met(heirs=(HEIR,))}, {"clone": True}, ""),
        ({}, {"met": Met(heirs=(HEIR,))}, {"force": True}, "source"),
        ({}, {"met": Met(locks=(Holder("/data", 400, "other"),))}, {"force": True}, "locks"),
        ({}, {"met": Met(names=(Holder("/socket", 400, "other"),))}, {}, "names"),
        ({}, {"met": Met(names=(Holder("/socket", 0, ""),))}, {"clone": True}, "names"),
        ({}, {"met": Met(names=(Holder("/socket", 400, "other"),))}, {"force": True}, ""),
        ({}, {"met": Met(ports=(Holder("TCP port 80", 400, "other"),))}, {}, "ports"),
        ({}, {"met": Met(ports=(Holder("TCP port 80", 400, "other"),))}, {"clone": True}, "ports"),
        ({}, {"met": Met(ports=(Holder("TCP port 80", 400, "other"),))}, {"force": True}, ""),
        (
            {},
            {"met": Met(names=(Holder("/socket", CAME_BACK.pid, "it"),)), "living": (CAME_BACK,)},
            {"clone": True},
            "",
        ),
        ({}, {"free_memory_bytes": 1}, {}, "memory"),
    ],
)
def test_what_is_otherwise_at_a_thaw(was, found, plan, shut):
    """A second tree, another place, files that a program would stumble over, and too little memory are refused."""
    frozen = attrs.evolve(FROZEN, **{"guard": CARRIED.path, **was})
    kept = Kept(frozen, Room("/i", "/w"), Sealed(1, "d", 1), returned=(CAME_BACK,))
    opened = attrs.evolve(Opened(kept, HOST, CRIU, CudaAbility(False), (), (), (), PLENTY, 5), **found)
    refusal = first_shut(THAW_GATES, ThawPlan("op-2", "op-1", **plan), opened)
    assert (refusal.gate if refusal else "") == shut


def test_no_folder_is_carried_of_a_container():
    """It has none: the order is refused before anything is looked at."""
    runner = Runner(World(), freezing)
    box = Container("box", "/run/runc")
    runner.run(FreezeTree(FreezePlan("op-1", TaskIdentity(100, 500, BOOT), "ram", carries_folder=True, container=box)))
    (end,) = [each for each in runner.events if isinstance(each, OperationEnded)]
    assert (end.outcome, end.kind) == (Outcome.UNDONE, "UnsafeRequest")
    assert "a container has no folder" in end.text
    assert runner.world.log == []
