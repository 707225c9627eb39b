"""What listens in simulated containers: one small HTTP server, the port of a worker.

It answers ``/health`` as a worker does, with what is known of a worker that is not there, and all else with 404. Any
HTTP/1.1 client is understood that sends no bodies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from iriscw.cloud.model import LABEL_INCARNATION, LABEL_WORKER
from iriscw_sims.kube.kinds import nested

HEAD_BYTES = 2**14
"""Of one request."""


class Conversation(Protocol):
    """One connection to something that listens."""

    over: bool
    """Whether it has ended the connection."""

    def receive(self, data: bytes) -> bytes:
        """Hear something, and give the answer."""
        ...


class Health:
    """One connection to a simulated worker's port.

    Args:
        pod: In which it is.
        uptime_s: For how long its container has run.
    """

    def __init__(self, pod: Mapping[str, Any], uptime_s: float) -> None:
        labels = nested(pod, "metadata", "labels") or {}
        self._body = {
            "worker_id": labels.get(LABEL_WORKER, pod["metadata"]["name"]),
            "incarnation": labels.get(LABEL_INCARNATION, ""),
            "status": "ok",
            "connected": False,
            "live_attempts": 0,
            "uptime_s": round(uptime_s, 3),
        }
        self._heard = b""
        self.over = False

    def receive(self, data: bytes) -> bytes:
        """Answer the requests that are complete."""
        self._heard += data
        answers = b""
        while not self.over and b"\r\n\r\n" in self._heard:
            head, _, self._heard = self._heard.partition(b"\r\n\r\n")
            answers += self._answer(head.decode("latin-1"))
        if len(self._heard) > HEAD_BYTES and not self.over:
            self.over = True
            answers += _said(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, {"error": "too much"}, close=True)
        return answers

    def _answer(self, head: str) -> bytes:
        line, *fields = head.split("\r\n")
        words = line.split(" ")
        lowered = [field.lower().replace(" ", "") for field in fields]
        self.over = "connection:close" in lowered or not line.endswith("HTTP/1.1")
        if len(words) != 3 or any(field.startswith(("content-length:", "transfer-encoding:")) for field in lowered):
            self.over = True
            return _said(HTTPStatus.BAD_REQUEST, {"error": "a request without a body is understood"}, close=True)
        if words[1].partition("?")[0] != "/health":
            return _said(HTTPStatus.NOT_FOUND, {"error": "this container is simulated"}, close=self.over)
        if words[0] not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "it can only be read"}, close=self.over)
        return _said(HTTPStatus.OK, self._body, close=self.over, bare=words[0] == "HEAD")


def _said(status: HTTPStatus, body: Mapping[str, Any], *, close: bool, bare: bool = False) -> bytes:
    text = json.dumps(body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        f"{'Connection: close' if close else 'Connection: keep-alive'}\r\n\r\n"
    )
    return head.encode() + (b"" if bare else text)


def listens(pod: Mapping[str, Any], port: int) -> bool:
    """Tell whether something listens on a port: on those that a pod's containers name, on any if they name none."""
    named = [each.get("containerPort") for spec in pod["spec"]["containers"] for each in spec.get("ports") or ()]
    return port in named if named else True
