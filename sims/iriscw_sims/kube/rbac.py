"""Who may do what: roles and bindings, evaluated as the API server's RBAC authorizer does.

A :class:`Rules` says which groups a user is in; the roles are objects in the store. ``system:masters`` may do
everything, and ``admin``, as whom requests come that say nothing else, is one of them. Without rules
(:data:`ALLOW_ALL`) everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw_sims.kube.clock import written
from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.core_kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from iriscw_sims.kube.frozen import FrozenDict, thaw
from iriscw_sims.kube.kinds import Json, Kind, nested
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import Route
from iriscw_sims.kube.refusals import Refused, bad_request, forbidden

ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@attrs.frozen
class Rules:
    """Who is in which groups. Who is not named here is known, and in no group but ``system:authenticated``."""

    groups: Mapping[str, tuple[str, ...]] = attrs.Factory(lambda: {"admin": (MASTERS,)})
    trusted: str = "system:serviceaccount:kube-system:"
    """Users whose names begin so are the cluster's own controllers, and may do everything."""

    def is_master(self, user: str) -> bool:
        """Tell whether a user may do everything."""
        return MASTERS in self.of(user)

    def of(self, user: str) -> tuple[str, ...]:
        """Give all groups of a user."""
        if not user:
            return ("system:unauthenticated",)
        if self.trusted and user.startswith(self.trusted):
            return (MASTERS, "system:authenticated")
        return (*self.groups.get(user, ()), "system:authenticated")


ALLOW_ALL: Rules | None = None
DEFAULT_RULES = Rules()


@attrs.frozen
class Attempt:
    """What somebody is about to do."""

    user: str
    groups: tuple[str, ...]
    verb: str
    group: str
    resource: str
    namespace: str
    name: str


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def review(rules: Rules | None, roles: Collections, request: Request, now: int) -> Json:
    """Answer a SelfSubjectAccessReview: may I?

    Raises:
        Refused: 400, the body is none.
    """
    spec = nested(request.body, "spec") or {}
    asked = nested(spec, "resourceAttributes") or {}
    if not isinstance(spec, dict) or not isinstance(asked, dict):
        raise bad_request("json: cannot unmarshal into Go struct field SelfSubjectAccessReview.spec")
    resource, subresource = asked.get("resource", ""), asked.get("subresource", "")
    resource = f"{resource}/{subresource}" if subresource else resource
    is_allowed = True
    if rules is not None:
        user, groups = request.user or ANONYMOUS, rules.of(request.user)
        where = asked.get("namespace", "")
        verb, group, name = asked.get("verb", ""), asked.get("group", ""), asked.get("name", "")
        is_allowed = allowed(roles, Attempt(user, groups, verb, group, resource, where, name))
    version, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
    fields: Json = {f"f:{name}": {} for name in asked}
    entry = {
        "manager": request.parameter("fieldManager") or "unknown",
        "operation": "Update",
        "apiVersion": version,
        "time": written(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:resourceAttributes": {".": {}, **fields}}},
    }
    metadata = {"managedFields": [entry]}
    status = {"allowed": is_allowed}
    return {"kind": kind, "apiVersion": version, "metadata": metadata, "spec": thaw(spec), "status": status}


def verb_of(request: Request, route: Route) -> str:
    """Give the verb that a request is authorized as."""
    if request.method == "GET":
        if request.flag("watch"):
            return "watch"
        return "get" if route.name else "list"
    verb = _VERBS.get(request.method, request.method.lower())
    return "deletecollection" if verb == "delete" and not route.name else verb


def check(rules: Rules, roles: Collections, request: Request, route: Route, verb: str) -> None:
    """Refuse what no role allows.

    Raises:
        Refused: 403, in the server's words.
    """
    user = request.user or ANONYMOUS
    resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    groups = rules.of(request.user)
    if verb in ("list", "watch", "deletecollection") and not route.name:
        route = attrs.evolve(route, name=_only_name(request))
    attempt = Attempt(user, groups, verb, route.group, resource, route.namespace, route.name)
    missing: list[str] = []
    if not allowed(roles, attempt, missing):
        raise _refusal(attempt, route, [*dict.fromkeys(missing)])


def _only_name(request: Request) -> str:
    """Give the one name that a field selector leaves: such a list or watch is authorized as of that object."""
    for term in request.parameter("fieldSelector").split(","):
        field, _, value = term.replace("==", "=").partition("=")
        if field == "metadata.name":
            return value
    return ""


def _refusal(attempt: Attempt, route: Route, missing: list[str]) -> Refused:
    where = f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
    said = (
        f'User "{attempt.user}" cannot {attempt.verb} resource "{attempt.resource}" in API group "{attempt.group}" '
        f"{where}"
    )
    if missing:
        said += ": RBAC: " + (missing[0] if len(missing) == 1 else "[" + ", ".join(missing) + "]")
    return forbidden(route.group, route.plural, route.name, said)


@attrs.frozen
class Collections:
    """The objects that say what is allowed."""

    of: Mapping[str, Collection]

    def objects(self, kind: Kind) -> Mapping[str, FrozenDict]:
        """Give all objects of a kind by key."""
        return self.of[kind.plural].objects

    def get(self, kind: Kind, key: str) -> Json | None:
        """Give one object."""
        return self.objects(kind).get(key)


def allowed(roles: Collections, attempt: Attempt, missing: list[str] | None = None) -> bool:
    """Tell whether a role that is bound to the user, or to a group of theirs, allows an attempt.

    ``missing`` gets what is wrong with bindings whose role is not there.
    """
    if MASTERS in attempt.groups:
        return True
    missing = [] if missing is None else missing
    return any(_covers(rule, attempt) for role in _bound(roles, attempt, missing) for rule in role.get("rules") or ())


def _bound(roles: Collections, attempt: Attempt, missing: list[str]) -> Iterator[Json]:
    for binding in roles.objects(CLUSTER_ROLE_BINDING).values():
        if _is_subject(binding, attempt):
            yield from _role(roles, CLUSTER_ROLE, "", binding["roleRef"]["name"], missing)
    if not attempt.namespace:
        return
    prefix = f"{attempt.namespace}/"
    for key, binding in roles.objects(ROLE_BINDING).items():
        if key.startswith(prefix) and _is_subject(binding, attempt):
            named = binding["roleRef"]
            kind = ROLE if named["kind"] == "Role" else CLUSTER_ROLE
            yield from _role(roles, kind, prefix if kind is ROLE else "", named["name"], missing)


def _role(roles: Collections, kind: Kind, prefix: str, name: str, missing: list[str]) -> Iterator[Json]:
    role = roles.get(kind, prefix + name)
    if role is None:
        missing.append(f'{kind.singular}.{kind.group} "{name}" not found')
    else:
        yield role


def _is_subject(binding: Json, attempt: Attempt) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == attempt.user:
            return True
        if kind == "Group" and name in attempt.groups:
            return True
        if kind == "ServiceAccount" and attempt.user == f"system:serviceaccount:{subject.get('namespace')}:{name}":
            return True
    return False


def _covers(rule: Json, attempt: Attempt) -> bool:
    return (
        _matches(rule.get("verbs"), attempt.verb)
        and _matches(rule.get("apiGroups"), attempt.group)
        and _covers_resource(rule.get("resources") or (), attempt.resource)
        and (not rule.get("resourceNames") or attempt.name in rule["resourceNames"])
    )


def _matches(allowed_words: Any, word: str) -> bool:
    return "*" in (allowed_words or ()) or word in (allowed_words or ())


def _covers_resource(resources: Any, resource: str) -> bool:
    if "*" in resources or resource in resources:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in resources
