"""A freeze and a thaw under crashes, faults and cancellations: whatever happens, nothing is lost and nothing is locked.

The real decisions and the real desk run on a simulated machine (``freeze_world.py``), which has a crash at every await
of every port and before and after every record. What must hold stands in ``freeze_laws.py``.
"""

import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.testing.contexts import FakeContext

sys.path.insert(0, str(Path(__file__).parent))  # for freeze_world, freeze_laws

from freeze_laws import (
    FREEZE_FAULTS,
    LAZY_FAULTS,
    PACK_FAULTS,
    PLACE_FAULTS,
    SCENARIOS,
    THAW_FAULTS,
    error,
    every_fault,
    freeze_with,
    frozen_world,
    thaw_with,
)
from freeze_world import (
    HOOK,
    MIB,
    Broken,
    Held,
    Runner,
    SimArtifacts,
    SimProcesses,
    World,
    check,
    freeze,
    thaw,
)

from iriscw.freeze import freezing, settling, thawing
from iriscw.freeze.effects import EndTree, RestoreCuda, UnlockCuda
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import (
    ArtifactRefused,
    ArtifactUnknown,
    CudaNoMemory,
    CudaRefused,
    CudaState,
    FreezePhase,
    FreezePlan,
    GuardRefused,
    HookFailed,
    NoRoom,
    Numbers,
    Outcome,
    PagingFailed,
    RightsMissing,
    ThawPhase,
    ThawPlan,
    TreeChanged,
    TreeLeft,
    VerifyFailed,
)
from iriscw.freeze.records import FreezeFateKnown, FreezeSealed, ThawTakenUp
from iriscw.freeze.traits import CarriedFolder, Hindrance, Obstacle
from iriscw.runtime.vocabulary import Run

CRASHES = [(orphan, late) for orphan in (False, True) for late in (False, True)]


def freeze_everywhere(faults=(), remover=False, grant=None, **plan):
    """Freeze with a crash at each boundary in turn, until there is none left; give the outcomes."""
    outcomes = []
    for orphan, late in CRASHES:
        number, lives = 0, 2
        while lives > 1:
            number += 1
            raised = {(m, n): error(kind) for m, n, kind in faults}
            world = World(orphan=orphan, late=late, faults=raised, remover=remover, grant=grant)
            runner = freeze_with(world, crashes=(number,), **plan)
            lives = runner.lives
            outcomes.append(runner.state.ended and runner.state.ended.outcome)
    return outcomes


def thaw_everywhere(faults=(), plan=None, **words):
    """Thaw with a crash at each boundary in turn."""
    outcomes = []
    for orphan, late in CRASHES:
        number, lives = 0, 2
        while lives > 1:
            number += 1
            world = frozen_world(orphan=orphan, late=late, **words)
            world.faults = {(m, n): error(kind) for m, n, kind in faults}
            runner = thaw_with(world, crashes=(number,), **(plan or {}))
            lives = runner.lives
            outcomes.append(runner.state.ended and runner.state.ended.outcome)
    return outcomes


def thaw_lazily_everywhere(faults=(), **words):
    """Thaw lazily with a crash at each boundary in turn."""
    return thaw_everywhere(faults, {"lazy": True}, cuda=(), **words)


def thaw_freshly_everywhere(faults=(), **words):
    """Thaw into a PID namespace with a crash at each boundary in turn: somebody has a number of the tree."""
    return thaw_everywhere(faults, {"numbers": Numbers.AUTO}, cuda=(), strangers=(101,), **words)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_freeze_without_faults(name):
    """It comes to its end, with or without CUDA, and the tree ends only when its artifact is whole."""
    wanted = Outcome.COPIED if "leave" in name else Outcome.FROZEN
    for cuda in ((0, 2), ()):
        runner = freeze_with(World(cuda=cuda), **SCENARIOS[name])
        assert runner.state.ended.outcome is wanted
        assert (FreezePhase.LOCKING in runner.state.steps) == bool(cuda)


def test_a_thaw_without_faults():
    """What was frozen comes back, with CUDA, and goes on from where it was."""
    assert thaw_with(frozen_world()).state.ended.outcome is Outcome.THAWED
    assert thaw_with(frozen_world(cuda=())).state.ended.outcome is Outcome.THAWED


def test_what_was_stopped_stays_stopped():
    """A task that was stopped before it was frozen is stopped after a thaw, and after a freeze that was undone."""
    for words in ({}, {"faults": {("seal", 1): error(FREEZE_FAULTS["seal"][0])}}):
        world = World(cuda=(), **words)
        world.processes[1].stopped = world.processes[1].was_stopped = True
        freeze_with(world)
        if not words:
            thaw_with(world)
        assert [each.stopped for each in world.living()] == [False, True, False]


@pytest.mark.parametrize("name", ["end", "leave, hook, force"])
def test_a_freeze_with_a_crash_at_every_boundary(name):
    """Wherever the process that freezes dies, the next one finishes or undoes."""
    outcomes = freeze_everywhere(**SCENARIOS[name])
    assert {Outcome.UNDONE, Outcome.COPIED if "leave" in name else Outcome.FROZEN} <= {*outcomes}
    assert len(outcomes) > 150


def test_nobody_removes_what_is_not_over():
    """An artifact is pinned from before it is visible until its tree has ended, wherever its freeze dies meanwhile."""
    assert {*freeze_everywhere(remover=True)} == {Outcome.UNDONE, Outcome.FROZEN, None}
    world = frozen_world(remover=True)
    assert world.artifacts["op-1"].pins == []


def test_a_thaw_with_a_crash_at_every_boundary():
    """Wherever the process that thaws dies, the tree runs again or nothing of it is left."""
    outcomes = thaw_everywhere()
    assert {*outcomes} >= {Outcome.THAWED, Outcome.FAILED}
    assert len(outcomes) > 150


@pytest.mark.parametrize(
    ("numbers", "strangers", "fresh"),
    [
        (Numbers.SAME, (), False),
        (Numbers.AUTO, (), False),
        (Numbers.AUTO, (102,), True),
        (Numbers.FRESH, (), True),
    ],
)
def test_a_thaw_gets_the_numbers_that_it_may_have(numbers, strangers, fresh):
    """Those that it had where that can be; else, with leave, others, and the end says which."""
    world = frozen_world(cuda=(), strangers=strangers)
    runner = thaw_with(world, numbers=numbers)
    assert runner.state.ended.outcome is Outcome.THAWED
    assert all(each.fresh is fresh for each in world.living())
    note = "it has a PID namespace of its own: its first process is 1100 here, and 100 in there"
    assert runner.state.ended.text == (note if fresh else "")


def test_a_thaw_whose_numbers_are_taken_is_refused_without_leave():
    """The refusal names the option that would have it."""
    runner = thaw_with(frozen_world(cuda=(), strangers=(102,)))
    ended = runner.state.ended
    assert (ended.outcome, ended.kind) == (Outcome.FAILED, "GateRefused")
    assert "process number 102 is taken here" in ended.text
    assert "--pids auto" in ended.text


def test_a_lazy_thaw_into_a_namespace_is_an_eager_one_and_says_so():
    """Both are notes of its end."""
    world = frozen_world(cuda=())
    text = thaw_with(world, lazy=True, numbers=Numbers.FRESH).state.ended.text
    assert "PID namespace of its own all of it comes back at once; it has a PID namespace of its own: its" in text
    assert "paging" not in world.log


def test_a_thaw_into_a_namespace_with_a_crash_at_every_boundary():
    """It runs there, or nothing of it is left; no sweep goes by numbers that mean others here."""
    outcomes = thaw_freshly_everywhere()
    assert {*outcomes} == {Outcome.THAWED, Outcome.FAILED, None}
    assert len(outcomes) > 100


def test_a_thaw_into_a_namespace_with_each_fault():
    """Likewise with each error that a port may have."""
    for method, number, kind in every_fault(LAZY_FAULTS):
        world = frozen_world(cuda=(), strangers=(100,))
        world.faults = {(method, number): error(kind)}
        thaw_with(world, numbers=Numbers.AUTO)


def test_a_lazy_thaw_without_faults():
    """The tree runs before its pages are there, and it is over when they are; the application is told once, at once."""
    world = World(cuda=())
    freeze_with(world, hook=HOOK)
    ended = thaw_with(world, lazy=True).state.ended
    assert (ended.outcome, ended.text) == (Outcome.THAWED, "")
    assert not world.missing
    steps = [each for each in world.log if each in ("restore", "proceed", "wake", "paging")]
    assert steps == ["restore", *["proceed"] * 4, "wake", "paging"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({}, "CUDA"),
        ({"cuda": (), "uffd": False}, "userfaultfd"),
        ({"cuda": (), "by_pieces": False}, "older iriscw"),
    ],
)
def test_a_lazy_thaw_that_cannot_be_is_an_eager_one_and_says_so(words, why):
    """CUDA, a kernel without userfaultfd, a manifest without digests of pieces: all is read before it runs."""
    world = frozen_world(**words)
    runner = thaw_with(world, lazy=True)
    assert runner.state.ended.outcome is Outcome.THAWED
    assert why in runner.state.ended.text
    assert "paging" not in world.log


def test_a_lazy_thaw_with_a_crash_at_every_boundary():
    """Who brings the pages goes on: the tree runs, or nothing of it is left, and none that ran is killed."""
    outcomes = thaw_lazily_everywhere()
    assert {*outcomes} == {Outcome.THAWED, Outcome.FAILED, None}
    assert len(outcomes) > 150


def test_a_tree_that_is_forsaken_is_killed():
    """Who brings the pages dies in the same crash: wherever that is, no task is left that waits for ever."""
    ends = []
    for number in range(1, 120):
        world = frozen_world(cuda=(), forsaken=True)
        runner = thaw_with(world, crashes=(number,), lazy=True)
        if world.lost_pages:
            ended = runner.state.ended
            assert ended.outcome is Outcome.FAILED
            assert world.artifacts["op-1"].pins == []
            ends.append(ended.kind)
    assert {*ends} == {"Interrupted", "PagingFailed"}


@pytest.mark.parametrize("kind", [ArtifactRefused, PagingFailed])
def test_pages_that_do_not_come_end_the_tree(kind):
    """A damaged piece, or a pager that was killed, while the tree runs: it is killed, and the end says why."""
    world = frozen_world(cuda=())
    world.faults = {("paging", 1): error(kind)}
    ended = thaw_with(world, lazy=True).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.FAILED, kind.__name__)
    assert world.killed_running


@pytest.mark.parametrize("failures", [5, 6])
def test_pages_of_which_nobody_can_tell_are_asked_for_again(failures):
    """No descriptor is free for a look at them: the tree may be whole, and is killed at the last try only."""
    world = frozen_world(cuda=())
    world.faults = {("paging", number): OSError("no more files") for number in range(1, failures + 1)}
    if failures == 5:
        assert thaw_with(world, lazy=True).state.ended.outcome is Outcome.THAWED
        assert not world.killed_running
    else:
        ended = thaw(world, lazy=True).state.ended
        assert (ended.outcome, ended.kind) == (Outcome.FAILED, "OSError")
    assert not world.faults


def test_a_tree_that_ends_by_itself_while_its_pages_come_was_thawed():
    """It did what it had left to do: that is no failure, and the end says so."""

    class Short(World):
        def tick(self):
            super().tick()
            if self.log[-1:] == ["paging"]:
                self.wear_out(self.living(), 0)

    world = Short(cuda=())
    freeze_with(world)
    runner = thaw(world, lazy=True)
    assert runner.state.ended.outcome is Outcome.THAWED
    assert "3 of its 3 processes have ended since" in runner.state.ended.text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("everywhere", [thaw_everywhere, thaw_freshly_everywhere])
@pytest.mark.parametrize("grant", [False, True])
def test_a_guarded_thaw_with_a_crash_at_every_boundary(grant, everywhere):
    """The first process comes back alone: without leave it ends, and none of the others has run, crash or not."""
    outcomes = everywhere(grant=grant)
    assert {*outcomes} - {None} == ({Outcome.THAWED, Outcome.FAILED} if grant else {Outcome.FAILED})
    if grant:
        everywhere([("vouched", 1, GuardRefused)], grant=True)
        everywhere([("vouched", 1, RightsMissing)], grant=True)


def test_a_freeze_that_carries_its_folder_with_a_crash_at_every_boundary():
    """The folder is packed while nothing of the tree runs, and what keeps it from being packed undoes the freeze."""
    plan = {"carries_folder": True}
    assert {*freeze_everywhere(grant=True, **plan)} == {Outcome.FROZEN, Outcome.UNDONE, None}
    for fault in every_fault(PACK_FAULTS, (1,)):
        runner = freeze_with(World(grant=True, faults={fault[:2]: error(fault[2])}), **plan)
        assert (runner.state.ended.outcome, runner.state.ended.kind) == (Outcome.UNDONE, fault[2].__name__)
    runner = freeze_with(World(grant=True), **plan)
    assert runner.world.artifacts["op-1"].facts.carried == CarriedFolder("/attempt", "op-1", 0, 3, 3 << 20)
    none = freeze_with(World(), **plan)
    assert (none.state.ended.outcome, none.state.ended.kind) == (Outcome.UNDONE, "FolderUnfit")


def test_a_copy_that_carries_its_folder_with_a_crash_at_every_boundary():
    """Its folder is packed before the tree runs on, and what keeps it from being packed undoes the copy: it runs on."""
    plan = {"carries_folder": True, "leave_running": True}
    assert {*freeze_everywhere(grant=True, **plan)} == {Outcome.COPIED, Outcome.UNDONE, None}
    for fault in every_fault(PACK_FAULTS, (1,)):
        runner = freeze_with(World(grant=True, faults={fault[:2]: error(fault[2])}), **plan)
        assert (runner.state.ended.outcome, runner.state.ended.kind) == (Outcome.UNDONE, fault[2].__name__)
    runner = freeze_with(World(grant=True), **plan)
    assert runner.world.artifacts["op-1"].facts.carried == CarriedFolder("/attempt", "op-1", 0, 3, 3 << 20)
    assert runner.world.calls["pack"] == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grant", [False, True])
def test_a_thaw_with_its_folder_and_a_crash_at_every_boundary(grant):
    """It is in its place before the tree is back. It stays if a grant was taken, else what was there comes back."""
    outcomes = thaw_everywhere(grant=grant, carries_folder=True)
    assert {*outcomes} - {None} == ({Outcome.THAWED, Outcome.FAILED} if grant else {Outcome.FAILED})
    for fault in every_fault(PLACE_FAULTS, (1,)):
        thaw_everywhere([fault], grant=grant, carries_folder=True)
    for number in range(1, 100):
        thaw_with(frozen_world(grant=grant, carries_folder=True), cancel_at=number)


def test_a_folder_that_cannot_be_left_is_said():
    """What stays beside its place changes no outcome."""
    world = frozen_world(grant=True, carries_folder=True)
    world.faults = {("leave", number): error(OSError) for number in range(1, 8)}
    ended = thaw(world).state.ended
    assert ended.outcome is Outcome.THAWED
    assert "what it left beside /attempt stays there" in ended.text


@pytest.mark.parametrize("stopped", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_who_was_stopped_stays_so_and_all_others_run(stopped):
    """Also where the first process is a guard that somebody had stopped: it has to run, as nobody else can vouch."""
    world = World(cuda=(), grant=True)
    for index in stopped:
        world.processes[index].stopped = world.processes[index].was_stopped = True
    freeze_with(world)
    runner = thaw(world)
    assert runner.state.ended.outcome is Outcome.THAWED
    assert [each.stopped for each in world.living()] == [False, *(index in stopped for index in (1, 2))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cuda", [(), (0, 2)])
@pytest.mark.parametrize("attrition", [0, 1])
def test_a_thawed_tree_that_has_run_is_never_killed(attrition, cuda):
    """A process of it, the first one too, ends by itself before the crash is found: the others go on."""
    outcomes = thaw_everywhere(attrition=attrition, cuda=cuda)
    assert {*outcomes} == {Outcome.THAWED, Outcome.FAILED, None}


def test_a_tree_that_was_not_ended_after_all_is_not_ended_later():
    """The command dies when the tree is to be killed; CRIU lets it run on, and a process of it ends by itself."""
    lives = []
    for number in range(1, 120):
        world = World(cuda=())
        runner = Runner(world, freezing, (number,))
        wear = []

        def crash(life, world=world, runner=runner, wear=wear, real=world.crash):
            real(life)
            if runner.state.phase is FreezePhase.ENDING and len(world.living()) == 3:
                world.wear_out(world.living(), 1)
                wear.append(life)

        world.crash = crash
        ended = runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "ram"))).ended
        if wear:
            assert ended.outcome is Outcome.UNDONE
            assert world.artifacts == {}
            assert world.at_first_kill == {}
            lives.append(len(world.living()))
    assert {*lives} == {2}


@pytest.mark.parametrize("readings", [1, 100])
def test_an_end_of_which_nobody_can_tell_removes_nothing(readings):
    """After a crash in the end who lives cannot be read: it is read again, and at last reported; the artifact stays."""
    ends = []
    for number in range(1, 120):
        world = World()
        runner = Runner(world, freezing, (number,))

        def crash(life, world=world, runner=runner, real=world.crash):
            real(life)
            if runner.state.phase is FreezePhase.ENDING:
                seen = world.calls.get("living", 0)
                world.faults |= {("living", seen + each): OSError("no more files") for each in range(1, readings + 1)}
                ends.append(runner)

        world.crash = crash
        runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "ram")))
    outcomes = {runner.state.ended.outcome for runner in ends}
    assert outcomes == ({Outcome.LEFT} if readings > 1 else {Outcome.FROZEN, Outcome.UNDONE})
    for runner in ends:
        assert len(runner.world.artifacts) == (runner.state.ended.outcome is not Outcome.UNDONE)
        if runner.state.ended.outcome is Outcome.LEFT:
            assert runner.state.ended.kind == "OSError"


@pytest.mark.parametrize("leave_running", [False, True])
def test_what_was_sealed_outlives_a_tree_that_is_gone(leave_running):
    """The power goes at every boundary: from the seal on the state of the tree is on the disk, and it stays there."""
    kept = []
    for number in range(1, 120):
        world = World()
        runner = Runner(world, freezing, (number,))

        def crash(life, world=world, real=world.crash):
            real(life)
            for process in world.living():
                process.alive, process.cuda = False, None

        world.crash = crash
        plan = FreezePlan("op-1", world.source[0], "disk", leave_running=leave_running)
        ended = runner.run(FreezeTree(plan)).ended
        if runner.lives == 1 or ended is None:
            continue
        sealed = any(isinstance(record, FreezeSealed) for record in runner.records)
        whole = [each.published and each.sealed for each in world.artifacts.values()]
        assert whole == [True] * sealed, number
        assert (ended.outcome in (Outcome.FROZEN, Outcome.COPIED)) is sealed, number
        check(world, runner)
        kept.append(sealed)
    assert {*kept} == {False, True}


def power_cut_at(number, cancel_at=0):
    """Freeze to the disk; the power goes at one boundary, somebody presses a key at another. Give world and runner."""
    world = World(cuda=())
    runner = Runner(world, freezing, (number,), cancel_at)

    def crash(life, real=world.crash):
        real(life)
        for process in world.living():
            process.alive = False

    world.crash = crash
    runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "disk")))
    check(world, runner)
    return world, runner


def test_nobody_cancels_what_is_all_that_there_is_of_a_tree():
    """Somebody presses a key at every boundary after a power cut: what was sealed is published all the same."""
    published = 0
    for number in range(1, 80):
        for later in range(25):
            world, runner = power_cut_at(number, number + later)
            if any(isinstance(record, FreezeSealed) for record in runner.records):
                assert [each.published for each in world.artifacts.values()] == [True], (number, later)
                published += runner.lives > 1
    assert published > 100


def test_a_tree_that_ran_again_and_is_lost_is_what_was_sealed():
    """It was brought back to running, and the power goes: its images are the last of it, if they are still sealed."""
    ends = []
    for cancel_at in range(20, 50):
        for number in range(cancel_at, cancel_at + 30):
            world, runner = power_cut_at(number, cancel_at)
            fates = [record.gone for record in runner.records if isinstance(record, FreezeFateKnown)]
            if runner.lives > 1 and fates[:1] == [""]:
                ended = runner.state.ended.outcome
                whole = [each.sealed and each.published for each in world.artifacts.values()]
                assert whole == [True] * (ended is Outcome.FROZEN), (number, cancel_at)
                ends.append(ended)
    assert {*ends} == {Outcome.FROZEN, Outcome.LOST, Outcome.UNDONE}


@pytest.mark.parametrize("leave_running", [False, True])
def test_what_lay_in_memory_is_gone_with_the_machine(monkeypatch, leave_running):
    """The power goes at every boundary, and with it tree and images: it comes to an end, and says no more than is."""

    async def publish(ports, operation, real=SimArtifacts.publish):
        if operation not in ports.world.artifacts:
            raise ArtifactUnknown("it has no room in any tier")
        await real(ports, operation)

    async def seal(ports, operation, *rest, real=SimArtifacts.seal):
        if operation not in ports.world.artifacts:
            raise ArtifactUnknown("it has no room in any tier")
        return await real(ports, operation, *rest)

    monkeypatch.setattr(SimArtifacts, "publish", publish)
    monkeypatch.setattr(SimArtifacts, "seal", seal)
    outcomes = []
    for number in range(1, 120):
        world = World()
        runner = Runner(world, freezing, (number,))
        told = []

        def crash(life, world=world, runner=runner, told=told, real=world.crash):
            real(life)
            told.append(runner.state.ended)
            world.artifacts.clear()
            for process in world.living():
                process.alive, process.cuda = False, None

        world.crash = crash
        plan = FreezePlan("op-1", world.source[0], "ram", leave_running=leave_running)
        ended = runner.run(FreezeTree(plan)).ended
        if told == [None] and ended is not None:
            outcomes.append(ended.outcome)
    assert {*outcomes} == {Outcome.UNDONE, Outcome.LOST}


@pytest.mark.parametrize("failures", [3, 50])
def test_images_of_a_tree_that_is_gone_wait_for_room(failures):
    """They are published when there is room again; if there never is, they stay where they are, which is said."""
    ends = []
    for number in range(1, 60):
        world = World()
        runner = Runner(world, freezing, (number,))
        waits = []

        def crash(life, world=world, waits=waits, real=world.crash):
            real(life)
            waits.extend(each.sealed and not each.published for each in world.artifacts.values())
            world.calls.clear()
            world.faults = {("publish", each): error(NoRoom) for each in range(1, failures)}
            for process in world.living():
                process.alive, process.cuda = False, None

        world.crash = crash
        ended = runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "disk"))).ended
        if waits == [True] and any(isinstance(record, FreezeSealed) for record in runner.records):
            ends.append(ended)
            assert world.artifacts["op-1"].published is (failures < 5)
            assert ended.outcome is (Outcome.FROZEN if failures < 5 else Outcome.LOST), number
            assert ("stay in images-" in ended.text) is (failures > 5)
    assert ends


@pytest.mark.parametrize(("method", "kind"), [("state", CudaRefused), ("proceed", RightsMissing)])
def test_a_tree_of_which_nobody_can_tell_is_left_alone(method, kind):
    """After a crash the driver does not say how a process is, or a signal is refused: that is reported, and no more."""
    outcomes = []
    for number in range(1, 70):
        world = frozen_world()
        world.after_crash = {method: kind}
        runner = Runner(world, thawing, (number,))
        ended = runner.run(ThawTree(ThawPlan("op-2", "op-1"))).ended
        outcomes.append(ended and ended.outcome)
        if ended and ended.outcome is Outcome.LEFT:
            assert len(world.living()) == 3
            assert "left alone: processes 100, 101, 102" in ended.text
            assert world.artifacts["op-1"].pins == []
        assert world.killed_running == 0
    assert {*outcomes} == {Outcome.LEFT, Outcome.FAILED, Outcome.THAWED, None}


def test_an_application_that_was_not_told_is_reported():
    """A hook that fails to the end changes no outcome, and the end says that it did."""
    always = {("wake", number): error(HookFailed) for number in range(1, 20)}
    for words in ({"leave_running": True}, {"cancel_at": 30}):
        ended = freeze_with(World(faults=always), hook=HOOK, unheard=True, **words).state.ended
        assert ended.outcome is (Outcome.COPIED if "leave_running" in words else Outcome.UNDONE)
        assert "simulated: HookFailed" in ended.text
    world = World()
    freeze_with(world, hook=HOOK)
    world.calls.clear()
    world.faults = dict(always)
    ended = thaw_with(world, unheard=True).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.THAWED, "HookFailed")
    assert "simulated: HookFailed" in ended.text


def test_a_tree_that_somebody_let_go_is_not_kept_as_an_artifact_too(monkeypatch):
    """CRIU is killed while it holds the tree, which runs on without its CUDA: that comes back, the rest is undone."""

    async def end(held, within_ns):
        held.ports.world._orphan_over()
        raise TreeLeft("CRIU was ended by somebody")

    monkeypatch.setattr(Held, "end", end)
    world = World()
    runner = freeze_with(world)
    assert (runner.state.ended.outcome, runner.state.ended.kind) == (Outcome.UNDONE, "Interrupted")
    assert world.artifacts == {}
    assert {process.cuda for process in world.living()} == {None, CudaState.RUNNING}
    assert len(world.living()) == len(world.source)


def test_what_is_left_of_a_tree_that_somebody_let_go_is_ended_by_us(monkeypatch):
    """CRIU let it go, and its first process has ended by itself: the others do not run on beside the artifact."""

    async def end(held, within_ns):
        held.ports.world._orphan_over()
        held.ports.world.kill(held.tree[0])
        raise TreeLeft("CRIU was ended by somebody")

    monkeypatch.setattr(Held, "end", end)
    world = World()
    ended = Runner(world, freezing).run(FreezeTree(FreezePlan("op-1", world.source[0], "ram"))).ended
    assert ended.outcome is Outcome.FROZEN
    assert world.living() == []
    assert world.artifacts["op-1"].published


def test_a_tree_that_does_not_end_is_left_after_some_tries(monkeypatch):
    """Its first task was killed and has not ended: it is never let run, and the artifact stays."""

    async def end(held, within_ns):
        held.ports.world.kill(held.tree[0])
        raise TreeLeft("processes do not end")

    async def stuck(ports, tasks, within_ns):
        return tuple(tasks[1:])

    monkeypatch.setattr(Held, "end", end)
    monkeypatch.setattr(SimProcesses, "end", stuck)
    world = World()
    runner = Runner(world, freezing)
    ended = runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "ram"))).ended
    assert (ended.outcome, ended.kind) == (Outcome.LEFT, "TreeLeft")
    assert world.artifacts["op-1"].published


def test_a_thawed_tree_that_has_come_to_its_end_is_no_failed_thaw():
    """Whoever takes it up finds nothing of it: it was let run, or may have been, and that it has ended is said."""
    taken_up = 0
    for number in range(1, 70):
        world = frozen_world()
        runner = Runner(world, thawing, (number,))

        def crash(life, world=world, runner=runner, real=world.crash):
            real(life)
            if runner.state.phase is ThawPhase.STARTING:
                for process in world.living():
                    process.alive, process.cuda = False, None

        world.crash = crash
        ended = runner.run(ThawTree(ThawPlan("op-2", "op-1"))).ended
        if any(isinstance(record, ThawTakenUp) for record in runner.records):
            taken_up += 1
            assert (ended.outcome, ended.kind) == (Outcome.THAWED, "")
            assert "all of its 3 processes have ended since" in ended.text
        assert world.artifacts["op-1"].pins == []
    assert taken_up > 3


@pytest.mark.parametrize("failures", [3, 50])
def test_an_artifact_that_cannot_be_let_go_is_reported(failures):
    """It is tried again; if that never helps the outcome stands, and the end says that the checkpoint stays in use."""
    never = {("unpin", number): error(OSError) for number in range(1, failures)}
    source = World().source[0]
    for message in (
        FreezeTree(FreezePlan("op-1", source, "ram")),
        FreezeTree(FreezePlan("op-1", source, "ram", leave_running=True)),
        ThawTree(ThawPlan("op-2", "op-1")),
    ):
        thaws = isinstance(message, ThawTree)
        world = frozen_world() if thaws else World()
        world.calls.clear()
        world.faults = dict(never)
        ended = Runner(world, thawing if thaws else freezing).run(message).ended
        assert ended.outcome in (Outcome.FROZEN, Outcome.COPIED, Outcome.THAWED)
        assert ("stays in use" in ended.text) is (failures > 5)
        assert bool(world.artifacts["op-1"].pins) is (failures > 5)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_freeze_with_each_fault(name):
    """Each error that a port may raise leaves the tree running, or ended with a whole artifact."""
    for method, number, kind in every_fault(FREEZE_FAULTS):
        freeze_with(World(faults={(method, number): error(kind)}), **SCENARIOS[name])


def test_a_thaw_with_each_fault():
    """Each error that a port may raise leaves the tree running, or nothing of it."""
    for method, number, kind in every_fault(THAW_FAULTS):
        world = frozen_world()
        world.faults = {(method, number): error(kind)}
        thaw_with(world, verify=HOOK)


def test_a_lazy_thaw_with_each_fault():
    """Each error that a port may raise leaves the tree running with all its pages, or nothing of it."""
    for method, number, kind in every_fault(LAZY_FAULTS):
        world = frozen_world(cuda=())
        world.faults = {(method, number): error(kind)}
        thaw_with(world, lazy=True)


def test_cancelling_at_every_boundary():
    """A freeze that is cancelled is undone, or comes to its end; a thaw as well."""
    for number in range(1, 80):
        for plan in SCENARIOS.values():
            freeze_with(World(), cancel_at=number, **plan)
        thaw_with(frozen_world(), cancel_at=number)
        thaw_with(frozen_world(cuda=()), cancel_at=number, lazy=True)
    assert freeze_with(World(), cancel_at=15).state.ended.kind == "Cancelled"
    assert thaw_with(frozen_world(), cancel_at=6).state.ended.kind == "Cancelled"


def test_a_tree_that_was_given_up_is_killed_as_a_whole():
    """A crash while it is killed: the next life kills the rest, and does not call the rest a tree that runs."""
    for number in range(1, 120):
        faults = {("seal", 1): error(FREEZE_FAULTS["seal"][0]), ("cuda_restore", 1): error(CudaNoMemory)}
        ended = freeze_with(World(faults=faults), crashes=(number,)).state.ended
        assert ended is None or ended.outcome in (Outcome.FROZEN, Outcome.UNDONE, Outcome.LOST)
        freeze_with(World(faults={("cuda_restore", 2): error(CudaNoMemory)}), crashes=(number,), leave_running=True)


def test_a_cancellation_before_the_recovery():
    """What is taken up may be cancelled before anything else: it is undone once."""
    for number in range(1, 60):
        freeze_with(World(), crashes=(number,), cancel_at=number)
        thaw_with(frozen_world(), crashes=(number,), cancel_at=number)
        thaw_with(frozen_world(cuda=()), crashes=(number,), cancel_at=number, lazy=True)


FAULTS = st.dictionaries(
    st.sampled_from([(method, number) for method in FREEZE_FAULTS for number in range(1, 5)]),
    st.integers(0, 5),
    max_size=4,
)


@given(
    scenario=st.sampled_from(sorted(SCENARIOS)),
    crashes=st.lists(st.integers(1, 150), max_size=4),
    faults=FAULTS,
    cancel_at=st.sampled_from([0, 0, 0, 5, 25, 45]),
    orphan=st.booleans(),
    late=st.booleans(),
)
def test_a_freeze_with_many_crashes_and_faults(scenario, crashes, faults, cancel_at, orphan, late):
    """All at once, several times."""
    kinds = {key: FREEZE_FAULTS[key[0]] for key in faults}
    raised = {key: error(kinds[key][index % len(kinds[key])]) for key, index in faults.items() if kinds[key]}
    world = World(orphan=orphan, late=late, faults=raised)
    freeze_with(world, crashes=crashes, cancel_at=cancel_at, **SCENARIOS[scenario])


@given(
    crashes=st.lists(st.integers(1, 150), max_size=4),
    faults=st.dictionaries(
        st.sampled_from([(method, number) for method in THAW_FAULTS for number in range(1, 5)]),
        st.integers(0, 5),
        max_size=4,
    ),
    late=st.booleans(),
)
def test_a_thaw_with_many_crashes_and_faults(crashes, faults, late):
    """All at once, several times."""
    world = frozen_world(late=late)
    world.faults = {key: error(THAW_FAULTS[key[0]][index % len(THAW_FAULTS[key[0]])]) for key, index in faults.items()}
    thaw_with(world, crashes=crashes)


@given(
    crashes=st.lists(st.integers(1, 150), max_size=4),
    faults=st.dictionaries(
        st.sampled_from([(method, number) for method in LAZY_FAULTS for number in range(1, 5)]),
        st.integers(0, 5),
        max_size=4,
    ),
    forsaken=st.booleans(),
    orphan=st.booleans(),
)
def test_a_lazy_thaw_with_many_crashes_and_faults(crashes, faults, forsaken, orphan):
    """All at once, several times."""
    world = frozen_world(cuda=(), forsaken=forsaken, orphan=orphan)
    kinds = {key: LAZY_FAULTS[key[0]] for key in faults}
    world.faults = {key: error(kinds[key][index % len(kinds[key])]) for key, index in faults.items()}
    thaw_with(world, crashes=crashes, lazy=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["end, hook", pytest.param("leave, hook, force", marks=pytest.mark.soak)])
def test_each_fault_with_a_crash_at_every_boundary(name):
    """A fault, and then the process that undoes it dies too, wherever it is."""
    for fault in every_fault(FREEZE_FAULTS, (1,)):
        freeze_everywhere([fault], **SCENARIOS[name])


@pytest.mark.slow
def test_each_fault_of_a_thaw_with_a_crash_at_every_boundary():
    """A fault, and then the process that cleans up dies too, wherever it is."""
    for fault in every_fault(THAW_FAULTS, (1,)):
        thaw_everywhere([fault])
    for fault in every_fault(LAZY_FAULTS, (1,)):
        for forsaken in (False, True):
            thaw_lazily_everywhere([fault], forsaken=forsaken)


# What the gates keep out


def test_a_target_that_is_gone_is_left_alone():
    """Its number may mean somebody else by now."""
    world = World()
    for process in world.processes:
        world.kill(process)
    ended = freeze(world).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.UNDONE, "TargetGone")
    assert world.artifacts == {}


def test_a_process_that_somebody_else_locked_is_left_alone():
    """One owner of CUDA: what we did not lock we do not unlock."""
    world = World()
    world.processes[2].cuda = CudaState.LOCKED
    runner = Runner(world, freezing)
    runner.run(FreezeTree(FreezePlan("op-1", world.source[0], "ram")))
    assert runner.state.ended.text.startswith("cuda-state: process 102 is locked")
    assert world.processes[2].cuda is CudaState.LOCKED


def test_a_thaw_while_the_source_lives_is_refused():
    """There would be two of it."""
    world = World()
    freeze_with(world, leave_running=True)
    ended = thaw(world).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.FAILED, "GateRefused")
    assert ended.text.startswith("source:")
    assert len(world.living()) == 3


def test_a_clone_is_made_beside_what_came_back_and_nothing_else_is():
    """A second thaw of a tree that runs is refused by name; one that is asked for as a clone is not."""
    world = frozen_world(cuda=())
    thaw_with(world)
    back = world.artifacts["op-1"].returned
    assert back == tuple(each.identity for each in world.living())
    ended = thaw(world).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.FAILED, "GateRefused")
    assert ended.text.startswith(f"source: process {back[0].pid} was thawed from it")
    world.cloned = True
    clone = thaw(world, clone=True, numbers=Numbers.AUTO).state
    assert clone.ended.outcome is Outcome.THAWED
    assert world.artifacts["op-1"].returned == (*back, *clone.tasks)


def test_what_differs_is_an_error_or_is_told():
    """A tree that came back otherwise has not run and is ended; with leave it runs, and the end says in what."""
    for force in (False, True):
        world = frozen_world()
        world.faults = {("prove", 1): TreeChanged("it has 7 threads")}
        ended = thaw(world, force=force).state.ended
        wanted = (Outcome.THAWED, "") if force else (Outcome.FAILED, "TreeChanged")
        assert (ended.outcome, ended.kind) == wanted
        assert "it has 7 threads" in ended.text
        assert bool(world.living()) == force
        assert not world.killed_running


def test_somebody_is_asked_before_a_thaw_is_over():
    """A yes ends it well; a no ends what came back; after a crash nobody is asked any more, and that is said."""
    world = frozen_world()
    ended = thaw_with(world, verify=HOOK).state.ended
    assert (ended.outcome, ended.kind, ended.text) == (Outcome.THAWED, "", "")
    assert world.asked == 1
    world = frozen_world()
    world.faults = {("confirm", 1): VerifyFailed("it has another answer")}
    ended = thaw_with(world, verify=HOOK).state.ended
    assert (ended.outcome, ended.kind, ended.text) == (Outcome.FAILED, "VerifyFailed", "it has another answer")
    outcomes = thaw_everywhere(plan={"verify": HOOK})
    assert {*outcomes} >= {Outcome.THAWED, Outcome.FAILED}
    assert len(outcomes) > 150


def test_an_application_is_told_wherever_a_thaw_that_is_verified_dies():
    """It was brought to rest, and nobody else will ever tell it to go on."""
    number, lives = 0, 2
    while lives > 1:
        number += 1
        world = World()
        freeze(world, hook=HOOK)
        runner = thaw_with(world, crashes=(number,), verify=HOOK)  # which looks that nobody rests
        lives = runner.lives
    assert number > 40


def test_a_tree_that_became_unfit_meanwhile_runs_on():
    """What stands in its way is looked for again when it is held: a program may change while it is looked at."""

    class Changing(World):
        def hindrances(self):
            return (Hindrance(Obstacle.PIPE, 100, "it shares a pipe"),) if "dump" in self.log else ()

    ended = freeze_with(Changing()).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.UNDONE, "TargetUnfit")
    assert ended.text == "target: it shares a pipe"


def test_processes_that_share_a_communicator_are_let_go_again():
    """The lock of the second one does not answer while the first one is locked: that is unlocked; nobody is killed."""
    world = World(communicator=True)
    runner = freeze_with(world)
    assert runner.state.ended.outcome is Outcome.UNDONE
    assert [each.cuda for each in world.living()] == [CudaState.RUNNING, None, CudaState.RUNNING]
    assert world.cuda_calls == [("lock", 100), ("lock", 102), ("unlock", 100)]


def test_gpus_are_called_one_after_the_other_and_undone_in_reverse():
    """Locks and checkpoints in the order of the tree, restores and unlocks from the last one on (INV-C4)."""
    world = World(tasks=3, cuda=(0, 1, 2), faults={("dump", 1): NoRoom("no room")})
    assert freeze_with(world).state.ended.outcome is Outcome.UNDONE
    forth, back = (100, 101, 102), (102, 101, 100)
    steps = (("lock", forth), ("checkpoint", forth), ("cuda_restore", back), ("unlock", back))
    assert world.cuda_calls == [(method, pid) for method, order in steps for pid in order]


def test_a_tree_comes_back_although_only_one_of_its_gpus_moves():
    """The driver wants all of those that it used in the map."""
    assert thaw_a_part_elsewhere().state.ended.outcome is Outcome.THAWED


def test_after_a_lock_that_is_refused_no_other_is_asked_for():
    """What was locked before it is unlocked again, from the last one on."""
    world = World(tasks=4, cuda=(0, 1, 2, 3), faults={("lock", 3): CudaRefused("no")})
    assert freeze_with(world).state.ended.outcome is Outcome.UNDONE
    assert world.cuda_calls == [("lock", 100), ("lock", 101), ("lock", 102), ("unlock", 101), ("unlock", 100)]


def test_a_process_that_begins_to_use_cuda_meanwhile_undoes_the_freeze():
    """Its device memory is in no image."""

    class Sneaky(World):
        def tick(self):
            super().tick()
            if self.log[-1:] == ["dump"]:
                self.processes[1].cuda, self.processes[1].device_bytes = CudaState.RUNNING, MIB

    ended = freeze_with(Sneaky()).state.ended
    assert (ended.outcome, ended.kind) == (Outcome.UNDONE, "TargetUnfit")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_process_that_leaves_the_tree_meanwhile_is_not_left_behind(name):
    """Its parent ends: it is in no image, and checkpointed for CUDA. The freeze is undone, for it as well."""
    for orphan, late in CRASHES:
        for crash in range(60):

            class Splits(World):
                def below(self, root):
                    return [
                        each for each in super().below(root) if "checkpoint" not in self.log or each is not self.last
                    ]

            world = Splits(orphan=orphan, late=late)
            world.last = world.processes[2]
            ended = freeze_with(world, crashes=(crash,), **SCENARIOS[name]).state.ended
            assert ended is None or ended.outcome is Outcome.UNDONE
            assert crash or "process 102 left the tree" in ended.text


# The proof bites


def _row(phases, phase, **changes):
    return {**phases, phase: attrs.evolve(phases[phase], **changes)}


def lost_undo(monkeypatch):
    """A crash while the artifact is sealed is taken for the end."""
    row = _row(freezing.PHASES, FreezePhase.SEALING, crashed=freezing.FreezeTurn.OVER)
    monkeypatch.setattr(freezing, "PHASES", row)


def kill_before_publishing(monkeypatch):
    """The tree is killed first, the artifact published after."""
    row = _row(freezing.PHASES, FreezePhase.SEALING, then=FreezePhase.ENDING)
    row = _row(row, FreezePhase.ENDING, then=FreezePhase.PUBLISHING)
    monkeypatch.setattr(freezing, "PHASES", row)


def lock_again(monkeypatch):
    """A lock of unknown outcome is repeated."""
    row = _row(freezing.PHASES, FreezePhase.LOCKING, crashed=freezing.FreezeTurn.AGAIN)
    monkeypatch.setattr(freezing, "PHASES", row)


def unlock_first(monkeypatch):
    """What is locked is unlocked before all is restored."""
    real = settling.settle

    def settle(states, **words):
        step = real(states, **words)
        locked = tuple(task for task, state in states.cuda if state is CudaState.LOCKED)
        return UnlockCuda(locked, 1, 0) if isinstance(step, RestoreCuda) and locked else step

    monkeypatch.setattr(freezing, "settle", settle)


def nothing_is_let_go(monkeypatch):
    """The tree stays in CRIU's hands."""
    monkeypatch.setattr(freezing, "_let_go", lambda freeze: freezing._read(freeze, 0))


def nothing_is_removed(monkeypatch):
    """What was written stays, and so does what was reserved."""

    def woken(freeze, *before):
        return freezing._over(freeze, Outcome.UNDONE, "", "", FakeContext())

    monkeypatch.setattr(freezing, "_woken", woken)


def kill_what_ran_on(monkeypatch):
    """After a crash before the kill the tree, which has run on since, is killed all the same."""
    real = freezing._settled

    def settled(freeze, states, reading, ctx):
        if freeze.phase is FreezePhase.ENDING:
            return (freezing._kill(freeze),)
        return real(freeze, states, reading, ctx)

    monkeypatch.setattr(freezing, "_settled", settled)


def no_verification(monkeypatch):
    """CRIU is given bytes that nobody looked at."""
    real = thawing._opened

    def opened(thaw, value):
        outcome = real(thaw, value)
        after = attrs.evolve(thaw)
        for record in outcome.records:
            thawing.evolve(after, record)
        if after.phase is not ThawPhase.VERIFYING:
            return outcome
        more = thawing._verified(after, lazy=False)
        return attrs.evolve(more, records=(*outcome.records, *more.records))

    monkeypatch.setattr(thawing, "_opened", opened)


def pages_that_are_not_waited_for(monkeypatch):
    """A tree whose pages are still to come is called thawed."""
    monkeypatch.setattr(thawing, "_await_pages", lambda thaw: thawing._read(thaw, 1))


def forsaken_and_let_run(monkeypatch):
    """A tree that was being let run is let run, whether or not somebody brings its pages."""
    real = thawing.recover

    def recover(thaw, message, ctx):
        if thaw.phase is ThawPhase.STARTING:
            return (thawing._read(thaw, 0),)
        return real(thaw, message, ctx)

    monkeypatch.setattr(thawing, "recover", recover)


def lazy_without_asking(monkeypatch):
    """CRIU is asked for all pages, and those were not verified."""
    real = thawing._verified
    monkeypatch.setattr(thawing, "_verified", lambda thaw, *, lazy: real(thaw, lazy=False))


def thaw_forsaken():
    """Thaw lazily, and have who brings the pages die with each crash."""
    thaw_lazily_everywhere(forsaken=True)


def restore_again(monkeypatch):
    """A restore of unknown outcome is repeated."""
    real = thawing.recover

    def recover(thaw, message, ctx):
        if thaw.phase is ThawPhase.RESTORING:
            return (Run(thawing.KEY, thawing.Restore(thaw.request, 1, "")),)
        return real(thaw, message, ctx)

    monkeypatch.setattr(thawing, "recover", recover)


def half_a_tree(monkeypatch):
    """What a failed restore left is not looked for."""
    monkeypatch.setattr(thawing, "_kill", thawing._end_untouched)


def pinned_for_ever(monkeypatch):
    """The artifact is never let go."""
    monkeypatch.setattr(thawing, "_unpin", lambda thaw: Run(thawing.KEY, EndTree(thaw.id, (), 1)))


def never_unpinned(monkeypatch):
    """A freeze never lets its own artifact go."""

    def unpin(freeze, ending):
        return freezing._over(freeze, ending.outcome, ending.kind, ending.text, FakeContext())

    monkeypatch.setattr(freezing, "_unpin", unpin)


def unpinned_before_the_end(monkeypatch):
    """What is published can be removed before the tree has ended."""

    async def publish(artifacts, operation):
        await real(artifacts, operation)
        artifacts.world.artifacts[operation].pins.clear()

    real = SimArtifacts.publish
    monkeypatch.setattr(SimArtifacts, "publish", publish)


def freeze_beside_a_remover():
    """Freeze while somebody removes whatever may be removed."""
    freeze_everywhere(remover=True)


def never_in_a_namespace(monkeypatch):
    """CRIU is asked for numbers that somebody else has."""
    monkeypatch.setattr(thawing, "fresh_numbers", lambda plan, opened: False)


def swept_by_numbers_of_others(monkeypatch):
    """What is left of a restore into a namespace is looked for by the numbers that it has in there."""
    real = thawing._kill

    def kill(thaw, kind, text):
        request = thaw.request
        plain = attrs.evolve(request, new_pid_namespace=False) if request is not None else None
        return real(attrs.evolve(thaw, request=plain), kind, text)

    monkeypatch.setattr(thawing, "_kill", kill)


def taken_up_and_forgotten(monkeypatch):
    """A thaw that another life takes up is one whose tree was let run this instant."""

    def evolve(thaw, record):
        if not isinstance(record, ThawTakenUp):
            real(thaw, record)

    real = thawing.evolve
    monkeypatch.setattr(thawing, "evolve", evolve)


def killed_when_taken_up(monkeypatch):
    """What was let run is killed by whoever takes it up."""
    row = _row(thawing.PHASES, ThawPhase.STARTING, crashed=thawing.ThawTurn.KILL)
    monkeypatch.setattr(thawing, "PHASES", row)


def changed_and_taken_up(monkeypatch):
    """What was traced when its tracer was killed is let run."""
    real = thawing.recover

    def recover(thaw, message, ctx):
        thaw.ready = True
        return real(thaw, message, ctx)

    monkeypatch.setattr(thawing, "recover", recover)


def killed_when_it_was_left(monkeypatch):
    """What has gone on is killed because it was not the last record."""
    row = _row(thawing.PHASES, ThawPhase.LEAVING, crashed=thawing.ThawTurn.KILL)
    monkeypatch.setattr(thawing, "PHASES", row)


def thaw_beside_deaths():
    """Thaw, and have the first process end by itself after each crash."""
    thaw_everywhere(attrition=0)


def restore_with_faults():
    """Undo with a driver that fails in between."""
    for fault in every_fault({"cuda_restore": FREEZE_FAULTS["unlock"]}):
        freeze_everywhere([fault])


def undone_in_order(monkeypatch):
    """Who was locked first is let go first."""
    monkeypatch.setattr(
        settling,
        "_in_state",
        lambda states, wanted: tuple(task for task, state in states.cuda if state is wanted),
    )


def map_as_it_was_asked_for(monkeypatch):
    """The driver is given the pairs that somebody named, and no others."""
    monkeypatch.setattr(thawing, "whole_map", lambda frozen, asked: asked)


def thaw_a_part_elsewhere():
    """Thaw a tree of two GPUs, one of which moves."""
    return thaw_with(frozen_world(gpus=3), gpus=(("GPU-2", "GPU-3"),))


PLANTED = [
    (lost_undo, freeze_everywhere),
    (undone_in_order, freeze_everywhere),
    (map_as_it_was_asked_for, thaw_a_part_elsewhere),
    (kill_before_publishing, freeze_everywhere),
    (lock_again, freeze_everywhere),
    (unlock_first, restore_with_faults),
    (nothing_is_let_go, freeze_everywhere),
    (nothing_is_removed, freeze_everywhere),
    (kill_what_ran_on, freeze_everywhere),
    (no_verification, thaw_everywhere),
    (restore_again, thaw_everywhere),
    (half_a_tree, thaw_everywhere),
    (pinned_for_ever, thaw_everywhere),
    (pages_that_are_not_waited_for, thaw_lazily_everywhere),
    (forsaken_and_let_run, thaw_forsaken),
    (lazy_without_asking, thaw_lazily_everywhere),
    (never_in_a_namespace, thaw_freshly_everywhere),
    (swept_by_numbers_of_others, thaw_freshly_everywhere),
    (taken_up_and_forgotten, thaw_beside_deaths),
    (killed_when_taken_up, thaw_everywhere),
    (changed_and_taken_up, thaw_everywhere),
    (killed_when_it_was_left, thaw_everywhere),
    (never_unpinned, freeze_everywhere),
    (unpinned_before_the_end, freeze_beside_a_remover),
]


@pytest.mark.parametrize(("plant", "look"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_bugs_are_found(plant, look, monkeypatch):
    """Each of these would lose something, and the crashes find it."""
    plant(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        look()


def test_the_hook_is_told():
    """The application rests while it is frozen, and is told to go on by whoever lets it run."""
    world = World()
    freeze_with(world, hook=HOOK)
    assert world.log.index("quiesce") < world.log.index("lock")
    assert "wake" not in world.log
    runner = thaw_with(world)
    assert "wake" in world.log
    assert runner.state.ended.outcome is Outcome.THAWED


@pytest.mark.parametrize("leave_running", [True, False])
def test_images_are_read_beside_criu_where_the_tree_ends(leave_running):
    """One that is to run on is held by CRIU alone, and for nobody else's work."""
    world = World()
    freeze_with(world, leave_running=leave_running)
    assert world.followed == (0 if leave_running else 1)
