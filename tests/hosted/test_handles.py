"""Handles that were unpickled in a task: the client that calls for them; and what callers are advised."""

import asyncio
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from iriscw.client import actors
from iriscw.client.hosted import advised, over_text
from iriscw.errors import NoSuchJob, PermissionDenied
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import AttemptFacts
from raised import that

PATIENCE_S = 30


def test_the_client_of_an_inline_task_ends_with_it(monkeypatch):
    """One task has one; a later task has another, and nothing is kept of those that are over."""
    left = threading.Event()

    @asynccontextmanager
    async def connect():
        try:
            yield SimpleNamespace(method_calls="calls")
        finally:
            left.set()

    monkeypatch.setattr("iriscw.client.client.connect", connect)
    task = TaskContext(AttemptFacts("/j", "/j/0", "uid", 0, 1, namespace="/j"), Path("/w"))
    with entered(task):
        home = actors.ambient_calls()
        opening = asyncio.run_coroutine_threadsafe(home.opened(), home.loop)
        assert opening.result(PATIENCE_S) == "calls"
        assert actors.ambient_calls() is home
    assert left.wait(PATIENCE_S)
    assert home.closed
    with entered(task):
        assert actors.ambient_calls() is not home


def test_a_group_is_ended_though_one_of_it_is_forgotten(monkeypatch):
    """Its others are ended all the same; what else is refused is told."""
    ended = []

    class Job:
        def __init__(self, calls, job_id, job_uid, name):
            self.id = job_id

        async def terminate(self, reason):
            if self.id == "gone":
                raise NoSuchJob("it is forgotten")
            if self.id == "foreign":
                raise PermissionDenied("it is not yours")
            ended.append((self.id, reason))

    async def opened():
        return None

    async def end(*names):
        home = actors.HostedCalls(opened)
        await actors.ActorGroup(
            [actors.ActorHandle(actors.ActorId(name, name, name), (), home, None) for name in names]
        ).terminate("enough")

    monkeypatch.setattr(actors, "Job", Job)
    asyncio.run(end("one", "gone", "two"))
    assert ended == [("one", "enough"), ("two", "enough")]
    with pytest.raises(PermissionDenied):
        asyncio.run(end("foreign"))


def test_a_module_that_the_actor_lacks_is_one_to_send_along(tmp_path, monkeypatch):
    """If it is a file of the caller's: in the error of a call, and where the actor could not be made."""
    (tmp_path / "neighbour_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    words = "No module named 'neighbour_of_mine'"
    assert that(names="bundle=")(RuntimeError(over_text("one", f"ModuleNotFoundError: {words}")))
    [note] = advised(ModuleNotFoundError(words)).__notes__
    assert "bundle=" in note
    assert over_text("one", "") == "the actor 'one' is over: its job has ended"
