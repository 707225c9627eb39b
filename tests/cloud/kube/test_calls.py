"""One request is made until it is answered for good: bounded, and as patient as it is asked to be."""

from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_json import ANY, OBJECTS
from kube_shell import LOST, OK, POOLS, SECOND, SETTINGS, SILENT, Server, refusal

from iriscw.cloud.kube.calls import ListPages, MalformedAnswer, TooManyObjects, ask, collect, key_of
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.cloud.kube.paths import Source, selector
from iriscw.cloud.model import Forbidden, Throttled, Unavailable

REQUEST = ApiRequest("GET", POOLS)
TROUBLE = refusal(500, "InternalError")


def test_what_is_answered_is_given_back(server):
    """A refusal that another attempt would not change, too."""
    assert server.run(ask(SETTINGS, REQUEST, Random(1))).code == 200
    assert server.run(ask(SETTINGS, ApiRequest("GET", f"{POOLS}/x"), Random(1))).code == 404
    assert server.pauses == []


@pytest.mark.parametrize("fate", [LOST, SILENT, TROUBLE, refusal(503), refusal(504), refusal(408), refusal(429)])
def test_later_is_asked_again_with_growing_pauses(server, fate):
    """Silence, 5xx and 429; the pauses keep to their bounds."""
    assert server.run(ask(SETTINGS, REQUEST, Random(1)), [fate] * 3).code == 200
    assert len(server.pauses) == 3
    least = SETTINGS.pause_least
    for number, pause in enumerate(server.pauses):
        assert least * 2**number / 2 <= pause <= min(least * 2**number, SETTINGS.pause_most)


@pytest.mark.parametrize(
    ("fate", "error"),
    [(LOST, Unavailable), (TROUBLE, Unavailable), (refusal(503), Unavailable), (refusal(429), Throttled)],
)
def test_it_gives_up_after_its_attempts(server, fate, error):
    """And says what the last answer was."""
    with pytest.raises(error):
        server.run(ask(SETTINGS, REQUEST, Random(1)), [fate] * 100)
    assert len(server.requests) == SETTINGS.attempts
    assert len(server.pauses) == SETTINGS.attempts - 1


def test_what_the_server_asks_for_is_waited_for(server):
    """At least; more than a caller should wait for is told at once."""
    server.run(
        ask(SETTINGS, REQUEST, Random(1)), [refusal(429, retry_after=7 * SECOND), refusal(503, retryAfterSeconds=9)]
    )
    assert server.pauses == [7 * SECOND, 9 * SECOND]
    with pytest.raises(Throttled) as caught:
        server.run(ask(SETTINGS, REQUEST, Random(1)), [refusal(429, retry_after=60 * SECOND)])
    assert caught.value.retry_after == 60 * SECOND
    with pytest.raises(Unavailable):
        server.run(ask(SETTINGS, REQUEST, Random(1)), [refusal(503, retry_after=60 * SECOND)])


@given(st.lists(st.sampled_from([OK, LOST, SILENT]) | st.integers(100, 599), max_size=8), st.integers())
def test_a_list_ends_in_its_contract_whatever_is_answered(fates, seed):
    """All objects, or an error that the port names; never more requests than the limits say."""
    server = Server()
    answers = [refusal(fate) if isinstance(fate, int) else fate for fate in fates]
    try:
        assert server.run(collect(SETTINGS, Source(POOLS, selector({})), Random(seed)), answers) == ()
    except (Forbidden, Throttled, Unavailable):
        pass
    assert len(server.requests) <= len(fates) + 1


@given(st.lists(OBJECTS, max_size=4), ANY, ANY)
def test_any_body_is_a_page_or_refused_by_name(items, metadata, other):
    """What has no identity is left out and counted; a list without a version is none."""
    for body in (other, {"metadata": metadata, "items": items}, {"metadata": {"resourceVersion": "1"}, "items": items}):
        pages = ListPages(100)
        try:
            pages.add(body)
        except (MalformedAnswer, TooManyObjects):
            continue
        assert pages.version
        assert len(pages.objects) + pages.malformed <= len(body["items"] if isinstance(body["items"], list) else ())


@given(OBJECTS)
def test_an_identity_is_whole_or_none(obj):
    """Namespace and name, of what has a uid and a version, too."""
    key = key_of(obj)
    if key is not None:
        namespace, name = key
        assert obj["metadata"]["name"] == name
        assert obj["metadata"].get("namespace", "") == namespace
        assert obj["metadata"]["uid"]


@pytest.mark.parametrize("items", [{}, {"items": "none"}, {"items": {}}, {"objects": []}])
def test_a_list_without_items_is_not_an_empty_one(server, items):
    """Who says nothing of what there is says nothing of absence (INV-C11); Go writes a list of nothing as null, too."""
    source, metadata = Source(POOLS, selector({})), {"metadata": {"resourceVersion": "1"}}
    with pytest.raises(MalformedAnswer):
        server.run(collect(SETTINGS, source, Random(1)), [ApiResponse(200, metadata | items)])
    for nothing in (None, []):
        answer = ApiResponse(200, metadata | {"items": nothing})
        assert server.run(collect(SETTINGS, source, Random(1)), [answer]) == ()


def test_a_list_that_answers_with_something_else_is_told(server):
    """A proxy that says 200 and HTML."""
    source = Source(POOLS, selector({}))
    with pytest.raises(MalformedAnswer):
        server.run(collect(SETTINGS, source, Random(1)), [ApiResponse(200, "<html>")])
    things = [{"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in "abc"]
    answer = ApiResponse(200, {"metadata": {"resourceVersion": "1"}, "items": things})
    with pytest.raises(TooManyObjects):
        server.run(collect(attrs.evolve(SETTINGS, object_limit=2), source, Random(1)), [answer])
