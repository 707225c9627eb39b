"""Random programs: what Hypothesis draws, shrinks and prints.

A program is about few objects (swarm): it draws one to three *subjects*, each a collection with two names, and then
steps about them, so that requests meet each other's effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st
from kube_program import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Ask, Drain, OpenWatch, Program, Step, collection_of
from kube_requests import (
    DEPLOYMENTS,
    METADATA_LIST,
    METADATA_ONLY,
    NAMESPACES,
    PODS,
    ROLES,
    WIDGETS,
    binding,
    changed,
    role,
    rule,
)
from kube_subjects import METADATA, SUBJECTS, Strategy, Subject, namespace, one_of, rarely, some_of

LONGEST = 24
"""Steps of a program, beside those that it begins with and the closing drains."""

LABEL_SELECTORS = ("app=x", "app", "!app", "app!=x", "app in (x,y)", "app notin (x),tier", "tier=y,app=x", "app in x")


# Steps

USERS = st.integers(0, 39).map(lambda drawn: {38: "dev", 39: ""}.get(drawn, "admin"))
WRITE_OPTIONS = st.tuples(
    rarely(one_of("one", "two", "kubectl-patch"), 3).map(lambda value: ("fieldManager", value)),
    rarely(one_of("All", "Some"), 10).map(lambda value: ("dryRun", value)),
    rarely(one_of("Strict", "Ignore", "Warn", "Maybe"), 6).map(lambda value: ("fieldValidation", value)),
).map(lambda pairs: tuple(pair for pair in pairs if pair[1] is not None))


def _merged(*parts: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            known = result.get(key)
            result[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


DELETE_QUERIES = (
    (("propagationPolicy", "Foreground"),),
    (("propagationPolicy", "Sometimes"),),
    (("gracePeriodSeconds", "0"),),
    (("dryRun", "All"),),
    (("dryRun", "Some"),),
    (("orphanDependents", "true"),),
)


class Steps:
    """Strategies for the steps about one subject."""

    def __init__(self, subject: Subject) -> None:
        """Prepare what most of them need."""
        self.subject = subject
        self.names = one_of(subject.names[0], *subject.names)
        self.paths = self.names.map(lambda name: f"{subject.path}/{name}")
        self.lists = one_of(subject.path, collection_of(subject.path)) if subject.everywhere else one_of(subject.path)
        self.change = st.builds(_merged, subject.spec, METADATA.map(lambda drawn: {"metadata": drawn} if drawn else {}))

    def _version(self, path: str) -> Strategy[dict[str, Any]]:
        """Draw which version a write names: none, the last seen, an older one, or nonsense."""
        values = one_of(None, None, f"${{rv:{path}}}", f"${{rv1:{path}}}", "word")
        return values.map(lambda value: {"metadata": {"resourceVersion": value}} if value else {})

    def make(self) -> Strategy[Step]:
        """Make an object that the server accepts, if there is none yet."""

        def step(name: str, labels: dict[str, str], finalizers: list[str] | None) -> Step:
            body = self.subject.make(name)
            metadata = {"labels": labels, "finalizers": finalizers} if finalizers else {"labels": labels}
            return Ask("POST", self.subject.path, (), _merged(body, {"metadata": metadata}))

        labels = st.dictionaries(one_of("app", "tier"), one_of("x", "y"), max_size=2)
        return st.builds(step, self.names, labels, rarely(one_of(["iriscw.dev/one"]), 4))

    def create(self) -> Strategy[Step]:
        """Make an object, sometimes with a generated name."""

        def step(name: str, change: dict[str, Any], user: str, query: Any, generated: bool | None) -> Step:
            body = _without_none(_merged(self.subject.make(name), change))
            if generated:
                body["metadata"] = {**body["metadata"], "name": None, "generateName": f"{name}-"}
            return Ask("POST", self.subject.path, query, _without_none(body), user=user)

        generated = rarely(st.just(value=True), 12) if "$" not in self.subject.names[0] else st.none()
        return st.builds(step, self.names, self.change, USERS, WRITE_OPTIONS, generated)

    def get(self) -> Strategy[Step]:
        """Read an object."""
        versions = one_of("", "", "0", f"${{list:{self.subject.path}}}", "word")
        accept = one_of(JSON, JSON, METADATA_ONLY)
        return st.builds(
            lambda path, below, version, user, media: Ask(
                "GET", path + below, (("resourceVersion", version),) if version else (), user=user, accept=media
            ),
            self.paths,
            self._below(),
            versions,
            USERS,
            accept,
        )

    def _selection(self) -> Strategy[tuple[tuple[str, str], ...]]:
        fields = ("metadata.name=" + self.subject.names[0], "metadata.namespace=alpha", *self.subject.fields)
        ours = self.subject.ours
        selected = rarely(one_of(*fields), 4).map(lambda value: ",".join(filter(None, (value, ours))))
        return st.tuples(
            rarely(one_of(*LABEL_SELECTORS), 3).map(lambda value: ("labelSelector", value)),
            selected.map(lambda value: ("fieldSelector", value)),
        ).map(lambda pairs: tuple(pair for pair in pairs if pair[1]))

    def list_all(self) -> Strategy[Step]:
        """List, in pages or at a version."""

        def step(path: str, selection: Any, limit: Any, token: Any, at: Any, user: str, media: str) -> Step:
            query = list(selection)
            if limit:
                query.append(("limit", limit))
            if token:
                query.append(("continue", f"${{continue:{path}}}"))
            elif at:
                query += [(key, value.replace("PATH", path)) for key, value in at]
            return Ask("GET", path, tuple(query), user=user, accept=media)

        at = one_of(
            (("resourceVersion", "0"),),
            (("resourceVersion", "${list:PATH}"),),
            (("resourceVersion", "${list:PATH}"), ("resourceVersionMatch", "Exact")),
            (("resourceVersion", "${list:PATH}"), ("resourceVersionMatch", "NotOlderThan")),
            (("resourceVersionMatch", "Exact"),),
            (("resourceVersion", "0"), ("resourceVersionMatch", "Exact")),
        )
        return st.builds(
            step,
            self.lists,
            self._selection(),
            rarely(one_of("1", "2"), 2),
            rarely(st.just(value=True), 3),
            rarely(at, 3),
            USERS,
            one_of(JSON, JSON, JSON, METADATA_LIST),
        )

    def replace(self) -> Strategy[Step]:
        """Replace an object, or its status, with a fresh or an old version."""

        def steps(name: str) -> Strategy[Step]:
            path = f"{self.subject.path}/{name}"

            def step(change: dict[str, Any], version: str | None, query: Any, user: str, below: str) -> Step:
                known = {} if version is None else {"metadata": {"resourceVersion": version or None}}
                body = changed(path, _merged(change, known))
                return Ask("PUT", path + below, query, {**body, "$else": self.subject.make(name)}, user=user)

            return st.builds(
                step,
                st.builds(_merged, self.change, self._status()),
                one_of(None, None, None, "", f"${{rv1:{path}}}"),
                WRITE_OPTIONS,
                USERS,
                self._below(),
            )

        return self.names.flatmap(steps)

    def _status(self) -> Strategy[dict[str, Any]]:
        if self.subject.status is None:
            return st.just({})
        return rarely(self.subject.status, 3).map(lambda drawn: {"status": drawn} if drawn else {})

    def _below(self) -> Strategy[str]:
        return st.just("") if self.subject.status is None else one_of("", "/status")

    def patch(self) -> Strategy[Step]:
        """Change an object, or its status, by a merge patch or a strategic one."""
        kinds = one_of(MERGE, MERGE, STRATEGIC) if self.subject.strategic else one_of(MERGE)

        def steps(path: str) -> Strategy[Step]:
            return st.builds(
                lambda change, version, kind, query, user, below: Ask(
                    "PATCH", path + below, query, _merged(change, version), kind, user
                ),
                st.builds(_merged, self.change, self._status()),
                rarely(self._version(path), 3).map(lambda drawn: drawn or {}),
                kinds,
                WRITE_OPTIONS,
                USERS,
                self._below(),
            )

        return self.paths.flatmap(steps)

    def json_patch(self) -> Strategy[Step]:
        """Change an object by a list of operations."""
        where = one_of("/metadata/labels", "/metadata/labels/app", "/metadata/finalizers", "/metadata/annotations/note")
        values = one_of("x", {"app": "x"}, ["iriscw.dev/one"], None, 1)
        operation = st.one_of(
            st.builds(
                lambda op, path, value: {"op": op, "path": path, "value": value},
                one_of("add", "replace", "test"),
                where,
                values,
            ),
            where.map(lambda path: {"op": "remove", "path": path}),
        )
        return st.builds(
            lambda path, operations, user: Ask("PATCH", path, (), operations, JSON_PATCH, user),
            self.paths,
            st.lists(operation, min_size=1, max_size=2),
            USERS,
        )

    def apply(self) -> Strategy[Step]:
        """Apply a configuration for one of two managers."""

        def step(name: str, change: dict[str, Any], manager: str, force: Any, full: bool, below: str) -> Step:
            body = self.subject.make(name)
            if not full:
                body = {key: body[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": name}}
            body = _without_none(_merged(body, change))
            if not self.subject.strategic:
                # An empty part of a custom resource's metadata is stored, but no cache has it: whether the next apply
                # of it is a write depends on whether the cache is level, and on the second.
                body["metadata"] = {key: part for key, part in body["metadata"].items() if part}
            query = (("fieldManager", manager), *((("force", "true"),) if force else ()))
            return Ask("PATCH", f"{self.subject.path}/{name}{below}", query, body, APPLY)

        return st.builds(
            step,
            self.names,
            st.builds(_merged, self.change, self._status()),
            one_of("one", "two"),
            rarely(st.just(value=True), 3),
            st.booleans(),
            self._below(),
        )

    def delete(self) -> Strategy[Step]:
        """Delete an object, under conditions or with a grace period."""

        def steps(path: str) -> Strategy[Step]:
            precondition = one_of(
                {"uid": f"${{uid:{path}}}"},
                {"resourceVersion": f"${{rv:{path}}}"},
                {"resourceVersion": f"${{rv1:{path}}}"},
            )
            body = some_of(
                gracePeriodSeconds=one_of(0, 5, 60),
                preconditions=precondition,
                propagationPolicy=one_of("Background", "Foreground", "Orphan"),
                dryRun=one_of(["All"]),
            )
            query = rarely(one_of(*DELETE_QUERIES), 6).map(lambda drawn: drawn or ())
            return st.builds(
                lambda options, query, user: Ask("DELETE", path, query, options, user=user),
                rarely(body, 2),
                query,
                USERS,
            )

        return self.paths.flatmap(steps)

    def delete_all(self) -> Strategy[Step]:
        """Delete a collection."""
        return st.builds(
            lambda selector, user: Ask(
                "DELETE", self.subject.path, (("labelSelector", selector),) if selector else (), user=user
            ),
            one_of("app=x", "app!=x", ""),
            USERS,
        )

    def watch(self) -> Strategy[Step]:
        """Open a watch, from now or from a version that was seen."""
        first = f"{self.subject.path}/{self.subject.names[0]}"

        def step(name: str, path: str, selection: Any, version: str, bookmarks: Any, user: str) -> Step:
            query = [*selection]
            if version:
                query.append(("resourceVersion", version.replace("PATH", path)))
            query += bookmarks or ()
            return OpenWatch(name, path, tuple(query), user)

        initial = (
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
        )
        return st.builds(
            step,
            one_of("v", "w"),
            self.lists,
            self._selection(),
            one_of("${list:PATH}", "", "0", f"${{since:{first}}}", f"${{since1:{first}}}"),
            rarely(one_of(initial, (("allowWatchBookmarks", "true"),)), 4),
            USERS,
        )

    def scale(self) -> Strategy[Step]:
        """Read or change how many there should be."""
        replicas = one_of(0, 1, 2, -1, None)
        asks = {
            "GET": st.none(),
            "PATCH": replicas.map(lambda drawn: {"spec": {"replicas": drawn}}),
            "PUT": replicas.map(lambda drawn: {"spec": {"replicas": drawn} if drawn is not None else {}}),
        }

        def step(method: str, path: str, body: Any) -> Step:
            if method == "PUT":
                body = {"metadata": {"name": path.rpartition("/")[2], "namespace": "alpha"}, **body}
            return Ask(method, f"{path}/scale", (), body, MERGE if method == "PATCH" else JSON)

        return st.one_of(*(st.builds(step, st.just(method), self.paths, body) for method, body in asks.items()))

    def bind(self) -> Strategy[Step]:
        """Bind a pod to a node."""
        body = st.fixed_dictionaries(
            {"target": one_of({"name": "g1"}, {"name": "g2"}, {}, {"kind": "Node", "name": "g1"})},
            optional={"metadata": one_of({"name": "a"}, {"annotations": {"note": "1"}}, {"uid": "wrong"})},
        )
        return st.builds(lambda path, body: Ask("POST", f"{path}/binding", (), body), self.paths, body)

    def evict(self) -> Strategy[Step]:
        """Evict a pod."""
        body = some_of(
            deleteOptions=some_of(
                gracePeriodSeconds=one_of(0, 5), dryRun=one_of(["All"]), propagationPolicy=one_of("Foreground")
            ),
            metadata=one_of({"name": "a"}, {"name": "other"}),
        )
        version = {"apiVersion": "policy/v1", "kind": "Eviction"}
        return st.builds(lambda path, body: Ask("POST", f"{path}/eviction", (), {**version, **body}), self.paths, body)

    def any(self) -> Strategy[Step]:
        """Draw one of all kinds of step, some more often than others."""
        kinds = {
            self.make: 1,
            self.create: 1,
            self.get: 1,
            self.list_all: 2,
            self.replace: 2,
            self.patch: 3,
            self.json_patch: 1,
            self.apply: 2,
            self.delete: 2,
            self.delete_all: 1,
            self.watch: 2,
        }
        if self.subject.path in (WIDGETS, DEPLOYMENTS):
            kinds[self.scale] = 1
        if self.subject.path == PODS:
            kinds |= {self.bind: 1, self.evict: 1}
        drawn = [strategy for kind, weight in kinds.items() for strategy in [kind()] * weight]
        return st.sampled_from([*drawn, st.builds(Drain, one_of("v", "w"))]).flatmap(lambda strategy: strategy)


def _access() -> Strategy[Step]:
    """Draw steps that change what dev and eve may."""
    rules = st.lists(
        one_of(
            rule("get list watch", "pods configmaps"),
            rule("*", "*", "*"),
            rule("create patch update", "configmaps widgets", "*"),
            rule("get delete", "configmaps", names="a"),
            rule("patch", "pods/status"),
            rule("deletecollection", "configmaps"),
        ),
        max_size=2,
    )
    spaces = f"{ROLES}/namespaces/alpha"
    made = {
        f"{spaces}/roles": rules.map(lambda drawn: role("Role", "a", *drawn)),
        f"{spaces}/rolebindings": st.builds(
            lambda user, kind, name: binding("RoleBinding", "a", kind, name, user),
            one_of("dev", "eve"),
            one_of("Role", "ClusterRole"),
            one_of("a", "run-${run}"),
        ),
        f"{ROLES}/clusterroles": rules.map(lambda drawn: role("ClusterRole", "run-${run}", *drawn)),
        f"{ROLES}/clusterrolebindings": one_of("dev", "eve").map(
            lambda user: binding("ClusterRoleBinding", "run-${run}", "ClusterRole", "run-${run}", user)
        ),
    }
    creates = [
        st.builds(
            lambda body, user, path=path: Ask("POST", path, (), body, user=user), body, one_of("admin", "admin", "dev")
        )
        for path, body in made.items()
    ]
    deletes = one_of(*made).map(lambda path: Ask("DELETE", f"{path}/{'run-${run}' if 'cluster' in path else 'a'}"))
    return st.one_of(*creates, deletes)


def _as_somebody(step: Step, user: str) -> Step:
    return attrs.evolve(step, user=user) if isinstance(step, Ask | OpenWatch) else step


ABOUT = {name: Steps(subject) for name, subject in SUBJECTS.items()}
MAKES = {name: steps.make() for name, steps in ABOUT.items()}
ANY = {name: steps.any() for name, steps in ABOUT.items()}
AS_SOMEBODY = {name: st.builds(_as_somebody, steps, one_of("dev", "eve", "admin")) for name, steps in ANY.items()}
ACCESS = _access()
"""Strategies are made once: making them costs more than drawing from them."""


def _with_names(steps: list[Step]) -> list[Step]:
    """Let one object of a prefix have a generated name, the others that prefix: two would have no order to compare."""
    seen: set[tuple[str, str]] = set()

    def named(step: Step) -> Step:
        if not isinstance(step, Ask) or not isinstance(step.body, dict) or "metadata" not in step.body:
            return step
        metadata = step.body["metadata"]
        prefix = metadata.get("generateName")
        if not prefix or (step.path, prefix) not in seen:
            seen.add((step.path, prefix))
            return step
        return attrs.evolve(step, body={**step.body, "metadata": {**metadata, "name": prefix.rstrip("-")}})

    return [named(step) for step in steps]


@st.composite
def programs(draw: Callable[[Strategy[Any]], Any]) -> Program:
    """Draw a program."""
    names = draw(st.lists(one_of(*SUBJECTS), min_size=1, max_size=3, unique=True))
    guarded = draw(one_of(*([False] * 6), True))
    steps = st.one_of(*((AS_SOMEBODY if guarded else ANY)[name] for name in names))
    if guarded:
        steps = st.one_of(ACCESS, ACCESS, steps)
    needed = (namespace("run-${run}"),) if "configmaps of a new namespace" in names else ()
    first = tuple(Ask("POST", NAMESPACES, (), body) for body in needed)
    makes = draw(st.lists(st.one_of(*(MAKES[name] for name in names)), max_size=3))
    # Two lists: one alone would be short on average, or could not shrink to nothing.
    half = st.lists(steps, max_size=LONGEST // 2)
    return (*first, *makes, *_with_names([*draw(half), *draw(half)]))
