"""YAML that every parser reads alike."""

import io

import pytest
import yaml
from deploy_world import EVERYTHING, SEEDS, installed, installed_from
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from iriscw.deploy.rendering import render
from iriscw.deploy.writing import document, stream

TRAPS = (
    *(
        "no",
        "Yes",
        "on",
        "OFF",
        "y",
        "null",
        "~",
        "true",
        "1",
        "0x1f",
        "0o7",
        "010",
        "1e3",
        "12:30",
        "1_000",
        ".inf",
        ".5",
    ),
    *(
        "a: b",
        "a #b",
        "- a",
        "a:",
        ":a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a`",
        "{a}",
        "[a]",
        "'",
        '"',
        "?",
        "|",
        ">",
        "<<",
        "=",
    ),
    *(
        "",
        " ",
        " a",
        "a ",
        "a  b",
        "a\nb",
        "a\n",
        "\na\n",
        " a\nb\n",
        "a\n\n",
        "a\n\nb\n",
        "a\tb",
        "\x00",
        "\x85",
        "\u2028",
    ),
    *("2001-01-01", "0.1.0.dev0", "iris:latest", "a:1", "--host", "/etc/iris", "ä", "😀", "a\r\n"),
)
texts = st.sampled_from(TRAPS) | st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)


def old(text):
    """Read YAML 1.1, as `kubectl` does."""
    return list(yaml.safe_load_all(text))


def new(text):
    """Read YAML 1.2."""
    return list(YAML(typ="safe", pure=True).load_all(io.StringIO(text)))


@given(values)
def test_what_is_written_is_read(value):
    """By the rules of YAML 1.1 and of 1.2, any JSON there is."""
    text = document(value)
    assert old(text) == [value]
    assert new(text) == [value]


@pytest.mark.parametrize("trap", TRAPS)
def test_texts_stay_texts(trap):
    """Also where a parser would take them for something else, as a value, an item and a key."""
    value = {trap: trap, "list": [trap, {"deep": trap}]}
    assert old(document(value)) == [value]
    assert new(document(value)) == [value]


INSTALLATIONS = [*map(installed_from, SEEDS), installed(EVERYTHING)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("installation", INSTALLATIONS, ids=lambda each: each.namespace)
def test_a_stream_is_its_objects(installation):
    """In their order, whole, with nothing before the first."""
    rendered = render(installation)
    text = stream(installation, rendered)
    for read in (old, new):
        assert [each for each in read(text) if each is not None] == [each.body for each in rendered]


def test_the_head_says_what_is_not_there():
    """Every Secret that is referred to, with its keys, and how the ones of ours are made."""
    text = stream(installed(), render(installed())).partition("\n---\n")[0]
    assert all(line.startswith("#") for line in text.splitlines())
    keys = "cluster-secret, admin-token, metrics-token, tls.crt, tls.key"
    for word in (f"iris-controller-secrets: {keys}", "iris-ca: ca.crt", "iris-metrics: token"):
        assert word in text
    assert "iris-image-pull" in text
    assert "--secrets-to" in text


def test_the_configuration_can_be_read():
    """It stands there as lines, not as one quoted text."""
    assert "\n  config.yaml: |\n    name: research\n" in stream(installed(), render(installed()))
