"""Who may do what: roles and bindings, evaluated as the API server's RBAC authorizer does.

A :class:`Rules` says which groups a user is in; the roles are objects in the store. ``system:masters`` may do
everything, and ``admin``, as whom requests come that say nothing else, is one of them. Without rules
(:data:`ALLOW_ALL`) everybody may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.core_kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import Route
from iriscw_sims.kube.refusals import Refused, forbidden
from iriscw_sims.kube.selectors import parse

ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
_NUMBER = re.compile(r"(?:[-+]?[0-9]+)?", re.ASCII)
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
        """Return all groups of a user."""
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


def verb_of(request: Request, route: Route) -> str:
    """Return the verb that a request is authorized as."""
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
    """Return the one name that a field selector leaves: such a list or watch is authorized as of that object.

    A request whose options cannot be read is authorized as if it had none, as is one for a name that no path can hold.
    """
    try:
        parse(request.parameter("labelSelector"), request.parameter("fieldSelector"))
    except Refused:
        return ""
    if any(not _NUMBER.fullmatch(request.parameter(name)) for name in ("limit", "timeoutSeconds")):
        return ""
    for term in request.parameter("fieldSelector").split(","):
        field, _, value = term.replace("==", "=").partition("=")
        if field == "metadata.name":
            return "" if value in (".", "..") or "/" in value or "%" in value else value
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
        """Return all objects of a kind by key."""
        return self.of[kind.plural].objects

    def get(self, kind: Kind, key: str) -> Json | None:
        """Return one object."""
        return self.objects(kind).get(key)


def allowed(roles: Collections, attempt: Attempt, missing: list[str] | None = None) -> bool:
    """Tell whether a role that is bound to the user, or to a group of theirs, allows an attempt.

    ``missing`` gets what is wrong with bindings whose role is not there.
    """
    return is_almighty(attempt) or covering(roles, attempt, missing) is not None


def is_almighty(attempt: Attempt) -> bool:
    """Tell whether somebody may do everything."""
    return MASTERS in attempt.groups


def covering(roles: Collections, attempt: Attempt, missing: list[str] | None = None) -> tuple[Json, Json] | None:
    """Return the first binding whose role allows an attempt, and the subject of it through which it does."""
    missing = [] if missing is None else missing
    for binding, subject, role in _bound(roles, attempt, missing):
        if any(_covers(rule, attempt) for rule in role.get("rules") or ()):
            return binding, subject
    return None


def _bound(roles: Collections, attempt: Attempt, missing: list[str]) -> Iterator[tuple[Json, Json, Json]]:
    for binding in roles.objects(CLUSTER_ROLE_BINDING).values():
        subject = _subject(binding, attempt)
        if subject is not None:
            for role in _role(roles, CLUSTER_ROLE, "", binding["roleRef"]["name"], missing):
                yield binding, subject, role
    if not attempt.namespace:
        return
    prefix = f"{attempt.namespace}/"
    for key, binding in roles.objects(ROLE_BINDING).items():
        subject = _subject(binding, attempt) if key.startswith(prefix) else None
        if subject is not None:
            named = binding["roleRef"]
            kind = ROLE if named["kind"] == "Role" else CLUSTER_ROLE
            for role in _role(roles, kind, prefix if kind is ROLE else "", named["name"], missing):
                yield binding, subject, role


def _role(roles: Collections, kind: Kind, prefix: str, name: str, missing: list[str]) -> Iterator[Json]:
    role = roles.get(kind, prefix + name)
    if role is None:
        missing.append(f'{kind.singular}.{kind.group} "{name}" not found')
    else:
        yield role


def _subject(binding: Json, attempt: Attempt) -> Json | None:
    """Return the subject of a binding that is the user, or a group of theirs."""
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == attempt.user:
            return subject  # type: ignore[no-any-return]
        if kind == "Group" and name in attempt.groups:
            return subject  # type: ignore[no-any-return]
        if kind == "ServiceAccount" and attempt.user == f"system:serviceaccount:{subject.get('namespace')}:{name}":
            return subject  # type: ignore[no-any-return]
    return None


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
