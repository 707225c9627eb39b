"""YAML text to plain values that know their lines."""

import pytest
from hypothesis import given, strategies as st

from iriscw.config.errors import ConfigError, ConfigSyntaxError, ProblemKind
from iriscw.config.load import parse_config
from iriscw.config.yaml_lines import DEPTH_LIMIT, Marked, mark, parse
from raised import that


def plain(text):
    """Return what a text says, without lines."""
    return parse(text, "x.yaml")[0].plain()


def test_lines_are_those_of_keys():
    """A value knows the line of its key, an item of a list its own."""
    marked, problems = parse("a:\n  b: 1\n\nc:\n- 2\n- 3\n", "x.yaml")
    assert problems == []
    assert marked.value["a"].line == 1
    assert marked.value["a"].value["b"] == Marked(1, 2)
    assert marked.value["c"].value == [Marked(2, 5), Marked(3, 6)]


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("true", True), ("False", False), ("010", 10), ("0o10", 8), ("0x1F", 31),
        ("-3", -3), ("1_000", "1_000"), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("12:30:00", "12:30:00"),
        ("~", None), ("", None), ("null", None), ("'1'", "1"), ('"true"', "true"), ("2048GB", "2048GB"),
        ("<registry>/x:1", "<registry>/x:1"), (".inf", ".inf"), ("9" * 41, "9" * 41), ("2026-01-01", "2026-01-01"),
    ],
)  # fmt: skip
def test_scalars_of_yaml_1_2(scalar, value):
    """Only true and false are bools, sexagesimals and dates are text, quotes make text."""
    read = plain(f"a: {scalar}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_an_empty_text_is_an_empty_mapping():
    """Nothing is said by nothing, nor by a comment."""
    assert plain("") == plain("# only a comment\n") == {}
    assert plain("---\n") is None


def test_a_duplicate_names_both_lines():
    """The first value stays, the second is a problem with its path."""
    marked, problems = parse("a:\n  b: 1\n  b: 2\n", "x.yaml")
    assert marked.plain() == {"a": {"b": 1}}
    assert [(one.kind, one.path, one.line) for one in problems] == [(ProblemKind.DUPLICATE_KEY, "a.b", 3)]
    assert "line 2" in problems[0].text


def test_a_duplicate_section_does_not_leak():
    """The keys of a section that occurs twice are neither mixed nor reported again."""
    marked, problems = parse("a: {b: 1}\na: {c: 2}\n", "x.yaml")
    assert marked.plain() == {"a": {"b": 1}}
    assert len(problems) == 1


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_depth_is_bounded(opening):
    """A text nested as deep as the limit is read, one deeper or much deeper is refused."""
    closing = {"[": "]", "{a: ": "}"}[opening]
    assert plain(opening * DEPTH_LIMIT + "1" + closing * DEPTH_LIMIT)
    for depth in (DEPTH_LIMIT + 1, 10_000):
        with pytest.raises(ConfigSyntaxError, check=that(comes_from="yaml_lines._check_start", names="32")):
            plain(opening * depth)
    value = 1
    for _ in range(DEPTH_LIMIT + 2):
        value = [value]
    with pytest.raises(ConfigSyntaxError, check=that(names="32")):
        mark(value)


def test_aliases_cannot_multiply():
    """A text that would grow without end through aliases is refused at the first anchor."""
    laughs = "a: &a [x, x]\n" + "".join(f"{name}: &{name} [*a, *a]\n" for name in "bcdefgh")
    with pytest.raises(ConfigSyntaxError, check=that(comes_from="yaml_lines._build")):
        plain(laughs)


@given(
    st.text(st.characters(exclude_categories=[]), max_size=40) | st.text("{}[]:,-&*!|>'\"%@`# \n\tab1~", max_size=40)
)
def test_any_text_is_read_or_refused(text):
    """No text makes reading fail in another way than by its named error."""
    with pytest.raises(ConfigError):
        parse_config(text)
