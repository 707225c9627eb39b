"""What workers left is removed once no job wants it, and not before."""

from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from iriscw._errors import ActorStopped, NoSuchActor
from iriscw.cloud.drivers.local.attempts import WorkerLife
from iriscw.cloud.model import LABEL_INCARNATION, Unavailable
from iriscw.controller.platforms import local_leftovers as module
from iriscw.controller.platforms.local_leftovers import Lives, workers_of
from iriscw.jobs.messages import TaskPage
from iriscw.jobs.model import Ending
from iriscw.processes.grants import let_go
from waiting import until


class Jobs:
    """A cloud, the store of logs and jobs in one: which pods there are, and how each attempt is."""

    def __init__(self):
        self.pod_names, self.attempts, self.troubles = [], {}, []
        self.starting, self.asked = [], []
        self.pods = self

    async def list(self, labels):
        if self.troubles:
            raise self.troubles.pop()
        return tuple(SimpleNamespace(name=f"{w}-{i}", labels={LABEL_INCARNATION: i}) for w, i in self.pod_names)

    def attempt(self, uid):
        return SimpleNamespace(job_id=f"job-{uid}", index=0) if uid in self.attempts else None

    async def forgotten(self, job_id):
        return job_id not in self.starting

    async def ask(self, path, message):
        self.asked.append(path)
        ending = self.attempts[path.removeprefix("/jobs/job-")]
        if isinstance(ending, Exception):
            raise ending
        uid = path.removeprefix("/jobs/job-")
        return TaskPage((SimpleNamespace(uid=uid, ending=ending),), -1, "")


def attempt(cache: Path, life: str, uid: str, *, nobodys: bool = False) -> Path:
    """Make the folder of an attempt."""
    folder = WorkerLife(cache / life).folder / "attempts" / uid
    (folder / "work").mkdir(parents=True)
    if nobodys:
        let_go(folder)
    return folder


async def test_what_no_job_wants_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker that is gone all that has ended; of one that is there what it let go. A trouble puts it off."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    jobs = Jobs()
    jobs.pod_names = [("w-1", "b")]
    jobs.troubles = [Unavailable("not now")]
    jobs.attempts = {"wanted": None, "ended": Ending.SUCCEEDED, "own": Ending.KILLED, "aside": ActorStopped("it is")}
    jobs.attempts["forgotten"] = NoSuchActor("no such job")
    kept = [attempt(tmp_path, "w-0/a", "wanted"), attempt(tmp_path, "w-0/a", "aside")]
    kept += [attempt(tmp_path, "w-1/b", "own"), attempt(tmp_path, "w-1/b", "moved", nobodys=True)]
    jobs.attempts["moved"] = None
    gone = [attempt(tmp_path, "w-0/a", "ended"), attempt(tmp_path, "w-0/a", "unheard-of")]
    gone += [attempt(tmp_path, "w-1/b", "stopped", nobodys=True), attempt(tmp_path, "w-2/c", "forgotten")]
    made = Lives(tmp_path, jobs, jobs, jobs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        await until(lambda: not any(each.exists() for each in gone))
        await until(lambda: not (tmp_path / "w-2").exists())
        assert all(each.exists() for each in kept)
        jobs.attempts.update(wanted=Ending.KILLED, aside=Ending.KILLED, moved=Ending.SUCCEEDED)
        made.ring()
        await until(lambda: not (tmp_path / "w-0").exists() and not kept[3].exists())
        assert kept[2].exists()
        tasks.cancel_scope.cancel()


async def test_a_job_that_is_being_started_has_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While jobs are started, and none is there to be asked, nothing goes; it is looked at again by itself."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    jobs = Jobs()
    jobs.attempts = {"suspended": NoSuchActor("not yet"), "ended": Ending.KILLED}
    jobs.starting = ["job-suspended"]
    kept, gone = attempt(tmp_path, "w-0/a", "suspended"), attempt(tmp_path, "w-1/a", "ended")
    made = Lives(tmp_path, jobs, jobs, jobs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        await until(lambda: len(jobs.asked) > 1)
        assert kept.exists()
        jobs.attempts["suspended"] = None
        await until(lambda: not gone.exists())
        assert kept.exists()
        tasks.cancel_scope.cancel()


def test_whose_pods_they_are() -> None:
    """A pod's name is its worker's, and which life of it."""
    (pod,) = [SimpleNamespace(name="w-0-xyz", labels={LABEL_INCARNATION: "xyz"})]
    assert [*workers_of([pod])] == [("w-0", "xyz")]
