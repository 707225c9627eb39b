"""What goes into the simulated API server and what comes out of it: plain values.

A request is what an HTTP request is once its body has been parsed. A response's objects are frozen (see
:mod:`iriscw_sims.kube.frozen`): they are the store's own, shared between answers, and refuse every change.
"""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class Request:
    """One request. ``body`` is parsed JSON and is never changed by the store; ``user`` ``""`` is anonymous."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = "application/json"
    user: str = "admin"
    accept: str = "application/json"

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, ``""`` without one."""
        for key, value in self.query:
            if key == name:
                return value
        return ""

    def flag(self, name: str) -> bool:
        """Tell whether a boolean query parameter is set, by the API server's own rule: all but these are true."""
        for key, value in self.query:
            if key == name:
                return value.lower() not in ("false", "0")
        return False


@attrs.frozen
class Response:
    """One answer: ``body`` is an object, a list of objects, a table or a Status."""

    code: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()
