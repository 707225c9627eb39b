"""The proof bites: each planted bug of the kernel is found within a bounded number of examples."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anchors import plant, sources

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCE = TESTS.parents[1] / "src" / "iriscw"
EXAMPLES = 400
SLICE = ("reply-leaves-before-the-commit", "mailbox-bound-not-checked")
"""Found quickly, each by another checker: what `make test` runs."""

DIRECTED = {
    "a-restart-covers-the-namesake-of-who-was-stopped",
    "a-start-that-a-child-has-failed-goes-on",
    "budget-shared-across-children",
    "children-stopped-in-start-order",
    "deferred-slot-not-failed-on-restart",
    "group-budget-survives-its-supervisor",
    "news-of-an-end-leaves-early",
    "rest-for-one-restarts-one",
    "restart-window-by-count",
    "resume-only-at-the-first-start",
    "terminated-overtakes-last-messages",
}
"""What neither the model nor the crash law finds in so many examples: they need not be waited for first."""

sys.path.insert(0, str(HERE))

from catalogue import MUTANTS  # noqa: E402

MUTANT_NAMES = [mutant.name for mutant in MUTANTS]
assert {*MUTANT_NAMES} >= DIRECTED


def planted(mutant, folder):
    """Copy what the kernel is made of to ``folder``, with the bug in it."""
    package = folder / "iriscw"
    for name in ("runtime", "journal", "testing"):
        # Bytecode comes along, but for what another process writes just now, under a name that ends otherwise.
        shutil.copytree(SOURCE / name, package / name, ignore=shutil.ignore_patterns("*.pyc.*", "conformance"))
    for path in SOURCE.glob("*.py"):
        shutil.copy(path, package / path.name)
    if mutant:
        plant(mutant, package)
    return folder


def hunt(folder, hunters=(), examples=EXAMPLES):
    """Return what the hunt reports of the kernel in ``folder``; without ``hunters``, all of them go."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HERE / "hunt.py"), str(TESTS), str(examples), *hunters]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


def find(name, folder):
    """Plant the bug called ``name``, and find it."""
    mutant = MUTANTS[MUTANT_NAMES.index(name)]
    report = hunt(planted(mutant, folder), ("table", "laws") if name in DIRECTED else ())
    assert report, f"nobody noticed {name}"
    sys.stdout.write(f"{name}: {report}\n")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_the_planted_bugs_is_found(name, tmp_path):
    """Some planted bugs are found whenever tests run."""
    find(name, tmp_path)


def test_its_place_is_there():
    """Every planted bug still fits the source; what does not says so by itself."""
    assert [mutant.name for mutant in MUTANTS if not sources(mutant, SOURCE)] == []


@pytest.mark.slow
def test_nothing_is_found_without_a_bug(tmp_path):
    """The hunt itself raises no false alarm."""
    assert hunt(planted(None, tmp_path)) == {}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in MUTANT_NAMES if name not in SLICE])
def test_each_planted_bug_is_found(name, tmp_path):
    """All others are found too."""
    find(name, tmp_path)
