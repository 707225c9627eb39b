"""What the options of sim hold."""

import errno
import os

import attrs
import click
import pytest
from hypothesis import given, strategies as st

from iriscw.cli.sim.kinds import Moment, NoSuchPlan, PictureUnwritable, read_plan, write_picture
from iriscw_sims import Fault, draw_plan
from iriscw_sims.plan_text import pack, plan_text
from iriscw_sims.plans import BadPlan, PlanUnreadable, dump_plan
from iriscw_sims.timeline.text import clock
from raised import that


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("90s", 90_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1:30", 90_000_000_000),
        ("1:30.5", 90_500_000_000),
        ("2:01:00.001", 7_260_001_000_000),
        ("0:00.384", 384_000_000),
    ],
)
def test_a_moment_is_a_length_or_a_clock(text, ns):
    """Either as lengths of time are written everywhere, or as the timeline writes it."""
    assert Moment().convert(text, None, None) == ns


@given(st.integers(0, 10**14))
def test_what_the_timeline_writes_can_be_pasted(milliseconds):
    """Every moment of a timeline is a moment."""
    ns = milliseconds * 1_000_000
    assert Moment().convert(clock(ns), None, None) == ns


@pytest.mark.parametrize("text", ["", "90", "1:2:3:4", "-1:00", "1:30s", ":30", "\u0661:30", "1:" + "0" * 400])
def test_other_texts_are_no_moments(text):
    """The error shows how one is written."""
    with pytest.raises(click.BadParameter, check=that(names="1:23.456")):
        Moment().convert(text, None, None)


def test_a_picture_is_written_as_a_whole(tmp_path):
    """What cannot be encoded is an escape; a folder that is not there is an error of the world."""
    path = tmp_path / "x.html"
    write_picture(path, "größe \udc80")
    assert path.read_text(encoding="utf-8") == "größe \\udc80"
    with pytest.raises(PictureUnwritable, check=that(names=os.strerror(errno.ENOENT))):
        write_picture(tmp_path / "missing" / "x.html", "")


def test_a_plan_is_json_python_or_a_word(tmp_path):
    """Whatever holds it, it is the same plan."""
    plan = draw_plan(3)
    as_json, as_python = tmp_path / "plan.json", tmp_path / "plan.py"
    as_json.write_text(f"\n{dump_plan(plan)}", encoding="utf-8")
    as_python.write_text(plan_text(plan), encoding="utf-8")
    assert read_plan(str(as_json)) == read_plan(str(as_python)) == read_plan(pack(plan)) == plan


def test_a_plan_says_where_it_is_wrong(tmp_path):
    """Errors name the file, or how the word begins, and what is wrong in it."""
    path = tmp_path / "plan"
    with pytest.raises(NoSuchPlan, check=that(names=os.strerror(errno.ENOENT))):
        read_plan(str(path))
    with pytest.raises(NoSuchPlan, check=that(names=os.strerror(errno.EISDIR))):
        read_plan(str(tmp_path))
    with pytest.raises(NoSuchPlan, check=that(names=os.strerror(errno.ENAMETOOLONG))):
        read_plan("/" + "x" * 5_000)
    for text, said in (
        ("{", that(names="JSON")),
        ("import os", that(comes_from="plan_text.read_any_plan")),
        ('{"format": "iriscw-plan", "version": 9}', that(names="9")),
        ('{"format": "iriscw-plan", "version": 1, "plan": 5}', that(comes_from="plans._read_object")),
        (plan_text(attrs.evolve(draw_plan(3), faults=(Fault(1, "earthquake", 0),))), that(names="earthquake")),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadPlan, check=said) as raised:
            read_plan(str(path))
        assert str(raised.value).startswith(f"{path}: ")
    path.write_bytes(b"Plan(\xff)")
    with pytest.raises(PlanUnreadable, check=that(names="utf-8")):
        read_plan(str(path))
    with pytest.raises(
        PlanUnreadable,
        check=that(names="x" * 250),
    ):
        read_plan("x" * 5_000)
