"""What has to be true after a crash was taken up, seen from outside: no word of ours about it is believed."""

import stat

from crash_plans import END, STAY
from crash_stage import FREE_BYTES, users_of

from iriscw.agent.claims import claim, frozen_by_us, thawed_by_us
from iriscw.checkpoint.drivers.store import Folders
from iriscw.freeze.drivers.processes.reading import read_text
from iriscw.freeze.proc_text import parse_status
from iriscw.processes.identity import read_stat
from waiting import block_until

TRANSIENT = ("reserved", "staging", "pins", "work", "trash")
"""Folders of a tier in which nothing is when nothing runs."""


def judge(stage):
    """Judge what is left, have what is frozen come back, and see that all of it can be removed."""
    plan = stage.plan
    found = listed(stage)
    alive = stage.alive()
    if plan.operation == END:
        assert alive != bool(found), f"it {'runs' if alive else 'does not run'}, and there are {len(found)} checkpoints"
    elif plan.operation == STAY:
        assert alive, "it was to run on, and does not"
    else:
        assert [each["artifact"] for each in found] == [stage.artifact], "the checkpoint is not what it was"
    nothing_else_runs(stage)
    nothing_is_left(stage)
    if alive:
        stage.goes_on(stage.said)
        runs_freely(stage)
    if plan.operation == STAY and found:
        stage.end_tree()
        alive = False
    if not alive:
        comes_back(stage, found)
    remove(stage, found)
    stage.end_agent()
    nothing_is_claimed(stage, found)


def listed(stage):
    """Return the checkpoints; each is whole, says so, and is pinned by nobody."""
    found = stage.do("checkpoints")
    for each in found:
        assert each["trouble"] == "", each["trouble"]
        assert each["pinned_by"] == [], f"pinned by {each['pinned_by']}"
        assert each["tier"] == stage.plan.tier
    assert len(found) <= 1
    return found


def nothing_else_runs(stage):
    """Of all that was begun only the tree lives, once, and an agent."""
    expected = {task.pid for task in stage.tree} if stage.alive() else set()
    if stage.agent is not None and not stage.agent.ended:
        expected.add(stage.agent.process.pid)
    assert {task.pid for task in stage.living()} == expected & {task.pid for task in stage.tree}
    # What was killed may take a moment to be gone, and nobody is told.
    block_until(lambda: users_of(stage.folder, stage.memory) == expected, f"only {sorted(expected)} use its folders")


def runs_freely(stage):
    """Nobody of it is stopped, traced, or held by CUDA."""
    for task in stage.living():
        assert read_stat(task.pid).state not in "Tt", f"process {task.pid} is stopped"
        assert parse_status(read_text(task.pid, "status")).traced_by == 0, f"process {task.pid} is traced"
    if stage.standin is not None:
        state, _, broken = stage.standin.get(str(stage.root.pid)).split()
        assert (state, broken) == ("0", "0"), f"CUDA holds it in state {state}"
        assert stage.standin.get("free") == str(FREE_BYTES)


def comes_back(stage, found):
    """What is frozen is thawed, to the state in which it was frozen."""
    stage.lies_frozen()
    block_until(stage.numbers_are_free, "its numbers are free")
    done = stage.do("restore", found[0]["artifact"])
    assert done["outcome"] == "thawed"
    nothing_else_runs(stage)
    stage.goes_on(stage.kept)
    runs_freely(stage)


def nothing_is_left(stage):
    """Budgets are right, modes are ours alone, and no folder holds what an operation left."""
    for root in (stage.state / "checkpoints", stage.memory):
        tier = Folders("tier", root, 1 << 40)
        if not root.exists():
            continue
        for path in (root, *root.rglob("*")):
            mode, wanted = path.lstat().st_mode, 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(mode) == wanted, f"{path} has mode {mode:o}"
        for name in TRANSIENT:
            left = [path.name for path in (root / name).iterdir()] if (root / name).exists() else []
            assert left == [], f"{name} holds {left}"
        use = tier.use()
        kept = sum(path.stat().st_size for path in (root / "artifacts").rglob("*") if path.is_file())
        assert (use.reserved_bytes, use.artifacts_bytes) == (0, kept)
    operations = stage.state / "operations"
    assert not operations.exists() or [*operations.iterdir()] == []


def remove(stage, found):
    """Each checkpoint can be removed, and then nothing is there."""
    for each in found:
        stage.do("checkpoints", "--remove", each["artifact"])
    for root in (stage.state / "checkpoints", stage.memory):
        left = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
        assert left == [], f"{left} is left"


def nothing_is_claimed(stage, found):
    """Both may be worked on by anybody."""
    with claim(frozen_by_us(stage.root)):
        pass
    for each in found:
        with claim(thawed_by_us(each["artifact"])):
            pass
