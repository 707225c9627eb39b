"""A real API server with the face of the simulated store, so that the simulated CoreWeave can stand behind either.

Theory of operation. A request is made while its caller waits: some milliseconds on one machine. A watch begins with a
list, so that all that is there is told at once, and goes on in a thread of its own that puts what comes into a queue.
When the connection ends, for whatever reason, the watch is closed, and whoever follows opens another one and compares.

A server that does not answer is waited for, up to :data:`PATIENCE_S`: what stands behind it cannot act without it. So
is one that has only just begun: it says for a moment that it has no such kind, or too many requests.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from iriscw._errors import OperationError
from iriscw.rpc.tokens import Secret
from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request, Response

PATIENCE_S = 120.0
"""How long a server may be away before a request to it fails: it is killed and started again in tests."""

BUSY = 429
PAUSE_S = 0.2
TIMEOUT_S = 30.0
WATCH_S = 3600
"""Seconds after which a watch ends and is opened anew."""

LINE_BYTES = 1 << 25


class NoAnswer(OperationError):
    """The API server did not answer for :data:`PATIENCE_S`."""


class RemoteWatch:
    """A watch of a real server; see :class:`iriscw_sims.kube.watches.Watch`.

    Args:
        listed: What is there at its beginning.
        connection: That of the watch.
        answer: Its answer, of which nothing is read yet.
        changed: Called, in the thread of the watch, after something came.
    """

    def __init__(
        self,
        listed: list[Json],
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        changed: Callable[[], None],
    ) -> None:
        self._events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        for item in listed:
            self._events.put({"type": "ADDED", "object": freeze(item)})
        self._connection, self._answer, self._changed = connection, answer, changed
        self._ended = False
        self._thread = threading.Thread(target=self._read, name="iriscw watch", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether nothing more comes: it ended, and all that it brought was taken."""
        return self._ended and self._events.empty()

    def take(self, now: int) -> list[Json]:
        """Return what came since the last call."""
        taken: list[Json] = []
        while not self._events.empty():
            taken.append(self._events.get())
        return taken

    def close(self) -> None:
        """End it, and wait until its thread has."""
        if self._connection.sock is not None:
            try:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
        self._thread.join()

    def _read(self) -> None:
        try:
            while line := self._answer.readline(LINE_BYTES):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                self._events.put({"type": event["type"], "object": freeze(event["object"])})
                self._changed()
        except (OSError, ValueError, http.client.HTTPException):
            pass  # however it ended: it is opened anew, and what was missed is listed
        finally:
            self._ended = True
            self._connection.close()
            self._changed()


class RemoteStore:
    """A real API server; see :class:`iriscw_sims.kube.store.Store`.

    Args:
        url: Where it is.
        token: Of somebody who may do everything.
        context: For TLS; None for a server without.
        changed: Called, in any thread, when something may have changed.
    """

    def __init__(
        self, url: str, token: Secret, context: ssl.SSLContext | None, changed: Callable[[], None] = lambda: None
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port
        self._token = token
        self._context = context
        self._connection: http.client.HTTPConnection | None = None
        self._watches: list[RemoteWatch] = []
        self._closing = threading.Event()
        self._served: set[str] = set()
        """The groups of kinds that were served: what is not served now will be again."""
        self.changed = changed
        self.revision = 0
        """Grows whenever something may have changed."""

    def close(self) -> None:
        """End all watches and the connection."""
        self._closing.set()
        for watch in self._watches:
            watch.close()
        if self._connection is not None:
            self._connection.close()

    def handle(self, request: Request, now: int) -> Response:
        """Make a request and wait for its answer.

        Raises:
            NoAnswer: see there.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                code, body = self._exchange(request)
            except (OSError, http.client.HTTPException) as error:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                if time.monotonic() > deadline:
                    raise NoAnswer(f"the API server does not answer: {error}") from error
                self._closing.wait(PAUSE_S)  # nobody tells when it is back
                continue
            if request.method != "GET":
                self.revision += 1
            return Response(code, freeze(body))

    def _exchange(self, request: Request) -> tuple[int, Json]:
        if self._connection is None:
            self._connection = self._connect(TIMEOUT_S)
        self._send(self._connection, request)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 500 or answer.status == BUSY:
            raise OSError(f"{answer.status}: {text[:200]!r}")
        group = "/".join(request.path.split("/")[:4])
        if "json" in (answer.getheader("Content-Type") or ""):
            self._served.add(group)
        elif group in self._served:
            raise OSError(f"{request.path} is not served any more, or not yet")
        else:
            return answer.status, {"code": answer.status, "message": text[:200].decode(errors="replace").strip()}
        return answer.status, json.loads(text)

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> None:
        headers = {"Authorization": f"Bearer {self._token.reveal()}", "Accept": "application/json"}
        body = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            body = json.dumps(request.body).encode()
        query = f"?{urlencode(request.query)}" if request.query else ""
        connection.request(request.method, request.path + query, body, headers)

    def watch(self, request: Request, now: int) -> RemoteWatch | Response:
        """Open a watch, or say why not.

        Raises:
            NoAnswer: see there.
        """
        while True:
            listed = self.handle(Request("GET", request.path), now)
            if listed.code != 200:
                return listed
            version: Any = listed.body["metadata"]["resourceVersion"]
            wanted = (("watch", "1"), ("timeoutSeconds", str(WATCH_S)), ("resourceVersion", version))
            connection = self._connect(None)
            try:
                self._send(connection, Request("GET", request.path, wanted))
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException):
                connection.close()
                self._closing.wait(PAUSE_S)  # nobody tells when it is back; the list that follows gives up
                continue
            if answer.status != 200:
                connection.close()
                continue
            items = [{**self._told(listed.body), **item} for item in listed.body["items"]]
            watch = RemoteWatch(items, connection, answer, self._notice)
            self._watches = [each for each in self._watches if not each.closed] + [watch]
            return watch

    def _told(self, listed: Json) -> Json:
        """Return what the items of a list leave out: what they are."""
        return {"apiVersion": listed["apiVersion"], "kind": str(listed["kind"]).removesuffix("List")}

    def _notice(self) -> None:
        self.revision += 1
        self.changed()
