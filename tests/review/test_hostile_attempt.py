"""What a program does to its own files harms neither its end nor its worker's stream."""

import hashlib
import os
import struct
from pathlib import Path

import pytest

from iriscw.jobs.traits import Fault
from iriscw.processes.ends import ProcessEnd
from iriscw.task.environment import AttemptFacts
from iriscw.task.framing import FrameCorrupt, unframe
from iriscw.task.payload import make_payload
from iriscw.worker.drivers.desk import finish, read_result
from iriscw.worker.drivers.shipping import LogUnreadable, _open_log
from iriscw.worker.ports import AttemptSpec, ResultUnreadable
from iriscw.worker.runtimes.process import ProcessRuntime
from iriscw.worker.runtimes.workdir import AttemptFolder

MAGIC = b"IRISDONE"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def framed(summary: bytes) -> bytes:
    """Return a frame whose hash is right, whatever its summary is."""
    head = struct.pack(">8sHBBIQ", MAGIC, 1, 3, 11, len(summary), 0)
    return head + hashlib.sha256(head + summary).digest() + summary


@pytest.mark.parametrize("summary", [b"", b"[1]", b"null", b"\xff", b"[" * 60_000])
def test_a_frame_with_a_summary_of_its_writers_own_is_corrupt(summary: bytes) -> None:
    """A right hash around a wrong summary is named, by whoever reads it."""
    with pytest.raises(FrameCorrupt):
        unframe(MAGIC, framed(summary))
    _, fault = read_result(framed(summary))
    assert fault is not None
    assert fault.kind == "FrameCorrupt"


@pytest.mark.parametrize("script", ["mkdir .iris/result", "ln -s /etc/passwd .iris/result", "rm -r .iris; : >.iris"])
async def test_a_result_that_is_no_file_is_told_from_trouble(tmp_path: Path, script: str) -> None:
    """It is not asked for again and again: the attempt could never end. A program owes none, and may leave anything."""
    runtime = ProcessRuntime(tmp_path)
    call = make_payload(exec, (f"import os; os.system({script!r}); os._exit(0)",), {})
    for uid, what in (("callable", {"payload": call}), ("program", {"argv": ("sh", "-c", script)})):
        facts = AttemptFacts(job_id="job", task_id="job/0", attempt_uid=uid, index=0, num_tasks=1)
        attempt = await runtime.start(AttemptSpec(facts=facts, **what))
        assert (await attempt.wait()).code == 0
        if uid == "callable":
            with pytest.raises(ResultUnreadable):
                await attempt.result()
        else:
            assert await attempt.result() is None


def test_an_end_whose_result_cannot_be_read() -> None:
    """The end is told with the reason, and without a result."""
    told = finish(ProcessEnd(code=0), None, 1, Fault("ResultUnreadable", "a folder"))
    assert told.result is None
    assert told.fault == Fault("ResultUnreadable", "a folder")


def test_a_log_that_is_no_file_is_named_at_once(tmp_path: Path) -> None:
    """Neither a pipe without a writer, nor a link, nor nothing at all keeps the reader, or passes for a log."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/etc/passwd")
    for path in (pipe, link, tmp_path / "nothing", tmp_path):
        with pytest.raises(LogUnreadable):
            _open_log(path)


def test_a_log_that_is_a_link_has_no_length(tmp_path: Path) -> None:
    """The length of what it points to is not that of a log: the end would wait for bytes that never come."""
    folder = AttemptFolder(tmp_path, "one")
    folder.path.mkdir()
    folder.stdout.symlink_to("/etc/passwd")
    folder.stderr.mkdir()
    assert folder.log_bytes() == 0
