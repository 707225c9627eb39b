"""Whose attempts end with a pod of the local platform, and what is left of its worker on the disk."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from iriscw.cloud.drivers.local.attempts import (
    ATTEMPT_FOLDER,
    WorkerLife,
    end_life,
    life_of,
    lives,
    remove,
    remove_life,
    unowned,
)
from iriscw.processes.grants import Grant, GrantStanding, let_go, offer, standing_of
from iriscw.processes.lease import LeaseFile

PATIENCE_S = 60


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where workers keep their attempts."""
    return tmp_path / "cache"


@pytest.fixture
def begin():
    """Start processes of attempts: ``begin(folder)``; those that live are ended."""
    begun = []

    def start(attempt: Path, **environment: str) -> subprocess.Popen:
        (attempt / "work").mkdir(parents=True, exist_ok=True)
        told = {"PATH": os.environ["PATH"], ATTEMPT_FOLDER: str(attempt / "work"), **environment}
        begun.append(subprocess.Popen(["sleep", "600"], env=told, start_new_session=True))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def life(cache: Path, name: str) -> WorkerLife:
    """A life of a worker, with its journal."""
    made = WorkerLife(cache / name)
    (made.folder / "journal").mkdir(parents=True)
    return made


def grant(attempt: Path, to: WorkerLife, *, taken: bool = True) -> None:
    """Give an attempt to a life, which notes where it is."""
    (to.folder / "moved").mkdir(exist_ok=True)
    (to.folder / "moved" / attempt.name).write_text(str(attempt))
    offer(attempt, Grant(f"to-{to.folder.name}", to.owner, to.folder / "lease"))
    if taken:
        (attempt / "grant.json").rename(attempt / "grant.json.taken")


def killed(*processes: subprocess.Popen) -> list[bool]:
    """Say of each whether it was; none of them ends by itself.

    One that was killed has lost its memory, and so its environment, a moment before its parent can see its end.
    """
    for process in processes:
        if process.poll() is None and not Path(f"/proc/{process.pid}/environ").read_bytes():
            process.wait(PATIENCE_S)
    return [process.poll() == -signal.SIGKILL for process in processes]


async def test_what_has_moved_away_lives(cache: Path, begin) -> None:
    """The pod's own attempts end, also what left its supervisor; one that another worker took over does not."""
    first, second = life(cache, "w-0/a"), life(cache, "w-1/b")
    stays, gone = first.folder / "attempts" / "stays", first.folder / "attempts" / "gone"
    own, moved, foreign = begin(stays), begin(gone), begin(second.folder / "attempts" / "x")
    grant(gone, second)
    await end_life(cache, first)
    assert killed(own, moved, foreign) == [True, False, False]
    await end_life(cache, second)
    assert killed(moved, foreign) == [True, True]


async def test_what_was_let_go_is_nobodys(cache: Path, begin) -> None:
    """Nothing of it should run; what does, ends with the pod in which it began."""
    first = life(cache, "w-0/a")
    attempt = first.folder / "attempts" / "u"
    left = begin(attempt)
    let_go(attempt)
    await end_life(cache, first)
    assert killed(left) == [True]


async def test_nobody_comes_back_for_a_worker_that_is_gone(cache: Path, begin) -> None:
    """Its lease is over, and what it granted is withdrawn: a thaw that is on its way finds no grant."""
    first, second = life(cache, "w-0/a"), life(cache, "w-1/b")
    attempt = first.folder / "attempts" / "u"
    (attempt / "work").mkdir(parents=True)
    let_go(attempt)
    with_lease = LeaseFile(second.folder / "lease")
    with_lease.hold(1 << 62)
    with_lease.write()
    with_lease.close()
    grant(attempt, second, taken=False)
    await end_life(cache, first)
    assert standing_of(attempt, "to-b") is GrantStanding.OFFERED
    await end_life(cache, second)
    assert standing_of(attempt, "to-b") is GrantStanding.WITHDRAWN
    after = LeaseFile(second.folder / "lease")
    assert after.over
    after.close()


@pytest.mark.parametrize("path", ["{cache}/w-0/a/attempts/" + "x" * 5000, "{cache}/../a/b/attempts/u/work", "/", ""])
async def test_a_path_that_is_none_keeps_nobody_alive(cache: Path, begin, path: str) -> None:
    """A program may say what it likes of where it is: the others end all the same."""
    first = life(cache, "w-0/a")
    own = begin(first.folder / "attempts" / "u")
    liar = begin(first.folder / "attempts" / "v", **{ATTEMPT_FOLDER: path.format(cache=cache)})
    await end_life(cache, first)
    assert killed(own, liar) == [True, False]


async def test_containers_are_left_to_their_lease(cache: Path, begin) -> None:
    """They outlive their worker by it, wherever their processes can be seen."""
    first = life(cache, "w-0/a")
    (first.folder / "tasks").mkdir()
    inside = begin(first.folder / "attempts" / "u")
    await end_life(cache, first)
    assert killed(inside) == [False]
    assert lives(cache) == []


def test_a_life_is_removed_with_its_last_attempt(cache: Path) -> None:
    """One that somebody still wants keeps the folder; what nobody has is listed, in a life that goes on, too."""
    first, second = life(cache, "w-0/a"), life(cache, "w-1/b")
    (cache / "bundles" / "x").mkdir(parents=True)
    assert lives(cache) == [first, second]
    kept, dropped = first.folder / "attempts" / "kept", first.folder / "attempts" / "dropped"
    for attempt in (kept, dropped):
        (attempt / "work").mkdir(parents=True)
    let_go(dropped)
    assert unowned(first, over=False) == [dropped]
    assert unowned(first, over=True) == [dropped, kept]
    remove([dropped])
    assert not remove_life(first)
    remove([kept])
    assert remove_life(first)
    assert not first.folder.parent.exists()
    assert lives(cache) == [second]


def test_a_pod_that_is_no_workers(cache: Path) -> None:
    """It has no life, and nothing of it is looked for."""
    assert life_of(cache, {}) is None
    assert life_of(cache, {"IRIS_WORKER_ID": "w", "IRIS_INCARNATION": "i"}) == WorkerLife(cache / "w" / "i")
