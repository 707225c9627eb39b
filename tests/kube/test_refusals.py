"""Refusals: the shape of a Status."""

import pytest

from iriscw._errors import OperationError
from iriscw_sims.kube import refusals


def test_a_refusal_is_a_status_with_code_and_reason():
    """And an error of the world."""
    refused = refusals.not_found("apps", "deployments", "d")
    assert isinstance(refused, OperationError)
    assert refused.response().body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "d" not found',
        "reason": "NotFound",
        "details": {"name": "d", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


def test_the_core_group_is_not_named():
    """Neither in the message nor in the details."""
    assert refusals.not_found("", "pods", "p").status["details"] == {"name": "p", "kind": "pods"}


def test_causes_are_listed_and_told_once_each():
    """One alone stands bare, many in brackets."""
    one = refusals.required_value("spec.a", "say it")
    assert (
        refusals.invalid("", "Pod", "p", [one]).status["message"]
        == 'Pod "p" is invalid: spec.a: Required value: say it'
    )
    both = refusals.invalid("", "Pod", "p", [one, one, refusals.duplicate_value("spec.b", "x")]).status
    assert both["message"] == 'Pod "p" is invalid: [spec.a: Required value: say it, spec.b: Duplicate value: "x"]'
    assert len(both["details"]["causes"]) == 3


def test_retry_after_is_a_header_too():
    """Where the Status says when to come again."""
    assert refusals.too_many_requests("later", 7).response().headers == (("Retry-After", "7"),)
    assert refusals.too_many_requests("later").response().headers == ()
    assert refusals.already_exists("", "pods", "p", generated=True).response().headers == (("Retry-After", "1"),)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('a"b\n', '"a\\"b\\n"'),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ({"b": [1], "a": "x"}, '{"a":"x","b":[1]}'),
    ],
)
def test_values_in_messages(value, shown):
    """As Go shows them."""
    assert refusals.quoted(value) == shown


def test_forbidden_without_a_resource():
    """The sentence still reads."""
    assert refusals.forbidden("", "", "", "no").status["message"] == "forbidden: no"
    assert refusals.forbidden("", "pods", "", "no").status["message"] == "pods is forbidden: no"
