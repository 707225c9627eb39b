"""Whose a token is, as the API server says it."""

from random import Random

import pytest
from hypothesis import given, strategies as st
from kube_shell import SETTINGS

from iriscw.cloud.kube.calls import MalformedAnswer
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable, Pause
from iriscw.cloud.kube.reviews import NODE, REVIEWS, Reviewed, read_review, review_token
from iriscw.cloud.model import Forbidden, Unavailable

GOOD = {
    "kind": "TokenReview",
    "apiVersion": "authentication.k8s.io/v1",
    "metadata": {},
    "spec": {"token": "t", "audiences": ["us"]},
    "status": {
        "authenticated": True,
        "user": {
            "username": "system:serviceaccount:iris:iris-agent",
            "uid": "u",
            "groups": ["system:serviceaccounts"],
            "extra": {NODE: ["n1"], "authentication.kubernetes.io/pod-name": ["p1"]},
        },
        "audiences": ["us"],
    },
}
"""As Kubernetes 1.36 answers."""


def having(**status):
    """Return the answer with another status."""
    return {**GOOD, "status": {**GOOD["status"], **status}}


def test_a_good_token():
    """Whose it is, for whom, and on which node its pod is."""
    assert read_review(GOOD) == Reviewed(True, "system:serviceaccount:iris:iris-agent", ("us",), "n1")


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False},
        {"authenticated": "true"},
        {"authenticated": 1},
        {"user": {"username": "system:admin"}, "audiences": ["us"]},
    ],
)
def test_a_token_that_is_not_said_to_be_good_is_nobodys(status):
    """Only ``true`` is: whatever else the answer says of a user is not believed."""
    assert read_review({**GOOD, "status": {"error": "x" * 999, **status}}) == Reviewed(False, error="x" * 256)


@pytest.mark.parametrize("extra", [None, {}, {NODE: []}, {NODE: ["n1", "n2"]}, {NODE: "n1"}, {NODE: [1]}, [NODE]])
def test_the_node_is_named_once_or_not_at_all(extra):
    """Several nodes are none."""
    user = {"username": "somebody", "extra": extra}
    assert read_review(having(user=user)) == Reviewed(True, "somebody", ("us",), "")


@pytest.mark.parametrize(
    "body",
    [
        None,
        "an error page",
        {**GOOD, "kind": "Status"},
        {**GOOD, "status": None},
        having(user=None),
        having(user={"username": ""}),
        having(user={"username": 7}),
    ],
)
def test_what_is_no_answer(body):
    """A proxy's page, a Status, a good token of nobody."""
    with pytest.raises(MalformedAnswer):
        read_review(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["username", "extra", NODE, "authenticated", "audiences", "user", "error"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_status_is_read_or_refused_by_name(status):
    """And nothing but the word of the server makes a token good."""
    try:
        said = read_review({"kind": "TokenReview", "status": status})
    except MalformedAnswer:
        return
    assert said.authenticated == (status.get("authenticated") is True)
    assert said.authenticated or said == Reviewed(False, error=said.error)
    assert all(isinstance(each, str) for each in (*said.audiences, said.user, said.node, said.error))


def asked(*answers):
    """Ask about a token, with these answers; give the requests, and what came of it."""
    call, requests, left = review_token(SETTINGS, "the-token", "us", Random(1)), [], list(answers)
    step = next(call)
    try:
        while True:
            if isinstance(step, Pause):
                step = call.send(None)
                continue
            requests.append(step)
            answer = left.pop(0)
            step = call.throw(answer) if isinstance(answer, Exception) else call.send(answer)
    except StopIteration as done:
        return requests, done.value


def test_what_is_asked():
    """The token and the audience, in a body that is not shown."""
    (request,), said = asked(ApiResponse(201, GOOD))
    assert said.node == "n1"
    assert (request.method, request.path) == ("POST", REVIEWS)
    assert request.body["spec"] == {"token": "the-token", "audiences": ["us"]}
    assert "the-token" not in repr(request)


def test_silence_and_trouble_are_asked_again():
    """It changes nothing on the server; in the end it is told by name."""
    requests, said = asked(ApiUnreachable("gone"), ApiResponse(503, None), ApiResponse(201, GOOD))
    assert [each == requests[0] for each in requests] == [True] * 3
    assert isinstance(requests[0], ApiRequest)
    assert said.authenticated
    with pytest.raises(Unavailable):
        asked(*[ApiUnreachable("gone")] * SETTINGS.attempts)
    with pytest.raises(Forbidden):
        asked(ApiResponse(403, {"kind": "Status", "message": "tokenreviews is forbidden"}))
