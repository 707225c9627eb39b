"""Whose a token is that somebody shows: the API server's answer (a ``TokenReview``).

A pod proves who it is by a token of its service account that the kubelet has mounted for one audience. Only the API
server can say whether such a token is good: it has the keys, and it alone knows whether the pod that the token is bound
to is still there. It also says on which node that pod is: Kubernetes does so by default since 1.30.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from iriscw.cloud.kube.calls import MalformedAnswer, ask
from iriscw.cloud.kube.messages import ApiRequest, Call
from iriscw.cloud.kube.refusals import answered, judged
from iriscw.cloud.kube.settings import KubeSettings

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"

AGENT_AUDIENCE = "iriscw-controller"
"""For whom the tokens of node agents are: nobody else takes one that was sent to a controller, nor a controller one
that was meant for the API server."""

NODE = "authentication.kubernetes.io/node-name"
"""Among what is said of a user: the node of the pod that his token is bound to."""

MAX_ERROR_CHARS = 256
"""Of the server's reason: it goes to the log."""


@attrs.frozen
class Reviewed:
    """What the API server says of a token.

    Attributes:
        authenticated: Whether it is good now, for one of the audiences that were asked about.
        user: Whose it is.
        audiences: For which of those that were asked about it is.
        node: On which node the pod is that it is bound to; empty if it is bound to none, or the server does not say.
        error: Why it is not good.
    """

    authenticated: bool
    user: str = ""
    audiences: tuple[str, ...] = ()
    node: str = ""
    error: str = ""


def review_token(settings: KubeSettings, token: str, audience: str, rng: Random) -> Call[Reviewed]:
    """Ask whose a token is.

    Args:
        settings: The cluster.
        token: What was shown.
        audience: For whom it has to be.
        rng: For pauses.

    Raises:
        Forbidden: the credentials do not allow to ask.
        InvalidSpec: the server does not take the question.
        Gone: the server answers no such questions.
        Throttled: too many calls.
        Unavailable: no answer, or none that can be read.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    answer = yield from ask(settings, ApiRequest("POST", REVIEWS, body=body), rng)
    if answer.code not in (200, 201):
        raise judged(answered(answer))
    return read_review(answer.body)


def read_review(body: Any) -> Reviewed:
    """Read the answer.

    Raises:
        MalformedAnswer: it is none.
    """
    match body:
        case {"kind": "TokenReview", "status": {**status}}:
            pass
        case _:
            raise MalformedAnswer("the API answered a token review with something else")
    if status.get("authenticated") is not True:
        error = status.get("error")
        return Reviewed(authenticated=False, error=error[:MAX_ERROR_CHARS] if isinstance(error, str) else "")
    match status.get("user"):
        case {"username": str(name), **user} if name:
            return Reviewed(True, name, _texts(status.get("audiences")), _node(user.get("extra")))
        case _:
            raise MalformedAnswer("the API says that a token is good, and not whose it is")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _node(extra: Any) -> str:
    """Return the one node; none where none or several are named."""
    named = _texts(extra.get(NODE)) if isinstance(extra, dict) else ()
    return named[0] if len(named) == 1 else ""
