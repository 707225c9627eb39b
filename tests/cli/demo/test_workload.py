"""What the demo's tasks compute."""

import hashlib

import pytest

from iriscw.cli.demo import workload
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import AttemptFacts
from raised import that


@pytest.fixture
def folder(tmp_path):
    """A small library."""
    for number in range(7):
        (tmp_path / f"m{number}.py").write_text(f"import os, sys\nfrom json import dumps\nx = {number}\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text("left out\n")
    return tmp_path


def share(folder, index, of):
    """Compute one share as a task does."""
    facts = AttemptFacts(job_id="j", task_id=f"j/{index}", attempt_uid="u", index=index, num_tasks=of)
    with entered(TaskContext(facts, folder)):
        return workload.index_share(str(folder), 0)


def test_facts_of_a_file(folder):
    """Lines, tokens, imports and hash are those of the file."""
    data = (folder / "m3.py").read_bytes()
    lines, tokens, modules, digest = workload.facts_of(folder / "m3.py")
    assert (lines, modules, digest) == (3, ("json", "os", "sys"), hashlib.sha256(data).hexdigest())
    assert tokens > 10


@pytest.mark.parametrize("of", [1, 2, 3, 10])
def test_shares_make_the_whole(folder, of):
    """However many tasks share the work, together they find what one finds."""
    merged = workload.merge([share(folder, index, of) for index in range(of)])
    assert merged == workload.index_files(folder, workload.sources(folder))
    assert len(merged) == 7


def test_shares_do_not_overlap():
    """A file in two shares is an error: the merge would hide a wrong split."""
    facts = (1, 2, (), "x")
    with pytest.raises(ValueError, check=that(comes_from="workload.merge", names="a.py")):
        workload.merge([{"a.py": facts}, {"a.py": facts}])


def test_passes_are_compared(folder, monkeypatch):
    """A task that finds something else the second time fails."""
    numbers = iter(range(10**6))
    monkeypatch.setattr(workload, "facts_of", lambda path: (next(numbers), 0, (), ""))
    facts = AttemptFacts(job_id="j", task_id="j/0", attempt_uid="u", index=0, num_tasks=1)
    with (
        entered(TaskContext(facts, folder)),
        pytest.raises(RuntimeError, check=that(comes_from="workload.index_share")),
    ):
        workload.index_share(str(folder), 0.5)


def test_summary_says_what_was_found(folder):
    """One line has the counts, the other the favourites; both fit a terminal of 100 columns, behind the time."""
    merged, favourites = workload.summary(workload.index_files(folder, workload.sources(folder)))
    assert merged.startswith("merged: 7 files, 21 lines, ")
    assert favourites.startswith("most imported: json, os, sys")
    assert len(merged) < 90
