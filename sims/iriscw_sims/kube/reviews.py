"""May I, may they: the two questions about rights that can be asked without trying.

Theory of operation. A review is posted like an object and stored nowhere: the answer is the question with a status.
Everybody who is known may ask about themselves; who asks about others needs the right to create such a review. What is
allowed is what :mod:`iriscw_sims.kube.rbac` allows, so a review and a request cannot disagree. A question about others
is about the groups that it names, not about those that the user is in: the server does not know them either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import Route
from iriscw_sims.kube.rbac import ANONYMOUS, Attempt, Collections, Rules, check, covering, is_almighty
from iriscw_sims.kube.refusals import Cause, bad_request, invalid, invalid_value

GROUP: Final = "authorization.k8s.io"
VERSION: Final = "v1"
OF_SELF, OF_OTHERS = "SelfSubjectAccessReview", "SubjectAccessReview"
KINDS: Final = {f"/apis/{GROUP}/{VERSION}/{kind.lower()}s": kind for kind in (OF_SELF, OF_OTHERS)}
"""What is asked at which path."""

REVIEWS, REVIEWS_OF_OTHERS = KINDS
"""The paths."""

ABOUT: Final = ("resourceAttributes", "nonResourceAttributes")
FIELDS: Final = (*ABOUT, "user", "groups", "uid")
"""What a question may say."""


def review(rules: Rules | None, roles: Collections, request: Request, now: int) -> Json:
    """Answer a review.

    Raises:
        Refused: 400, the body is none; 403, the caller may not ask about others; 422, it does not say about what.
    """
    kind = KINDS[request.path]
    if kind == OF_OTHERS and rules is not None:
        plural = request.path.rpartition("/")[2]
        check(rules, roles, request, Route(GROUP, VERSION, plural), "create")
    spec = _spec(request, kind)
    causes = [*_judge(request, spec, kind)]
    if causes:
        raise invalid(GROUP, "", "", causes)
    entry = {
        "manager": request.parameter("fieldManager") or "unknown",
        "operation": "Update",
        "apiVersion": f"{GROUP}/{VERSION}",
        "time": written(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {f"f:{name}": _fields(value) for name, value in spec.items()}},
    }
    return {
        "kind": kind,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {"managedFields": [entry]},
        "spec": thaw(spec),
        "status": _status(rules, roles, request, spec, kind),
    }


def _spec(request: Request, kind: str) -> Json:
    """Return what is asked, without what is empty or unknown."""
    spec = nested(request.body, "spec") or {}
    if not isinstance(spec, dict) or not all(_fits(name, value) for name, value in spec.items()):
        raise bad_request(f"json: cannot unmarshal into Go struct field {kind}.spec")
    asked = {name: spec[name] for name in FIELDS if spec.get(name) not in (None, "", [])}
    return {name: _without_empty(value) if name in ABOUT else value for name, value in asked.items()}


def _without_empty(attributes: Json) -> Json:
    return {name: value for name, value in attributes.items() if value}


def _fits(name: str, value: Any) -> bool:
    """Tell whether a field of a question is of its type."""
    if value is None or name not in FIELDS:
        return True
    if name == "groups":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if name in ABOUT:
        selectors = ("fieldSelector", "labelSelector")  # of another form; no role looks at them
        return isinstance(value, dict) and all(
            each is None or isinstance(each, str) for key, each in value.items() if key not in selectors
        )
    return isinstance(value, str)


def _judge(request: Request, spec: Json, kind: str) -> Iterator[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        said = "cannot be specified in combination with resourceAttributes"
        yield invalid_value("spec.nonResourceAttributes", path, said)
    if resource is None and path is None:
        said = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", path, said)
    if kind == OF_OTHERS and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")
    metadata = nested(request.body, "metadata") or {}
    if any(value for name, value in metadata.items() if name != "managedFields"):  # what is empty is not there, in Go
        yield invalid_value("metadata", metadata, "must be empty")


def _fields(value: Any) -> Json:
    return {".": {}, **{f"f:{name}": {} for name in value}} if isinstance(value, dict) else {}


def _status(rules: Rules | None, roles: Collections, request: Request, spec: Json, kind: str) -> Json:
    if rules is None:
        return {"allowed": True}
    attempt = _attempt(rules, request, spec, kind)
    if is_almighty(attempt):
        return {"allowed": True}
    found = None if "resourceAttributes" not in spec else covering(roles, attempt)
    return {"allowed": False} if found is None else {"allowed": True, "reason": _reason(found, attempt)}


def _attempt(rules: Rules, request: Request, spec: Json, kind: str) -> Attempt:
    if kind == OF_SELF:
        user, groups = request.user or ANONYMOUS, rules.of(request.user)
    else:
        user, groups = spec.get("user", ""), tuple(spec.get("groups") or ())
    asked = spec.get("resourceAttributes") or {}
    subresource = asked.get("subresource", "")
    resource = f"{asked.get('resource', '')}/{subresource}" if subresource else asked.get("resource", "")
    namespace, name = asked.get("namespace", ""), asked.get("name", "")
    return Attempt(user, groups, asked.get("verb", ""), asked.get("group", ""), resource, namespace, name)


def _reason(found: tuple[Json, Json], attempt: Attempt) -> str:
    """Say which binding allows an attempt, and through which of its subjects."""
    binding, subject = found
    namespace = binding["metadata"].get("namespace", "")
    where = f"{binding['metadata']['name']}/{namespace}" if namespace else binding["metadata"]["name"]
    named = binding["roleRef"]
    who = subject["name"]
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return f'RBAC: allowed by {kind} "{where}" of {named["kind"]} "{named["name"]}" to {subject["kind"]} "{who}"'
