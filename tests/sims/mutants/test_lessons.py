"""What others have learned the hard way is noticed here: by a seed of the simulated world, or by one test."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

sys.path.insert(0, str(HERE))

from lessons import ALREADY, LESSONS  # noqa: E402
from planted import MUTANTS  # noqa: E402
from planting import fails, find, planted  # noqa: E402

BY_NAME = {lesson.name: lesson for lesson in LESSONS}
BY_SEEDS = [lesson.name for lesson in LESSONS if lesson.found_by_seeds or not lesson.catcher]
BY_A_TEST = [lesson.name for lesson in LESSONS if lesson.catcher]
PURITY = "test_decisions_cannot_call_the_cloud"


def test_each_lesson_says_what_it_repeats():
    """Twelve lessons at least, by number; names are unique, and what is said to be planted already is."""
    names = [mutant.name for mutant in (*MUTANTS, *LESSONS)]
    assert len(names) == len({*names})
    assert {name for group in ALREADY.values() for name in group} <= {mutant.name for mutant in MUTANTS}
    assert all(lesson.lesson.partition(" ")[0] in ("iris", "gpu") and lesson.what for lesson in LESSONS)
    assert len(LESSONS) >= 12
    assert len({*ALREADY, *(lesson.lesson for lesson in LESSONS)}) >= 12


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BY_SEEDS)
def test_seeds_find_it(name, tmp_path):
    """A seed breaks an invariant."""
    find(BY_NAME[name], tmp_path)


CAUGHT_BY_A_TEST = [name for name in BY_A_TEST if PURITY not in BY_NAME[name].catcher]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CAUGHT_BY_A_TEST)
def test_it_fails_its_test(name, tmp_path):
    """The test that is named as its catcher fails, and nothing else goes wrong."""
    fails(BY_NAME[name], BY_NAME[name].catcher, tmp_path)


def test_decisions_cannot_call_the_cloud(tmp_path):
    """They have nothing to call it with: a decision that blocks is found without being run."""
    name = "a-cloud-call-blocks-the-loop"
    assert PURITY in BY_NAME[name].catcher
    spec = importlib.util.spec_from_file_location("layers", ROOT / "tests" / "test_layers.py")
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    module = BY_NAME[name].edits[0].module
    dotted = f"iriscw.{module.removesuffix('.py').replace('/', '.')}"
    text = (ROOT / "src" / "iriscw" / module).read_text(encoding="utf-8")
    assert list(layers.check_purity(dotted, ast.parse(text))) == []
    changed = (planted(BY_NAME[name], tmp_path) / "iriscw" / module).read_text(encoding="utf-8")
    assert "subprocess in a pure module" in next(iter(layers.check_purity(dotted, ast.parse(changed))))
