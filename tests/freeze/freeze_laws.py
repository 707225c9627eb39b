"""What each outcome of a freeze and of a thaw means for the simulated machine, and the faults that ports may have."""

from freeze_world import HOOK, Broken, World, expect, freeze, thaw

from iriscw.freeze.carried import FolderDamaged, FolderInTheWay, FolderUnfit
from iriscw.freeze.model import (
    ArtifactRefused,
    CriuFailed,
    CriuOverdue,
    CudaNoMemory,
    CudaOverdue,
    CudaRefused,
    HookFailed,
    NoRoom,
    Outcome,
    PagingFailed,
    RightsMissing,
    TargetGone,
    TargetUnfit,
    TreeChanged,
    TreeLeft,
    VerifyFailed,
)

FREEZE_FAULTS = {
    "tree": (TargetUnfit, RightsMissing),
    "members": (TargetGone, TargetUnfit),
    "tasks": (CudaRefused, CudaOverdue),
    "reserve": (NoRoom,),
    "quiesce": (HookFailed,),
    "wake": (HookFailed,),
    "lock": (CudaRefused, CudaOverdue, RightsMissing),
    "checkpoint": (CudaRefused, CudaOverdue),
    "cuda_restore": (CudaRefused, CudaOverdue, CudaNoMemory),
    "unlock": (CudaRefused, CudaOverdue),
    "state": (CudaRefused, CudaOverdue),
    "used_by": (CudaRefused,),
    "dump": (NoRoom, CriuFailed, CriuOverdue, TargetUnfit, TargetGone),
    "resume": (TreeLeft,),
    "held_end": (TreeLeft,),
    "sweep": (TreeLeft,),
    "seal": (NoRoom, ArtifactRefused),
    "publish": (NoRoom,),
    "discard": (OSError,),
    "unpin": (OSError,),
}
"""What each method may raise, by the contract of its port."""

THAW_FAULTS = {
    "pin": (ArtifactRefused,),
    "verify": (ArtifactRefused,),
    "restore": (CriuFailed, CriuOverdue, NoRoom),
    "prove": (TreeChanged, TargetGone, RightsMissing),
    "came_back": (NoRoom,),
    "proceed": (RightsMissing,),
    "sweep": (TreeLeft,),
    "state": (CudaRefused, CudaOverdue),
    "cuda_restore": (CudaRefused, CudaOverdue, CudaNoMemory),
    "unlock": (CudaRefused, CudaOverdue),
    "wake": (HookFailed,),
    "confirm": (VerifyFailed,),
    "unpin": (OSError,),
}

PACK_FAULTS = {"measure": (FolderUnfit, OSError), "pack": (FolderUnfit, NoRoom, OSError)}
PLACE_FAULTS = {"place": (FolderDamaged, FolderInTheWay, NoRoom, OSError), "leave": (OSError,)}
"""Those of a freeze and of a thaw with the folder that is carried."""

LAZY_FAULTS = {
    **{method: kinds for method, kinds in THAW_FAULTS.items() if method not in ("state", "cuda_restore", "unlock")},
    "paging": (ArtifactRefused, PagingFailed, OSError),
}
"""Those of a lazy thaw, which has no CUDA."""

SCENARIOS = {
    "end": {},
    "leave": {"leave_running": True},
    "end, hook": {"hook": HOOK},
    "leave, hook, force": {"leave_running": True, "hook": HOOK, "force": True},
}

NO_CUDA = "no cuda"


def every_fault(table, numbers=(1, 2)):
    """Return each error of the table, for each of these calls of its method."""
    return [(method, number, kind) for method, kinds in table.items() for kind in kinds for number in numbers]


def error(kind):
    """Make an error of this kind."""
    return kind(f"simulated: {kind.__name__}")


def frozen_world(carries_folder=False, **world) -> World:
    """A world in which the tree was frozen, and has ended."""
    made = World(**world)
    expect(
        freeze(made, carries_folder=carries_folder).state.ended.outcome is Outcome.FROZEN, "the world cannot be made"
    )
    made.calls.clear()
    made.killed_running = 0
    return made


def freeze_with(world: World, **words):
    """Freeze, and hold the outcome against the world."""
    faulty = {kind.__name__ for kind in map(type, world.faults.values())}
    runner = freeze(world, **words)
    ended = runner.state.ended
    source = [world.find(task) for task in world.source]
    alive = [process for process in source if process.alive]
    artifact = world.artifacts.get("op-1")
    if ended is None:
        expect(len(alive) == len(source) and artifact is None, "it never began, and something was done")
        return runner
    whole = artifact is not None and artifact.published and artifact.sealed
    match ended.outcome:
        case Outcome.FROZEN:
            expect(whole, "C8: the tree has ended and there is no whole artifact")
            expect(not alive, f"{alive} lives and is said to be frozen")
            if not words.get("leave_running") and not ended.kind:
                _nothing_lost(world, artifact)
        case Outcome.COPIED:
            expect(whole, "C8: there is no whole artifact")
            expect(len(alive) == len(source), "a tree that was to run on does not")
        case Outcome.UNDONE:
            expect(artifact is None, "it was undone and there is an artifact")
            expect(len(alive) == len(source), "the tree is gone, and its state with it")
        case Outcome.LOST:
            expect(artifact is None and not alive, "it is lost and something is left")
            expect(bool(faulty & {"CudaNoMemory"}), "the tree is lost, and no fault took it")
        case outcome:
            raise Broken(f"a freeze ends as {outcome}")
    return runner


def _nothing_lost(world: World, artifact) -> None:
    """Whoever is killed on purpose has not run on since its image was written, nor has any other of its tree."""
    for pid, progress, _ in artifact.snapshot:
        expect(world.at_first_kill[pid] == progress, f"{pid} ran on after its image was written, and that is lost")


def thaw_with(world: World, **words):
    """Thaw, and hold the outcome against the world."""
    faulty = {kind.__name__ for kind in map(type, world.faults.values())}
    runner = thaw(world, **words)
    ended = runner.state.ended
    living = world.living()
    artifact = world.artifacts["op-1"]
    expect(artifact.published and artifact.sealed, "a thaw changed its artifact")
    guarded = [each for each in world.processes if each.identity not in world.source][1:]
    for process in guarded if world.grant is False else ():
        expect(process.progress == process.came_back_at, "what had no grant to go on has run")
    if ended is None:
        expect(not living, "it never began, and something runs")
        return runner
    match ended.outcome:
        case Outcome.THAWED:
            snapshot = {pid: progress for pid, progress, _ in artifact.snapshot}
            pids = [each.number for each in living]
            whole = pids == [*snapshot]
            expect(whole or (world.attrition >= 0 and len(pids) == len(snapshot) - 1), "not all came back")
            ours = runner.state.taken_up  # else it was let go before, and what became of it is not told
            expect(whole or not ours or "ended since" in ended.text, "a process is missing, and nobody says so")
            for process in living:
                expect(process.progress >= snapshot[process.number], "it came back with less than it had")
        case Outcome.FAILED:
            expect(not living, f"C6: {living} is left of a thaw that failed")
            refuted = {"VerifyFailed"} if words.get("verify") else set()
            hopeless = bool(faulty & {"CudaNoMemory", "RightsMissing", "GuardRefused", *refuted}) or world.lost_pages
            expect(not world.killed_running or hopeless, "a tree that had run again was killed")
        case outcome:
            raise Broken(f"a thaw ends as {outcome}")
    if artifact.facts.carried is not None and "restore" in world.log:
        stays = ended.outcome is Outcome.THAWED or bool(world.vouched)
        expect(bool(world.placed) == stays, f"the thaw ends as {ended.outcome}, and its folder is {world.placed!r}")
    return runner
