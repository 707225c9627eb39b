"""Requests and responses."""

import pytest

from iriscw_sims.kube.messages import Request, Response


def test_a_request_is_by_default_from_admin_with_json():
    """And has no query and no body."""
    request = Request("GET", "/api/v1/pods")
    assert (request.query, request.body, request.content_type) == ((), None, "application/json")
    assert (request.user, request.accept) == ("admin", "application/json")
    assert Response(200, {}).headers == ()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ((), False),
        ((("watch", "1"),), True),
        ((("watch", ""),), True),
        ((("watch", "False"),), False),
        ((("watch", "0"),), False),
    ],
)
def test_flags(query, wanted):
    """All but false and 0 is true: the API server's own rule."""
    assert Request("GET", "/", query).flag("watch") is wanted


def test_the_first_value_of_a_parameter_counts():
    """Others are ignored."""
    request = Request("GET", "/", (("a", "1"), ("a", "2")))
    assert request.parameter("a") == "1"
    assert request.parameter("b") == ""
