"""sim plan: a seed's plan as a file."""

import pytest

from iriscw_sims import draw_plan
from iriscw_sims.plans import load_plan


def test_the_plan_of_a_seed(iriscw):
    """Standard output is the plan, and nothing else."""
    code, out, err = iriscw("sim", "plan", "3")
    assert (code, err) == (0, "")
    assert load_plan(out) == draw_plan(3)


def test_kinds_are_left_out(iriscw, tmp_path):
    """Each --without takes one kind out, of the seed's plan or of a file's."""
    _, out, _ = iriscw("sim", "plan", "3", "--without", "stream breaks", "--without", "api lost")
    expected = draw_plan(3).without("stream breaks").without("api lost")
    assert load_plan(out) == expected
    path = tmp_path / "plan.json"
    path.write_text(out, encoding="utf-8")
    _, out, _ = iriscw("sim", "plan", "--plan", str(path), "--without", "controller crashes")
    assert load_plan(out) == expected.without("controller crashes")


def test_an_unknown_kind_is_told_the_nearest(iriscw):
    """A wrong name is refused: a plan without nothing would be misread."""
    code, out, err = iriscw("sim", "plan", "3", "--without", "node died")
    assert (code, out) == (2, "")
    assert "'node dies'" in err
    assert "did you mean" not in iriscw("sim", "plan", "3", "--without", "zzzzzzzz")[2]


@pytest.mark.parametrize("arguments", [[], ["3", "--plan", "x"]])
def test_a_plan_is_of_a_seed_or_of_a_file(iriscw, arguments):
    """Neither, or both, cannot be."""
    code, out, err = iriscw("sim", "plan", *arguments)
    assert (code, out) == (2, "")
    assert "name a SEED or a --plan" in err
