"""The simulated Kubernetes API server: requests in, answers out, synchronous and deterministic.

Theory of operation. :class:`Store` is etcd and the API server in one value: collections of frozen objects under one
global revision. :meth:`Store.handle` resolves a path to a kind, asks whether the user may, and calls one verb; the
verbs are functions of a :class:`~iriscw_sims.kube.call.Call` in modules of their own. A refusal is raised anywhere
below and becomes a Status here. Time and randomness are given; nothing else of the outside is read.

Faults are not here: a world puts them in front. What the API itself does to its clients is: 410 after
:meth:`Store.compact` or when a history is full, 409, 422, 403, and answers as old as a client allows.
"""

from __future__ import annotations

from random import Random

from iriscw_sims.kube import deletion, pod_verbs, reads, writes
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.core_kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CORE_KINDS,
    DEFINITION,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
)
from iriscw_sims.kube.crds import established, kinds_of
from iriscw_sims.kube.discovery import document, subresources_of
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.patching import patch
from iriscw_sims.kube.paths import Route, route
from iriscw_sims.kube.rbac import DEFAULT_RULES, Collections, Rules, check, verb_of
from iriscw_sims.kube.refusals import (
    Refused,
    method_not_allowed,
    method_not_supported,
    no_such_resource,
    quoted,
)
from iriscw_sims.kube.reviews import KINDS as REVIEWS, review
from iriscw_sims.kube.scale import scale
from iriscw_sims.kube.tables import wants_partial, wants_table
from iriscw_sims.kube.versions import body_of, shown, stored, view_of
from iriscw_sims.kube.watches import Watch

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that a cluster begins with."""


class Store:
    """One simulated API server with its storage.

    Args:
        rng: Where uids and generated names come from.
        version: What the server says it is.
        rules: Who is in which groups, for RBAC; ``ALLOW_ALL`` lets everybody do everything. ``admin`` may anyway.
        now: When the first namespaces were created, in ns since 1970.
    """

    def __init__(
        self, *, rng: Random, version: str = "v1.36.3", rules: Rules | None = DEFAULT_RULES, now: int = 0
    ) -> None:
        self.rng = rng
        self.version = version
        self.rules: Rules | None = None
        self.revision = 1
        self._compacted = 1
        self._now = now
        self._collections: dict[tuple[str, str], Collection] = {}
        self._served: dict[tuple[str, str, str], Kind] = {}
        self._definitions: dict[str, tuple[FrozenDict, list[Kind]]] = {}
        for kind in CORE_KINDS:
            self.serve(kind)
        for name in FIRST_NAMESPACES:
            body = {"metadata": {"name": name}}
            self.handle(Request("POST", "/api/v1/namespaces", body=body), now)
        self.rules = rules

    # What the verbs need (call.Ground).

    def serve(self, kind: Kind) -> None:
        """Serve a kind from now on, or differently from now on."""
        self._served[kind.group, kind.version, kind.plural] = kind
        main = kind.storage or kind
        storage = self._collections.setdefault((kind.group, kind.plural), Collection(main, self.revision))
        if storage.kind is not main and storage.kind.version != main.version:
            storage.objects = {key: stored(main, item) for key, item in storage.objects.items()}
        storage.kind = main
        self._drop_view(storage, kind.version)
        if kind is not main:
            storage.views.append(view_of(kind, storage, self.revision))

    def _drop_view(self, storage: Collection, version: str) -> None:
        for view in [view for view in storage.views if view.kind.version == version]:
            view.closed = True
            storage.views.remove(view)

    def withdraw(self, kind: Kind) -> None:
        """Serve a version no more. With the last one of its kind, the objects are gone, and their watches end."""
        del self._served[kind.group, kind.version, kind.plural]
        key = (kind.group, kind.plural)
        storage = self._collections[key]
        self._drop_view(storage, kind.version)
        if any((each.group, each.plural) == key for each in self.kinds):
            return
        for name in [*storage.keys]:
            self.erase(storage, name)
        storage.closed = True
        del self._collections[key]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Every served kind."""
        return tuple(self._served.values())

    @property
    def collections(self) -> tuple[Collection, ...]:
        """All objects, kind by kind: the truth, for checkers and for :func:`iriscw_sims.kube.garbage.collect`."""
        return tuple(self._collections.values())

    def collection(self, kind: Kind) -> Collection:
        """Return a kind's objects."""
        storage = self._collections[kind.group, kind.plural]
        if kind.storage is None:
            return storage
        return next(view for view in storage.views if view.kind is kind)

    def version_of(self, kind: Kind, api_version: str) -> Kind | None:
        """Return another version of a kind, ``None`` if it is not served."""
        return self._served.get((kind.group, api_version.removeprefix(f"{kind.group}/"), kind.plural))

    def named_collection(self, group: str, plural: str) -> Collection:
        """Return the objects of a resource by its name."""
        return self._collections[group, plural]

    def namespace(self, name: str) -> FrozenDict | None:
        """Return a namespace, ``None`` if there is none."""
        return self.collection(NAMESPACE).objects.get(name)

    def commit(self, collection: Collection, key: str, new: FrozenDict) -> FrozenDict:
        """Write an object at the next revision and give it as it was written."""
        self.revision += 1
        storage = collection.storage or collection
        if storage.views:
            storage.bodies[key] = body_of(storage.kind, new)
        if storage is not collection:
            new = stored(storage.kind, new)
        written = _at(new, self.revision)
        storage.put(key, written, self.revision, self._now)
        for view in storage.views:
            view.put(key, shown(view.kind, written), self.revision, self._now)
        return collection.objects[key]

    def erase(self, collection: Collection, key: str) -> FrozenDict:
        """Remove an object at the next revision and give it as it was stored last."""
        self.revision += 1
        storage = collection.storage or collection
        gone = _at(collection.objects[key], self.revision)
        for each in (storage, *storage.views):
            each.remove(key, _at(each.objects[key], self.revision), self.revision, self._now)
        return gone

    # The API.

    def handle(self, request: Request, now: int) -> Response:
        """Answer any request but a watch. ``now`` is in ns since 1970."""
        self._now = now
        warnings: list[str] = []
        try:
            response = self._answer(request, now, warnings)
        except Refused as refused:
            response = refused.response()
        if not warnings:
            return response
        headers = tuple(("Warning", f"299 - {quoted(text)}") for text in warnings)
        return Response(response.code, response.body, (*response.headers, *headers))

    def _answer(self, request: Request, now: int, warnings: list[str]) -> Response:
        if request.path in REVIEWS and request.method == "POST":
            return Response(201, review(self.rules, self._roles(), request, now))
        found = route(request.path)
        if found is None:
            return self._document(request)
        call = self._resolve(request, found, now)
        call.warnings = warnings
        code, body = _verb(call)
        if call.kind is DEFINITION and request.method != "GET" and not call.dry:
            body = self._follow(call, body)
        if request.method == "GET" and call.route.subresource != "scale":
            if wants_table(request.accept):
                body = reads.as_table(call, body)
            elif wants_partial(request.accept):
                body = reads.as_partial(call, body)
        return Response(code, body)

    def watch(self, request: Request, now: int) -> Watch | Response:
        """Open a watch, or say why not."""
        try:
            found = route(request.path)
            if found is None:
                raise no_such_resource()
            return reads.watch(self._resolve(request, found, now, "watch"))
        except Refused as refused:
            return refused.response()

    def compact(self, before: int) -> None:
        """Forget all that was before a revision, as etcd is told to every five minutes."""
        self._compacted = min(max(self._compacted, before), self.revision)
        for collection in self._collections.values():
            for each in (collection, *collection.views):
                each.compact(self._compacted)

    def _document(self, request: Request) -> Response:
        found = document(request.path, self.kinds, self.version) if request.method == "GET" else None
        if found is None:
            raise no_such_resource()
        return Response(200, found)

    def _resolve(self, request: Request, found: Route, now: int, verb: str = "") -> Call:
        if self.rules is not None and not self.rules.is_master(request.user):
            check(self.rules, self._roles(), request, found, verb or verb_of(request, found))
        kind = self._served.get((found.group, found.version, found.plural))
        if kind is None or not _is_there(kind, found):
            raise no_such_resource()
        return Call(self, request, found, kind, self.collection(kind), now)

    def _roles(self) -> Collections:
        kinds = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
        return Collections({kind.plural: self.collection(kind) for kind in kinds})

    def _follow(self, call: Call, body: Json) -> Json:
        """Serve what definitions now say, and no more than that."""
        wanted: dict[tuple[str, str, str], Kind] = {}
        for key in [*call.objects.keys]:
            definition = call.objects.objects[key]
            if not definition["status"].get("conditions"):
                self.commit(call.objects, key, established(definition, call.now))
            wanted |= {(kind.group, kind.version, kind.plural): kind for kind in self._defined(definition)}
        for kind in wanted.values():
            if self._served.get((kind.group, kind.version, kind.plural)) is not kind:
                self.serve(kind)
        for each in [kind for kind in self.kinds if not kind.typed]:
            if (each.group, each.version, each.plural) not in wanted:
                self.withdraw(each)
        return body

    def _defined(self, definition: FrozenDict) -> list[Kind]:
        """Return the kinds of a definition; the same ones as long as its specification is the same."""
        uid, spec = definition["metadata"]["uid"], definition["spec"]
        known = self._definitions.get(uid)
        if known is None or known[0] is not spec:
            known = self._definitions[uid] = (spec, kinds_of(definition))
        return known[1]


def _is_there(kind: Kind, found: Route) -> bool:
    """Tell whether a path fits a kind: its scope, and its subresources."""
    if kind.namespaced:
        if found.name and not found.namespace:
            return False
    elif found.namespace and kind is not NAMESPACE:
        return False
    if not found.subresource:
        return True
    return found.subresource in subresources_of(kind)


def _at(item: FrozenDict, revision: int) -> FrozenDict:
    metadata = FrozenDict({**item["metadata"], "resourceVersion": str(revision)})
    return FrozenDict({**item, "metadata": metadata})


def _verb(call: Call) -> tuple[int, Json]:
    method, name = call.request.method, call.route.name
    if call.route.subresource == "scale":
        return scale(call)
    if call.route.subresource in pod_verbs.VERBS:
        if method != "POST":
            raise method_not_allowed()
        return pod_verbs.VERBS[call.route.subresource](call)
    if method == "GET":
        return reads.get(call) if name else reads.list_all(call)
    if method == "POST" and not name:
        if call.kind.namespaced and not call.route.namespace:
            raise method_not_allowed()
        return writes.create(call)
    if method == "PUT" and name:
        return writes.replace(call)
    if method == "PATCH" and name:
        return patch(call)
    if method == "DELETE" and not call.route.subresource:
        if (call.kind.namespaced and not call.route.namespace) or (call.kind.one_by_one and not name):
            raise method_not_allowed()
        return deletion.delete(call) if name else deletion.delete_collection(call)
    if method in ("POST", "PUT", "PATCH"):
        raise method_not_allowed()
    raise method_not_supported(call.kind.group, call.kind.plural, method.lower())
