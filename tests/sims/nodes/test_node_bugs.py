"""The world of nodes bites: each planted bug of agent, freeze and thaw breaks an invariant within a number of seeds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SLICE = ("killed-before-it-is-published", "what-is-locked-stays-locked")
"""Found within a few seeds: what `make test` runs."""

sys.path.insert(0, str(HERE))

from node_bugs import MUTANTS  # noqa: E402

BUGS = {mutant.name: mutant for mutant in MUTANTS}


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


def find(name, folder):
    """Plant the bug called ``name``, and find it."""
    mutant = BUGS[name]
    made = planted(mutant, folder)
    environment = {**os.environ, "PYTHONPATH": f"{made}{os.pathsep}{ROOT / 'sims'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "iriscw_sims.run", "--nodes", "--seeds", str(mutant.seeds)]
    command += ["--first", str(mutant.first), "--until-broken", "-o", "json"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1_200, check=False, cwd=made
    )
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    runs = json.loads(done.stdout)["runs"]
    assert runs[-1]["violations"], f"{len(runs)} seeds did not notice {name}"
    sys.stdout.write(f"{name}: {len(runs)} seeds: {runs[-1]['violations'][0][:120]}\n")


@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_the_planted_bugs_is_found(name, tmp_path):
    """Some planted bugs are found whenever tests run."""
    find(name, tmp_path)


def test_the_texts_to_replace_are_there():
    """Every planted bug still fits the sources."""
    for mutant in MUTANTS:
        texts = {}
        for module, old, new in mutant.edits:
            text = texts.setdefault(module, (ROOT / "src" / "iriscw" / module).read_text(encoding="utf-8"))
            assert text.count(old) == 1, f"{mutant.name}: {text.count(old)} places in {module} read {old!r}"
            texts[module] = text.replace(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BUGS if name not in SLICE])
def test_each_planted_bug_is_found(name, tmp_path):
    """The others are found too."""
    find(name, tmp_path)
