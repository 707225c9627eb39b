"""Freezes and thaws an entry of the catalogue, and says what became of it: whole, refused while it ran, or lost.

The same is done with CRIU alone beside it. What CRIU alone does is written down, and decides nothing.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))  # for real_trees

from bare_criu import BareCriu
from catalogue_entry import Entry, Live, Lost, Stage, Whole, Without, number_is_free, patience, until
from process_attributes import differences, of_tree
from real_trees import MAIN, Command

from iriscw.processes.identity import ProcessIdentity, is_alive

LEFT_EMPTY = ("staging", "reserved", "work", "pins")
"""Folders of a tier in which nothing lies when no operation runs."""

MOST_LOOKS = 20
BETWEEN_LOOKS_S = 0.05

HURRIED_S = 5.0
"""For what CRIU alone has brought back to go on."""


@attrs.frozen
class Judged:
    """What became of an entry; ``seconds`` are those of the freeze and of the thaw."""

    outcome: str
    seconds: tuple[float, ...] = ()
    size_bytes: int = 0
    detail: str = ""


def _folder_of_shape(stage: Stage) -> str:
    return str(stage.folder / "said")


@attrs.frozen
class Before:
    """A tree as it was."""

    processes: list[ProcessIdentity]
    numbers: list[int]
    attributes: dict
    state: object


def _look(entry: Entry, stage: Stage, live: Live) -> Before:
    """Look at a tree until two looks agree: one that runs has signals blocked, or a file open, for moments."""
    with live.at_rest():
        processes, attributes = _seen(stage, live)
        for _ in range(MOST_LOOKS):
            time.sleep(BETWEEN_LOOKS_S)
            earlier = attributes
            processes, attributes = _seen(stage, live)
            if differences(earlier, attributes).keys() <= entry.changing:
                break
        return Before(processes, stage.numbers(live.pid), attributes, live.state())


def _seen(stage: Stage, live: Live) -> tuple[list[ProcessIdentity], dict]:
    processes = stage.tree(live.pid)
    return processes, of_tree([each.pid for each in processes], _folder_of_shape(stage))


def _ended(stage: Stage, before: Before) -> None:
    """Wait until nothing of it is there: a number that a zombie has is not free."""

    def so() -> bool:
        stage.reap()
        return all(map(number_is_free, before.numbers))

    until(so, "all its processes are gone")


def _compare(entry: Entry, stage: Stage, live: Live, before: Before) -> dict[str, str]:
    """Return what is not as it was, after it has gone on."""
    live.goes_on()
    now = _look(entry, stage, live)
    changed = {} if live.pid not in before.attributes else differences(before.attributes, now.attributes)
    found = {name: text for name, text in changed.items() if name not in entry.changing}
    if now.state != before.state:
        found["state"] = f"{before.state} became {now.state}"
    return found


def _runs_on(entry: Entry, stage: Stage, live: Live, before: Before) -> None:
    dead = [each for each in before.processes if not is_alive(each)]
    assert not dead, f"it was refused, and {dead} ended"
    changed = _compare(entry, stage, live, before)
    assert not changed, f"it was refused, and is not as it was: {changed}"


def _nothing_left(state: Path) -> None:
    tier = state / "checkpoints"
    folders = [state / "operations", tier / "artifacts", *(tier / each for each in LEFT_EMPTY)]
    left = [each for folder in folders if folder.exists() for each in folder.iterdir()]
    assert not left, f"it was refused, and left {left}"


def judge(entry: Entry, stage: Stage, *, copied: bool = False) -> Judged:
    """Freeze and thaw it by the command; or copy it, see that it runs on as it was, kill it, and thaw the copy.

    Raises:
        Lost: it was frozen and ended, and is not what it was.
    """
    command = Command(stage.folder)
    live = entry.begin(stage)
    before = _look(entry, stage, live)
    begun = time.monotonic()
    options = (*entry.freeze, "--leave-running") if copied else entry.freeze
    code, out, err = _told(
        entry, command, "checkpoint", "--pid", str(live.pid), "--tier", "disk", "-o", "json", *options
    )
    frozen_s = time.monotonic() - begun
    if code != 0:
        _runs_on(entry, stage, live, before)
        _nothing_left(command.state)
        return Judged("refused", (frozen_s,), detail=err.strip().splitlines()[-1].removeprefix("iriscw: "))
    done = json.loads(out)
    try:
        if copied:
            _runs_on(entry, stage, live, before)
            for each in reversed(stage.tree(live.pid)):
                os.kill(each.pid, signal.SIGKILL)
        _ended(stage, before)
        if entry.settle is not None:
            entry.settle(stage, live)
        begun = time.monotonic()
        code, out, err = _told(entry, command, "restore", done["checkpoint"], "-o", "json", *entry.thaw)
        thawed_s = time.monotonic() - begun
        assert code == 0, f"it was ended, and does not come back: {err.strip().splitlines()[-1]}"
        assert (json.loads(out)["pid"] != live.pid) == entry.renumbered, "its number is not the one that it had to be"
        live.pid = json.loads(out)["pid"]
        changed = _compare(entry, stage, live, before)
        lacks = entry.verdict.lacks if isinstance(entry.verdict, Without) else frozenset()
        assert changed.keys() == lacks, f"it came back, and is not as it was: {changed}"
    except (AssertionError, OSError, ValueError) as error:
        raise Lost(str(error)) from error
    text = "; ".join(f"{name}: {text}" for name, text in changed.items())
    return Judged("without" if changed else "whole", (frozen_s, thawed_s), done["size_bytes"], text)


def _told(entry: Entry, command: Command, *words: str) -> tuple[int, str, str]:
    if not entry.apart:
        return command(*words)
    process = subprocess.Popen(
        [*entry.through, sys.executable, "-c", MAIN, *words],
        env=command.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate()
    return process.returncode, out, err


def judge_bare(entry: Entry, stage: Stage) -> Judged:
    """Dump and restore it by CRIU alone."""
    criu = BareCriu(stage.folder, entry.bare)
    live = entry.begin(stage)
    before = _look(entry, stage, live)
    dumped = criu.dump(live.pid)
    if not dumped.good:
        ended = [each for each in before.processes if not is_alive(each)]
        return Judged("LOST" if ended else "refused", (dumped.seconds,), detail=dumped.said)
    size = criu.size_bytes()
    _ended(stage, before)
    if entry.settle is not None:
        entry.settle(stage, live)
    restored = criu.restore()
    seconds = (dumped.seconds, restored.seconds)
    if not restored.good:
        return Judged("LOST", seconds, size, restored.said)
    try:
        with patience(HURRIED_S):
            changed = _compare(entry, stage, live, before)
    except (AssertionError, OSError, ValueError) as error:
        return Judged("LOST", seconds, size, f"it comes back, and does not go on: {error}")
    return Judged("changed" if changed else "ok", seconds, size, "; ".join(f"{k}: {v}" for k, v in changed.items()))


def check(entry: Entry, judged: Judged) -> None:
    """Compare what became of it with what has to become of it."""
    if isinstance(entry.verdict, Whole):
        assert judged.outcome == "whole", f"it was refused: {judged.detail}"
    elif isinstance(entry.verdict, Without):
        assert judged.outcome == "without", f"it was refused: {judged.detail}"
    else:
        assert judged.outcome == "refused", "it came back whole, where a refusal was expected"
        missing = [word for word in entry.verdict.words if word not in judged.detail]
        assert not missing, f"it was refused in other words than {missing}: {judged.detail}"
