"""Answers: headers that nobody can split, and warnings that fit."""

import json

from hypothesis import given, strategies as st

from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.messages import Response
from iriscw_sims.serve.answers import WARNINGS_BYTES, encoded, headers_of
from profiles import examples

TEXTS = st.text(max_size=3000)


def warned(*texts):
    """Return the warnings that are sent."""
    return headers_of(Response(200, {}, tuple(("Warning", text) for text in texts)))


def test_frozen_objects_are_written():
    """As plain ones are, in one line."""
    assert encoded(freeze({"a": [1, {"b": None}]})) == b'{"a":[1,{"b":null}]}'
    assert b"\n" not in encoded({"a": "line\nline"})
    assert json.loads(encoded({"a": "\ud800"})) == {"a": "\ud800"}


@examples(8)  # of up to twenty long texts
@given(st.lists(TEXTS, max_size=20))
def test_no_warning_splits_a_header(texts):
    """None with a control character is sent, and all together stay within the limit."""
    sent = warned(*texts)
    assert all(value.isprintable() for _, value in sent)
    assert sum(len(value) for _, value in sent) <= WARNINGS_BYTES


def test_warnings_are_sent_whole_if_they_fit():
    """Only when they are too many each one is cut."""
    few = ['299 - "' + "a" * 1000 + '"'] * 3
    assert [value for _, value in warned(*few)] == few
    many = warned(*few, *few)
    assert len(many) == 6
    assert all(len(value) == 256 and value.endswith('"') for _, value in many)


def test_other_headers_stay():
    """Retry-After is a header as any other."""
    assert headers_of(Response(429, {}, (("Retry-After", "1"), ("X", "a\r\nb")))) == [("Retry-After", "1")]
