"""What a stranger sends is read strictly, or refused with a Status."""

import json

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.refusals import Refused
from iriscw_sims.serve.requests import DEPTH_LIMIT, from_json, from_yaml, parse_body, read_body, read_target
from iriscw_sims.serve.settings import Limits
from profiles import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def code_of(refused):
    """Return the code of a refusal."""
    return refused.value.status["code"]


def test_a_target_is_decoded_once():
    """Path and query; a plus is a space in a query only."""
    target = "/api/v1/pods/a%2520b+c?labelSelector=a%3Db+c&watch&x="
    assert read_target(target) == ("/api/v1/pods/a%20b+c", (("labelSelector", "a=b c"), ("watch", ""), ("x", "")))


@pytest.mark.parametrize(
    "target",
    ["", "*", "http://x/api", "api", "/api/%ff", "/api?x=%ff", "/a%00b", "/a%0d%0ab", "/a%0ab", "/?" + "a=1&" * 201],
)
def test_targets_that_are_none(target):
    """No path, no text, characters that nobody can print, more parameters than anybody has."""
    with pytest.raises(Refused) as refused:
        read_target(target)
    assert code_of(refused) == 400


@examples(15)
@given(JSON)
def test_json_comes_back(value):
    """Whatever Python writes as JSON is read as it was."""
    assert from_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"NaN",
        b'{"a": Infinity}',
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" * (DEPTH_LIMIT + 1) + b"]" * (DEPTH_LIMIT + 1),
        b'{"a":' * (DEPTH_LIMIT + 1) + b"1" + b"}" * (DEPTH_LIMIT + 1),
        b"9" * 5000,
    ],
)
def test_what_is_no_json(data):
    """No half of a pair, no number that is none, nothing so deep that one could fall."""
    with pytest.raises(Refused) as refused:
        from_json(data)
    assert code_of(refused) == 400


def test_deep_but_possible():
    """Up to the limit a body is read; a pair of surrogates is one character."""
    data = b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT
    assert json.dumps(from_json(data)).encode() == data
    assert from_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_yaml_is_read_as_people_write_it():
    """Block and flow, with what scalars mean."""
    text = b"kind: Pod\nspec:\n  containers:\n  - {name: main, tty: true, port: 80, version: '1'}\n"
    spec = {"containers": [{"name": "main", "tty": True, "port": 80, "version": "1"}]}
    assert from_yaml(text) == {"kind": "Pod", "spec": spec}


@pytest.mark.parametrize(
    "data",
    [
        b"a: [",
        b"\xff",
        b"a: &x 1\nb: *x",
        b"a: !!python/object:os.system x",
        b"a: 1\n---\nb: 2",
        b"a: 1\na: 2",
        b"[" * 40 + b"]" * 40,
    ],
)
def test_what_is_no_yaml(data):
    """No aliases (a bomb is made of them), no tags, no second document, no key twice."""
    with pytest.raises(Refused) as refused:
        from_yaml(data)
    assert code_of(refused) == 400


async def pieces(*data):
    """Yield chunks of a body."""
    for each in data:
        yield each


async def test_a_body_is_read_up_to_its_limit():
    """Whether it says its length or not."""
    limits = Limits(body_bytes=5)
    assert await read_body(pieces(b"123", b"45"), None, limits) == b"12345"
    for chunks, length in [(pieces(b"123", b"456"), None), (pieces(), 6)]:
        with pytest.raises(Refused) as refused:
            await read_body(chunks, length, limits)
        assert code_of(refused) == 413
        assert refused.value.status["reason"] == "RequestEntityTooLarge"


@pytest.mark.parametrize(
    ("data", "kind", "body"),
    [
        (b"", "application/json", None),
        (b'{"a": 1}', "", {"a": 1}),
        (b'{"a": 1}', "application/merge-patch+json; charset=utf-8", {"a": 1}),
        (b"[1]", "application/json-patch+json", [1]),
        (b"a: 1", "application/yaml", {"a": 1}),
        (b"a: 1", "application/apply-patch+yaml", {"a": 1}),
        (b' {"a": 1}', "application/apply-patch+yaml", {"a": 1}),
        (b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x00", "application/vnd.kubernetes.protobuf", ...),
    ],
)
async def test_bodies_are_read_by_their_type(data, kind, body):
    """JSON where it says so, YAML where it may be, protobuf by its first bytes."""
    read, _ = await parse_body(data, kind, Limits())
    assert read == ({"apiVersion": "v1", "kind": "Namespace"} if body is ... else body)


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (b"x", "text/plain", 415),
        (b"x", "application/cbor", 415),
        (b"k8s\0garbage", "application/vnd.kubernetes.protobuf", 415),
        (b"x", "application/vnd.kubernetes.protobuf", 415),
        (b"a: 1\n" * 100, "application/yaml", 413),
    ],
)
async def test_bodies_that_nobody_reads(data, kind, code):
    """The type is unknown, or there is more YAML than it is worth."""
    with pytest.raises(Refused) as refused:
        await parse_body(data, kind, Limits(yaml_bytes=100))
    assert code_of(refused) == code
