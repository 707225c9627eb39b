"""The context reaches the task's threads and nobody else's."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio.to_thread
import attrs
import pytest

from iriscw.files import make_private_folder, write_atomic
from iriscw.task.context import NoSuchPort, NotInTask, TaskContext, context, entered
from iriscw.task.environment import AttemptFacts, encode_facts
from raised import that


def task(uid: str) -> TaskContext:
    facts = AttemptFacts("/j", f"/j/{uid}", uid, 1, 4, namespace="/j", ports={"http": 30001})
    return TaskContext(facts, Path("/w"))


def in_thread(function):
    """Run ``function`` in a plain thread and give what it gave or raised."""
    results = []

    def run() -> None:
        try:
            results.append(function())
        except NotInTask as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_outside_a_task_there_is_none() -> None:
    """It is a usage error with a name."""
    with pytest.raises(NotInTask):
        context()


def test_inside_it_is_the_one_that_was_entered() -> None:
    """Nested blocks give back what was before."""
    with entered(task("a")):
        assert context().attempt_uid == "a"
        assert (context().index, context().num_tasks, context().parent_job_id) == (1, 4, None)
        with entered(task("b")):
            assert context().task_id == "/j/b"
        assert context().attempt_uid == "a"
    with pytest.raises(NotInTask):
        context()


def test_threads_of_a_task_inherit_it_and_others_do_not() -> None:
    """A thread started inside a task is in it, at any depth; one started outside meanwhile is not."""
    start = threading.Thread.start
    started, done = threading.Event(), threading.Event()
    outside = []

    def other() -> None:
        started.wait()
        outside.append(in_thread(context))
        done.set()

    stranger = threading.Thread(target=other)
    stranger.start()
    with entered(task("a")):
        assert in_thread(context).attempt_uid == "a"
        assert in_thread(lambda: in_thread(context)).attempt_uid == "a"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(context).result().attempt_uid == "a"
        started.set()
        done.wait()
    stranger.join()
    assert isinstance(outside[0], NotInTask)
    assert threading.Thread.start is start


async def test_tasks_of_an_event_loop_inherit_it() -> None:
    """asyncio copies contexts by itself: in tasks and in worker threads."""

    async def ask() -> str:
        return context().attempt_uid

    with entered(task("a")):
        assert await asyncio.create_task(ask()) == "a"
        assert (await anyio.to_thread.run_sync(context)).attempt_uid == "a"


def test_two_tasks_of_one_process_are_kept_apart() -> None:
    """Each thread sees its own task, whatever the other does."""
    barrier = threading.Barrier(2)

    def run(uid: str) -> str:
        with entered(task(uid)):
            barrier.wait()
            return in_thread(context).attempt_uid

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, ["a", "b"])) == ["a", "b"]


def test_ports_have_names() -> None:
    """A port that was not asked for is named, with those that were."""
    assert task("a").port("http") == 30001
    with pytest.raises(NoSuchPort, check=that(comes_from="context.TaskContext.port", names="http")):
        task("a").port("grpc")


def test_a_process_of_its_own_reads_the_files(tmp_path: Path) -> None:
    """Any Python program that a worker started can ask, in any thread."""
    make_private_folder(tmp_path / ".iris")
    write_atomic(tmp_path / ".iris" / "context.json", encode_facts(task("a").facts))
    code = (
        "import threading; from iriscw.task.context import context\n"
        "threading.Thread(target=lambda: print(context().attempt_uid, context().token_file)).start()"
    )
    environment = {**os.environ, "IRIS_WORKDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == f"a {tmp_path}/.iris/token\n"


def test_a_process_with_a_network_of_its_own_knows_its_address(tmp_path: Path) -> None:
    """Only its environment does: the file was written before there was a pod."""
    make_private_folder(tmp_path / ".iris")
    write_atomic(tmp_path / ".iris" / "context.json", encode_facts(task("a").facts))
    code = "from iriscw.task.context import context; print(context().facts.advertise_host)"
    for more, expected in (({"IRIS_ADVERTISE_HOST": "10.1.2.3"}, "10.1.2.3"), ({}, task("a").facts.advertise_host)):
        environment = {"PATH": os.environ["PATH"], "IRIS_WORKDIR": str(tmp_path), **more}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
        assert done.stdout.decode() == f"{expected}\n"


def test_it_is_read_anew_when_the_task_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is now is what its files say; its environment, and what it has done to its files, are older."""
    folder = tmp_path / ".iris"
    make_private_folder(folder)
    facts = AttemptFacts("/j", "/j/0", "a1", 0, 1, worker_id="a", advertise_host="10.0.0.1")
    write_atomic(folder / "context.json", encode_facts(facts))
    monkeypatch.setenv("IRIS_WORKDIR", str(tmp_path))
    monkeypatch.setenv("IRIS_ADVERTISE_HOST", "10.9.9.9")
    first = context()
    assert (first.worker_id, first.facts.advertise_host) == ("a", "10.9.9.9")
    assert context() is first
    moved = attrs.evolve(facts, worker_id="b", advertise_host="10.0.0.2", moved=True)
    write_atomic(folder / "context.json", encode_facts(moved))
    assert (context().worker_id, context().facts.advertise_host) == ("b", "10.0.0.2")
    write_atomic(folder / "context.json", b"spoilt")
    assert context().worker_id == "b"
    (folder / "context.json").unlink()
    assert context().worker_id == "b"
