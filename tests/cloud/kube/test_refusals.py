"""Refusals mean what they mean, whatever shape they come in."""

import pytest
from hypothesis import given, strategies as st
from kube_json import OBJECTS
from kube_shell import SECOND, refusal

from iriscw.cloud.kube.refusals import (
    MAX_RETRY_AFTER,
    MAX_TEXT,
    answered,
    judged,
    names_absence,
    narrowed,
    status_of,
    status_of_event,
)
from iriscw.cloud.model import (
    CloudError,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
)


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (400, "", InvalidSpec),
        (401, "", Forbidden),
        (403, 'User "x" cannot get resource "pods"', Forbidden),
        (403, 'pods "a" is forbidden: exceeded quota: gpus, requested: 8, used: 64', QuotaExceeded),
        (403, 'pods "a" is forbidden: ', Forbidden),
        (403, 'admission webhook "q" denied the request: over quota for gd-8xh100ib-i128', QuotaExceeded),
        (403, 'admission webhook "q" denied the request: no', InvalidSpec),
        (403, 'pods "a" is forbidden: no PriorityClass with name iris-worker was found', InvalidSpec),
        (403, 'pods "a" is forbidden: violates PodSecurity "restricted:latest"', InvalidSpec),
        (403, 'pods "a" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi', InvalidSpec),
        (403, 'pods "a" is forbidden: failed quota: q: must specify limits.cpu for: worker', InvalidSpec),
        (
            403,
            'pods "a" is forbidden: error looking up service account iris/w: serviceaccount "w" not found',
            InvalidSpec,
        ),
        (403, 'pods "a" is forbidden: memory max limit to request ratio per Container is 1', InvalidSpec),
        (403, 'pods "a" is forbidden: pod rejected: RuntimeClass "kybernate" not found', InvalidSpec),
        (403, 'pods "a" is forbidden: unable to validate against any security context constraint: []', InvalidSpec),
        (403, 'pods "a" is forbidden: image policy webhook backend denied one or more images', InvalidSpec),
        (
            403,
            'pods "a" is forbidden: pod node label selector conflicts with its namespace node label selector',
            InvalidSpec,
        ),
        (403, 'pods "a" is forbidden: pod tolerations (possibly merged) conflict with its namespace', InvalidSpec),
        (
            403,
            'pods is forbidden: User "x" cannot list resource "pods" in API group "" at the cluster scope',
            Forbidden,
        ),
        (403, "pods is forbidden: User 'x' cannot list resource 'pods'", Forbidden),
        (403, 'users "a" is forbidden: User "x" cannot impersonate resource "users"', Forbidden),
        (403, 'forbidden: User "system:anonymous" cannot get path "/version"', Forbidden),
        (
            403,
            'roles "r" is forbidden: user "x" (groups=["a" "b"]) is attempting to grant RBAC permissions not held',
            Forbidden,
        ),
        (403, 'pods "user" is forbidden: exceeded quota: user "x" cannot have more', QuotaExceeded),
        (403, "<html>no</html>", Forbidden),
        (403, "unable to create new content in namespace iris because it is being terminated", Unavailable),
        (404, "", Gone),
        (409, "", Conflict),
        (410, "", Unavailable),
        (422, "", InvalidSpec),
        (429, "", Throttled),
        (500, "", Unavailable),
        (0, "", Unavailable),
        (302, "", Unavailable),
    ],
)
def test_a_refusal_is_one_error(code, text, error):
    """By code, and where the code says too little, by the words of the plugins."""
    assert type(judged(status_of(code, {"message": text}))) is error


def test_a_404_that_says_what_is_not_there():
    """An API server's Status, and Go's words for a path that is not served; nobody else's."""
    assert names_absence({"kind": "Status", "code": 404})
    assert names_absence("404 page not found\n")
    for body in (None, "", "<html>404</html>", {}, {"kind": "Pod"}, [], "not found"):
        assert not names_absence(body)


def test_a_terminating_namespace_is_known_by_its_cause():
    """The text may change."""
    body = {"message": "no", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    assert type(judged(status_of(403, body))) is Unavailable


@given(st.integers(0, 999), OBJECTS, st.none() | st.integers(-5, 2**70))
def test_any_body_is_read(code, body, retry_after):
    """Proxies answer in their own words: there is a sentence anyway, of bounded length."""
    status = status_of(code, body, retry_after)
    error = judged(status)
    assert isinstance(error, CloudError)
    assert 0 < len(str(error)) < MAX_TEXT + 100
    assert status.retry_after is None or 0 <= status.retry_after <= MAX_RETRY_AFTER
    assert isinstance(judged(status_of_event(body)), CloudError)


def test_what_to_wait_is_read_from_both_places():
    """The header goes before the body."""
    assert answered(refusal(429, retryAfterSeconds=3)).retry_after == 3 * SECOND
    assert answered(refusal(429, retry_after=SECOND, retryAfterSeconds=3)).retry_after == SECOND
    assert answered(refusal(429)).retry_after is None
    error = judged(answered(refusal(429, retry_after=2 * SECOND)))
    assert isinstance(error, Throttled)
    assert error.retry_after == 2 * SECOND


@pytest.mark.parametrize("body", [{"code": 410}, {"code": 410, "reason": "Gone"}, {"reason": "Expired"}])
def test_what_is_forgotten_is_known_by_code_or_reason(body):
    """The three disguises of 410."""
    assert status_of_event(body).expired
    assert not status_of_event({"code": 500}).expired


def test_other_errors_are_folded_with_their_text():
    """What a contract does not name is Unavailable; what it names stays."""
    assert type(narrowed(Conflict("x"), Forbidden)) is Unavailable
    assert str(narrowed(Conflict("x"), Forbidden)) == "x"
    assert type(narrowed(Forbidden("x"), Forbidden)) is Forbidden
