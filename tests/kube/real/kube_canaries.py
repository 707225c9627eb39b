"""How to know that the real server's authorizer has seen all that was written: canaries.

The authorizer decides by caches of roles and bindings, one for each kind, that follow what is written by milliseconds.
It does not say how far they are. But each cache takes changes in their order: so an object of each kind, the canary, is
changed last, in a way that makes the authorizer's answer to one question another. Once it is, all before was seen.
"""

from __future__ import annotations

import functools
import http.client
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kube_program import MERGE, Answer, Ask

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SETTLE_TIMEOUT_S = 30.0
"""How long a cache may lag behind; on two busy cores it was milliseconds."""
POLL_S = 0.002
NAMESPACE = "canary"
_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role")


def wait_until(level: Callable[[], bool], what: str) -> None:
    """Ask ``level()`` until it says yes.

    Raises:
        TimeoutError: It did not within :data:`SETTLE_TIMEOUT_S`.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    pause = threading.Event()  # never set: another process' caches send no event to wait for
    while not level():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not level after {SETTLE_TIMEOUT_S} s: {what}")
        pause.wait(POLL_S)


def _place(kind: str) -> str:
    below = "" if kind.startswith("Cluster") else f"/namespaces/{NAMESPACE}"
    return f"{RBAC}{below}/{kind.lower()}s"


def _subject(user: str) -> dict[str, str]:
    return {"kind": "User", "name": user, "apiGroup": _GROUP}


def _rule(verb: str, *names: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}
    return {**rule, "resourceNames": [*names]} if names else rule


class Canaries:
    """Four objects: two roles whose rule changes, and two bindings whose subject changes.

    ``stale`` is set by whoever writes roles or bindings.
    """

    def __init__(self, ask: Callable[[Ask], Answer]) -> None:
        """Change nothing yet; ``ask`` sends a request as admin."""
        self.stale = True
        self._ask = ask
        self._numbers = itertools.count(1)

    def make(self) -> None:
        """Create them; their namespace is there.

        The changing role is bound to a constant user, and the constant role by the changing binding.
        """
        for kind in ("Role", "ClusterRole"):
            for name, rules in (("changing", []), ("constant", [_rule("list")])):
                body: dict[str, Any] = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": name}}
                self._create(_place(kind), {**body, "rules": rules})
                reference = {"apiGroup": _GROUP, "kind": kind, "name": name}
                bound = {"roleRef": reference, "subjects": [_subject(f"{kind}-reader")] if name == "changing" else []}
                self._create(_place(f"{kind}Binding"), {**body, "kind": f"{kind}Binding", **bound})

    def _create(self, path: str, body: dict[str, Any]) -> None:
        answer = self._ask(Ask("POST", path, body=body))
        assert answer.code == http.client.CREATED, answer

    def level(self) -> None:
        """Change each and ask until the authorizer knows.

        Raises:
            TimeoutError: It did not within :data:`SETTLE_TIMEOUT_S`.
        """
        mark = f"canary-{next(self._numbers)}"
        for kind in _KINDS:
            attributes = {"namespace": NAMESPACE, "resource": "configmaps"}
            if kind.endswith("Binding"):
                name, user, patch = "constant", mark, {"subjects": [_subject(mark)]}
                attributes["verb"] = "list"
            else:
                name, user, patch = "changing", f"{kind}-reader", {"rules": [_rule("get", mark)]}
                attributes |= {"verb": "get", "name": mark}
            answer = self._ask(Ask("PATCH", f"{_place(kind)}/{name}", body=patch, content_type=MERGE))
            assert answer.code == http.client.OK, answer
            wait_until(functools.partial(self._may, user, attributes), kind)
        self.stale = False

    def _may(self, user: str, attributes: Mapping[str, str]) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        answer = self._ask(Ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review))
        allowed: bool = answer.body["status"]["allowed"]
        return allowed
