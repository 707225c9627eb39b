"""Plans as text, and back."""

import ast

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.plan_text import MAX_TEXT_CHARS, imports_for, pack, plan_text, read_plan, unpack
from iriscw_sims.strategies import plans
from iriscw_sims.swarm import draw_plan
from profiles import examples
from raised import that


@pytest.mark.parametrize("seed", range(10))
def test_what_seeds_draw_survives_the_way(seed):
    """Text and word hold all of a plan."""
    plan = draw_plan(seed)
    assert read_plan(plan_text(plan)) == plan
    assert unpack(pack(plan)) == plan


@given(plans())
@examples(12)
def test_what_hypothesis_draws_survives_the_way(plan):
    """The same, for plans that no seed draws."""
    assert read_plan(plan_text(plan)) == plan


def test_the_text_is_python():
    """With its imports it makes the plan, whoever runs it."""
    plan = draw_plan(24)
    text = plan_text(plan)
    names = {}
    exec(f"{imports_for(text)}\nPLAN = {text}", names)
    assert names["PLAN"] == plan
    assert max(map(len, text.splitlines())) <= 120


def test_a_whole_file_is_read():
    """The last thing that is made counts; a docstring and imports stand before it."""
    plan = draw_plan(3)
    text = plan_text(plan)
    assert read_plan(f'"""What was found."""\n\n{imports_for(text)}\n\nPLAN = {text}\n') == plan


def test_defaults_are_left_out():
    """A plan says only what is special about it."""
    assert "image=" not in plan_text(draw_plan(3))
    assert "timing=TIMING" in plan_text(draw_plan(3))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "Fault(1, 'x', 2)",
        "Plan(__import__('os').system('true'))",
        "Plan(seed=open('x'))",
        "Plan((lambda: 1)())",
        "Plan(seed=1)",
        "Plan(seed=9 ** 9 ** 9)",
        "Plan(" * 5000,
        "Existing.__class__",
        "x" * (MAX_TEXT_CHARS + 1),
    ],
)
def test_what_is_no_plan_is_refused(text):
    """Whatever it tries: nothing is run."""
    with pytest.raises(InvalidArgument):
        read_plan(text)


@given(st.text(max_size=60))
def test_words_of_strangers_are_refused(word):
    """A word that nobody packed is an error with a name."""
    with pytest.raises(InvalidArgument):
        unpack(word)


def test_a_word_that_unpacks_to_too_much_is_refused():
    """A small word may hold a large text: it is not unpacked to its end."""
    import base64
    import zlib

    word = base64.urlsafe_b64encode(zlib.compress(b" " * (8 * MAX_TEXT_CHARS))).decode()
    with pytest.raises(InvalidArgument, check=that(comes_from="plan_text.read_any_plan")):
        unpack(word)


def test_a_word_needs_no_quotes():
    """No shell looks into it."""
    assert pack(draw_plan(5)).replace("-", "a").replace("_", "a").isalnum()


def test_imports_are_those_that_are_used():
    """Each name once, sorted."""
    tree = ast.parse(imports_for(plan_text(draw_plan(24))))
    names = [alias.name for node in tree.body for alias in node.names]
    assert len(names) == len(dict.fromkeys(names))
    assert {"Plan", "Fault", "SECOND", "TIMING"} <= {*names}
