"""Plans that found something once: they hold, and they would still find it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iriscw.testing.fleet import assert_holds
from iriscw_sims.plan_text import pack, read_plan

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE))

from bugs import BUGS  # noqa: E402
from planting import planted  # noqa: E402

KEPT = {path.stem: path for path in sorted(HERE.glob("seed_*.py"))}


def plan_of(name):
    """Read a kept plan."""
    return read_plan(KEPT[name].read_text(encoding="utf-8"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_holds(name):
    """No kept plan breaks an invariant, and none is larger than a reader can take in."""
    plan = plan_of(name)
    assert len(plan.faults) <= 6
    assert_holds(plan)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_plan_belongs_to_a_bug(name):
    """Its number is that of a bug that can be planted again."""
    assert int(name.removeprefix("seed_")) in BUGS


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_it_would_be_found_again(name, tmp_path):
    """With its bug planted the plan breaks; if it does not any more, ``keep.py`` looks for another one."""
    sources = planted(BUGS[int(name.removeprefix("seed_"))], tmp_path)
    environment = {**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{ROOT / 'sims'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "iriscw_sims.rerun", pack(plan_of(name))]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=sources)
    assert done.returncode == 1, done.stdout + done.stderr[-2_000:]
    assert "INV-" in done.stderr
