"""The search for a seed that shows a planted bug: it begins where the bug was found last, and does not end there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))

from caught import CAUGHT  # noqa: E402
from lessons import LESSONS  # noqa: E402
from planting import all_bugs, find, found_at, hunt, planted, write  # noqa: E402

from anchors import Mutant, sources  # noqa: E402

SOURCE = HERE.parents[2] / "src" / "iriscw"
BUGS = {bug.name: (bug, nodes) for bug, nodes in all_bugs()}
BUG = Mutant("a-bug", (), seeds=60, first=100)


def running(*broken):
    """Return what runs seeds of which these are broken, and the list of what it was asked for."""
    asked = []

    def run(folder, first, seeds, *, nodes, fails_with):
        asked.append((first, seeds))
        return next(((seed, "INV-X") for seed in broken if first <= seed < first + seeds), None)

    return run, asked


def test_the_seed_that_showed_it_last_is_tried_first():
    """Nothing else is run where it still does."""
    run, asked = running(110, 500)
    assert hunt(BUG, "folder", begins_with=500, run=run) == (500, "INV-X")
    assert asked == [(500, 1)]


def test_where_it_leads_elsewhere_the_search_goes_on():
    """Through all seeds of the bug: what a file says decides nothing."""
    run, asked = running(110)
    assert hunt(BUG, "folder", begins_with=500, run=run) == (110, "INV-X")
    assert asked == [(500, 1), (100, 60)]


@pytest.mark.parametrize("begins_with", [None, 500])
def test_what_no_seed_shows_is_not_found(begins_with):
    """Whether or not there was a seed once."""
    run, asked = running(99, 160)
    assert hunt(BUG, "folder", begins_with=begins_with, run=run) is None
    assert asked[-1] == (100, 60)


def test_seeds_are_kept_of_bugs_that_there_are(tmp_path):
    """In the order of the bugs, as whoever reads them expects it."""
    write({"b": 7, "gone": 3, "a": 0}, ["a", "b", "new"], tmp_path / "found")
    assert [*found_at(tmp_path / "found").items()] == [("a", 0), ("b", 7)]
    assert [*found_at()] == [name for name in BUGS if name in found_at()], "planting.py writes it anew"


EVERY = {bug.name: bug for bug in (*LESSONS, *CAUGHT, *(bug for bug, _ in BUGS.values()))}


def test_its_place_is_there():
    """Every planted bug still fits the sources; what does not says so by itself."""
    assert [name for name, bug in EVERY.items() if not sources(bug, SOURCE)] == []


def test_each_name_is_of_one_bug():
    """Of the fleet's and of the nodes' together: the file knows them by their names."""
    assert len(BUGS) == len(all_bugs()) > 100


def test_what_is_compiled_comes_along_and_what_is_changed_runs(tmp_path):
    """Else each search would compile three hundred modules; bytecode of the module as it was does not count."""
    version = ast.parse((SOURCE / "_version.py").read_text(encoding="utf-8")).body[-1]
    bug = Mutant("a-bug", (("_version.py", "", ast.unparse(version), "__version__ = 'planted'"),))
    made = planted(bug, tmp_path)
    words = [sys.executable, "-c", "import iriscw; print(iriscw.__version__)"]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(made)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "planted\n"


@pytest.mark.soak
@pytest.mark.parametrize("name", BUGS)
def test_each_is_found_from_the_first_seed(name, tmp_path):
    """As if nobody knew a seed: so the number of seeds that may miss it is still the right one."""
    bug, nodes = BUGS[name]
    find(bug, tmp_path, from_the_start=True, nodes=nodes)
