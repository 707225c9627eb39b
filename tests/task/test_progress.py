"""How far a task is: what it may say, when that is written, and what its worker makes of the file."""

import json
import os
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.rpc.limits import MAX_PROGRESS_CHARS
from iriscw.task import progress as module
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import AttemptFacts
from iriscw.task.progress import TaskProgress, flush, progress, read_progress
from raised import that


@pytest.fixture
def work(tmp_path):
    """The working folder of a task, which runs in the test."""
    (tmp_path / "work" / ".iris").mkdir(parents=True)
    with entered(TaskContext(AttemptFacts("j", "j/0", "a", 0, 1), tmp_path / "work")):
        yield tmp_path / "work"


def said(work: Path) -> TaskProgress | None:
    """What the worker reads."""
    return read_progress(work.parent, work)


def test_the_latest_wins(work, monkeypatch):
    """The first is told at once; of those that come too soon only the last, when its turn has come."""
    monkeypatch.setattr(module, "INTERVAL_S", 3600.0)
    assert said(work) is None
    progress(1, 10)
    for number in range(2, 9):
        progress(number, 10, f"at {number}")
        assert said(work) == TaskProgress(1000, 10_000, "")
    flush()
    assert said(work) == TaskProgress(8000, 10_000, "at 8")
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)
    progress(9)
    progress(10)
    (reporter,) = [each for folder, each in module._reporters.items() if folder.is_relative_to(work)]
    if reporter._timer is not None:
        reporter._timer.join()
    assert said(work) == TaskProgress(10_000)


WRONG = [(True,), ("1",), (-1,), (float("nan"),), (1, float("inf")), (1, -1), (None,), (10**400,)]


@pytest.mark.parametrize("given", WRONG, ids=repr)
def test_numbers_are_numbers(given):
    """Whoever says something else hears it where it is said, in a task or not."""
    with pytest.raises(InvalidArgument, check=that(comes_from="progress._milli")):
        progress(*given)


@pytest.mark.parametrize("given", [np.int8(100), np.float32(100), Fraction(100)], ids=repr)
def test_numbers_of_libraries_are_numbers(given):
    """A step is often no int of Python, and 8 bits of NumPy's do not hold its thousandths."""
    assert TaskProgress.of(given, given, "") == TaskProgress(100_000, 100_000)


def test_outside_of_a_task_nothing_happens():
    """A function that tells its progress can be called anywhere; a text is still a text."""
    progress(1, 2, "three")
    with pytest.raises(InvalidArgument, check=that(names="text")):
        progress(1, 2, 3)


def test_a_disk_that_takes_nothing(work, caplog):
    """The task goes on; its log says so, once."""
    (work / ".iris").rmdir()
    progress(1)
    flush()
    progress(2)
    flush()
    assert len([each for each in caplog.records if each.name == "iriscw.task"]) == 1


@given(
    st.one_of(
        st.binary(max_size=50),
        st.lists(st.integers() | st.text() | st.none() | st.booleans() | st.floats(), max_size=4).map(
            lambda said: json.dumps(said).encode()
        ),
    )
)
def test_a_program_may_write_what_it_likes(data):
    """The worker reads a progress or none, and nothing that a report cannot hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "work", ".iris")
        path.mkdir(parents=True)
        (path / "progress").write_bytes(data)
        found = read_progress(Path(folder), Path(folder, "work"))
    assert found is None or json.loads(data) == [found.done_milli, found.total_milli, found.text]
    assert found is None or found.check() is found


def test_long_texts_and_links(work, tmp_path):
    """A text is cut; a link is not followed, nor is a file read that is too long."""
    progress(1, 2, "x" * 1000)
    assert len(said(work).text) == MAX_PROGRESS_CHARS
    file = work / ".iris" / "progress"
    file.write_bytes(b"[1, 2, " + b" " * 5000 + b'""]')
    assert said(work) is None
    file.write_text('[1, 2, "\\ud800"]')
    assert said(work) is None, "half a letter, which no message can hold"
    file.unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "progress").write_text('[1, 2, "secret"]')
    file.symlink_to(tmp_path / "other" / "progress")
    assert said(work) is None
    file.unlink()
    (work / ".iris").rmdir()
    (work / ".iris").symlink_to(tmp_path / "other")
    assert said(work) is None


def test_a_child_of_the_task_tells_as_well(work, monkeypatch):
    """It was forked while its parent's next word waited."""
    monkeypatch.setattr(module, "INTERVAL_S", 3600.0)
    progress(1)
    progress(2)
    if (pid := os.fork()) == 0:
        progress(3, 4, "child")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert said(work) == TaskProgress(3000, 4000, "child")
