"""The world that judges: programs of requests against a real API server.

It has caches that lag behind its writes. What may read them is held back until they are level, so that two runs of a
program give the same answers: a list that must be current lets the watch cache catch up, and canaries show that the
authorizer has (``kube_canaries``).
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import queue
import socket
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from kube_canaries import RBAC, Canaries, wait_until
from kube_program import JSON, Answer, Ask, Events, Memory, OpenWatch, collection_of
from kube_server import RealServer
from kube_worlds import CRD_PATH, NAMESPACE_PATH, NAMESPACES, is_stray_bookmark

REQUEST_TIMEOUT_S = 60.0
EVENT_TIMEOUT_S = 3.0
"""How long an expected event may take; on two busy cores it took milliseconds."""
CLOSE_TIMEOUT_S = 10.0
QUIET_S = 0.25
"""Without an expectation, a watch is drained when nothing came for so long."""
SURPLUS_S = 0.01
"""How long after the expected events one too many is waited for."""


class RealWatch:
    """A connection of its own and a thread that reads it, line by line."""

    def __init__(self, connection: http.client.HTTPSConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        # No SimpleQueue: of CPython 3.11 it waits for ever if a timeout of some ms passes while nobody lets it run.
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.closed = False
        self._closing = False
        self._thread = threading.Thread(target=self._read, name="kube-watch")
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._response:
                self._lines.put(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            if not self._closing:
                raise
        finally:
            self._lines.put(None)

    def take(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next event; None if none came in time or the stream is over."""
        if self.closed:
            return None
        try:
            event = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self.closed = event is None
        return event

    def close(self) -> None:
        """End the stream, under the reader's feet."""
        self._closing = True
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):  # the server may have hung up already
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(CLOSE_TIMEOUT_S)
        self._connection.close()


class RealWorld:
    """Programs against a :class:`RealServer`, one after the other, over one connection."""

    def __init__(self, server: RealServer, crds: Sequence[Mapping[str, Any]]) -> None:
        """Set up what all programs find: namespaces, custom resources, canaries."""
        self._server = server
        self._runs = itertools.count(1)
        self._watches: dict[str, RealWatch] = {}
        self._connection = self._connect()
        self._canaries = Canaries(self._ask)
        self._erased = [f"/registry/{_registry(crd)}/" for crd in crds]
        for name in (*NAMESPACES, "canary"):
            self._make(NAMESPACE_PATH, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for crd in crds:
            self._make(CRD_PATH, crd)
            plural, group = crd["spec"]["names"]["plural"], crd["spec"]["group"]
            path = f"/apis/{group}/{crd['spec']['versions'][0]['name']}/{plural}"
            wait_until(functools.partial(self._serves, path), path)
        self._canaries.make()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._server.port, context=self._server.context, timeout=REQUEST_TIMEOUT_S
        )

    def close(self) -> None:
        """Close all connections."""
        self._close_watches()
        self._connection.close()

    def _close_watches(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()

    # Requests

    def _send(self, connection: http.client.HTTPSConnection, step: Ask) -> http.client.HTTPResponse:
        query = urllib.parse.urlencode(step.query)
        headers = {"Accept": step.accept, **self._server.authorization(step.user)}
        body = None
        if step.body is not None:
            headers["Content-Type"] = step.content_type
            body = json.dumps(step.body).encode()
        path = urllib.parse.quote(step.path, safe="/:")
        connection.request(step.method, f"{path}?{query}" if query else path, body, headers)
        return connection.getresponse()

    def ask(self, step: Ask) -> Answer:
        """Answer a resolved request."""
        self._level_caches(step)
        if step.method != "GET" and step.path.startswith(RBAC):
            self._canaries.stale = True
        return self._ask(step)

    def _ask(self, step: Ask) -> Answer:
        response = self._send(self._connection, step)
        return _answer(response.status, response.headers.get_content_type(), response.read(), response)

    def open_watch(self, step: OpenWatch) -> Answer:
        """Open a watch under its name; code 200 and no body when it began."""
        request = Ask("GET", step.path, (("watch", "1"), *step.query), user=step.user)
        self._level_caches(request)
        connection = self._connect()
        response = self._send(connection, request)
        if response.status != http.client.OK:
            answer = _answer(response.status, response.headers.get_content_type(), response.read(), response)
            connection.close()
            return answer
        connection.sock.settimeout(None)  # a watch is quiet for as long as nothing happens, and that is no error
        previous = self._watches.pop(step.name, None)
        if previous is not None:
            previous.close()
        self._watches[step.name] = RealWatch(connection, response)
        return Answer(http.client.OK, None)

    def drain(self, name: str, expected: int | None) -> Events:
        """Return the watch's next events."""
        watch = self._watches[name]
        events: list[dict[str, Any]] = []
        while True:
            event = watch.take(_patience(len(events), expected))
            if event is None:
                return Events(tuple(events), watch.closed)
            if not is_stray_bookmark(event):
                events.append(event)

    def compact(self) -> None:
        """Forget all versions before the present; takes as long as a start of the server."""
        self._close_watches()
        self._server.compact()
        self._server.restart_apiserver()
        self._connection.close()
        self._connection = self._connect()

    def wait(self, time_s: int) -> None:
        """Let time pass."""
        threading.Event().wait(time_s)

    # Order where the server promises none

    def _level_caches(self, step: Ask) -> None:
        query = dict(step.query)
        version = query.get("resourceVersion", "")
        # A watch from a version waits for what follows; any other read that names one may come from a cache.
        cached = version in ("", "0") if "watch" in query else version != ""
        if step.method == "GET" and cached:
            self._ask(Ask("GET", collection_of(step.path)))
        if step.user != "admin" and self._canaries.stale:
            self._canaries.level()

    def _make(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self._ask(Ask("POST", path, body=body))
        if answer.code not in (http.client.CREATED, http.client.CONFLICT):
            raise RuntimeError(f"{path}: {answer}")

    def _serves(self, path: str) -> bool:
        return self._ask(Ask("GET", path)).code == http.client.OK

    # Between programs

    def begin(self) -> Memory:
        """Erase what the programs before left."""
        self._close_watches()
        self._server.erase([*self._erased, *_ERASED])
        self._canaries.stale = True
        return Memory(next(self._runs))


_ERASED = (
    *(
        f"/registry/{resource}/{namespace}"
        for namespace in (*(f"{name}/" for name in NAMESPACES), "run-")
        for resource in (
            "configmaps",
            "deployments",
            "events",
            "leases",
            "persistentvolumeclaims",
            "poddisruptionbudgets",
            "pods",
            "rolebindings",
            "roles",
            "secrets",
            "serviceaccounts",
            "services/endpoints",
            "services/specs",
        )
    ),
    "/registry/minions/",
    "/registry/namespaces/run-",
    "/registry/clusterroles/run-",
    "/registry/clusterrolebindings/run-",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/run",
)
"""Where programs leave things in etcd, beside custom resources."""


def _patience(seen: int, expected: int | None) -> float:
    """Return how long to wait for one more event, in s."""
    if expected is None:
        return QUIET_S
    return EVENT_TIMEOUT_S if seen < expected else SURPLUS_S


def _registry(crd: Mapping[str, Any]) -> str:
    return f"{crd['spec']['group']}/{crd['spec']['names']['plural']}"


def _answer(code: int, media_type: str, data: bytes, response: http.client.HTTPResponse) -> Answer:
    body = json.loads(data) if media_type == JSON else {"text": data.decode().strip()}
    warnings = tuple(response.headers.get_all("Warning") or ())
    return Answer(code, body, warnings, response.headers.get("Retry-After", ""))
