"""The store answers as a real kube-apiserver does: random programs, compared; and how differences are told."""

import collections
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from kube_differential import compare, first_difference, judge, report
from kube_known import KNOWN, even_out
from kube_program import Answer, Drain, Events, Memory, OpenWatch
from kube_requests import get, post
from kube_sequences import programs

from profiles import examples

SLICE = 300
"""Programs in .ci/run. On two busy cores 8 to 15 a second."""

SOAK = 100
"""Programs where the profile says 100: other ones each time. A soak plays 5,000, in 10 minutes or so."""

log = logging.getLogger(__name__)


def _compare(real_world, store_world, bound):
    """Play random programs to both worlds. All must agree to the last field; the first that does not is shrunk."""
    met = collections.Counter()

    @settings(bound, suppress_health_check=list(HealthCheck))
    @given(programs())
    def check(program):
        difference, known = judge(program, real_world, store_world)
        met.update(["programs", *known])
        assert not difference, difference

    check()
    log.info("compared: %s", dict(met))
    assert met["programs"] >= bound.max_examples


@pytest.mark.slow
def test_random_programs_have_the_same_answers(real_world, store_world):
    """A slice: the same programs on each machine."""
    _compare(real_world, store_world, examples(SLICE, derandomize=True))


@pytest.mark.soak
def test_thousands_of_random_programs_have_the_same_answers(real_world, store_world):
    """Other ones each time, so that a soak a day sees more than any one run."""
    _compare(real_world, store_world, examples(SOAK))


class _Scripted:
    """A world that answers from a list."""

    def __init__(self, *answers):
        self._answers = list(answers)

    def begin(self):
        return Memory(1)

    def ask(self, step):
        return self._answers.pop(0)

    def open_watch(self, step):
        return self._answers.pop(0)

    def drain(self, name, expected):
        return self._answers.pop(0)


def test_equal_worlds_have_no_difference():
    """An empty report."""
    worlds = [_Scripted(Answer(200, {"a": 1}), Answer(404, {})) for _ in range(2)]
    assert judge((get("/a"), get("/b")), *worlds) == ("", [])


def test_a_difference_is_told_with_all_before_it():
    """Where it is, both values, and the program up to there."""
    real = _Scripted(Answer(200, {"a": 1}), Answer(201, {"spec": {"list": [1, 2]}}), Answer(200, None))
    store = _Scripted(Answer(200, {"a": 1}), Answer(201, {"spec": {"list": [1, 3]}}), Answer(500, None))
    text, _ = judge((get("/first"), post("/second", {"x": 1}), get("/third")), real, store)
    assert "step 1, in .body.spec.list[1]" in text
    assert "real:  2\n" in text
    assert "store: 3\n" in text
    assert "/first" in text
    assert '{"x": 1}' in text
    assert "/third" not in text


def test_missing_events_are_a_difference():
    """A watch that says less is one."""
    event = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}
    real = _Scripted(Answer(200, None), Events((event,)))
    store = _Scripted(Answer(200, None), Events(()))
    assert "step 1, in .events.length" in judge((OpenWatch("w", "/"),), real, store)[0]


def test_first_differences():
    """Of values, keys, kinds and lengths."""
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    assert first_difference({"a": 1}, {"b": 1}) == (".a", 1, "<nothing>")
    assert first_difference([1], [1, 2]) == (".length", 1, 2)
    assert first_difference([1, 2], [3]) == ("[0]", 1, 3)
    assert first_difference(1, True) == ("", 1, True)
    assert first_difference(None, {}) == ("", None, {})


def test_long_answers_are_cut():
    """A report fits on some screens."""
    difference, _ = compare([get("/a")], [{"body": "x" * 10_000}], [{"body": "y"}])
    assert "characters)" in report([get("/a")], difference, "x" * 10_000, "y")
    assert len(report([get("/a")], difference, "x" * 10_000, "y")) < 5_000


def test_known_differences_have_a_reason_and_even_out_one_thing():
    """Text instead of an object is forgiven, its code is not."""
    assert all(known.reason for known in KNOWN)
    text = {"code": 404, "body": {"text": "404 page not found"}}
    status = {"code": 404, "body": {"kind": "Status"}}
    real, store, used = even_out(get("/nowhere"), text, status)
    assert real == store
    assert used == ["plain text"]
    real, store, _ = even_out(get("/nowhere"), text, {**status, "code": 403})
    assert real != store
    assert even_out(get("/a"), status, status) == (status, status, [])


def test_of_a_bookmark_its_place_and_kind_are_compared():
    """Not its version, and not the empty fields around it; a bookmark that is not there is a difference."""

    def drained(*objects):
        return {"events": [{"type": "BOOKMARK", "object": each} for each in objects], "closed": False}

    metadata = {"annotations": {"k8s.io/initial-events-end": "true"}}
    real = drained({"kind": "Pod", "metadata": {**metadata, "resourceVersion": "revision#2"}, "spec": {}})
    store = drained({"kind": "Pod", "metadata": {**metadata, "resourceVersion": "revision#1"}})
    evened, other, used = even_out(Drain("w"), real, store)
    assert evened == other
    assert used == ["bookmarks"]
    for wrong in (drained(), drained({"kind": "Node", "metadata": metadata})):
        evened, other, _ = even_out(Drain("w"), real, wrong)
        assert evened != other
