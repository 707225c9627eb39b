"""The simulated world bites: each planted bug of fleet and jobs breaks an invariant within some hundred seeds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SLICE = ("quota-taken-for-capacity", "end-shown-before-its-log")
"""Found within a few seeds, one of each feature: what `make test` runs."""

sys.path.insert(0, str(HERE))

from planted import MUTANTS  # noqa: E402

MUTANT_NAMES = [mutant.name for mutant in MUTANTS]


def planted(mutant, folder):
    """Copy the sources to ``folder``, with the bug in them."""
    package = folder / "iriscw"
    shutil.copytree(ROOT / "src" / "iriscw", package, ignore=shutil.ignore_patterns("__pycache__", "proto"))
    for module, old, new in mutant.edits:
        path = package / module
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{mutant.name}: {text.count(old)} places in {module} read {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def hunt(folder, seeds, first=0, fails_with=""):
    """Run seeds on the sources in ``folder`` until one breaks something; give what was printed.

    A run that fails outright is an error, unless it says ``fails_with``: then that is what was broken.
    """
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'sims'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "iriscw_sims.run", "--first", str(first), "--seeds", str(seeds)]
    command += ["--until-broken", "-o", "json"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False, cwd=folder
    )
    if fails_with and fails_with in done.stderr:
        return {"runs": [{"seed": first, "violations": [fails_with]}], "wall_s": 0}
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    return json.loads(done.stdout)


def find(name, folder):
    """Plant the bug called ``name``, and find it."""
    mutant = MUTANTS[MUTANT_NAMES.index(name)]
    found = hunt(planted(mutant, folder), mutant.seeds, mutant.first)
    violations = found["runs"][-1]["violations"]
    assert violations, f"{len(found['runs'])} seeds did not notice {name}"
    sys.stdout.write(f"{name}: {len(found['runs'])} seeds, {found['wall_s']} s: {violations[0][:120]}\n")


@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_the_planted_bugs_is_found(name, tmp_path):
    """Some planted bugs are found whenever tests run."""
    find(name, tmp_path)


def test_the_texts_to_replace_are_there(tmp_path):
    """Every planted bug still fits the sources."""
    for mutant in MUTANTS:
        texts = {}
        for module, old, new in mutant.edits:
            text = texts.setdefault(module, (ROOT / "src" / "iriscw" / module).read_text(encoding="utf-8"))
            assert text.count(old) == 1, f"{mutant.name}: {text.count(old)} places in {module} read {old!r}"
            texts[module] = text.replace(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MUTANT_NAMES if name not in SLICE])
def test_each_planted_bug_is_found(name, tmp_path):
    """All others are found too."""
    find(name, tmp_path)
