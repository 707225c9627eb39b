"""The world that is judged: programs of requests against the simulated store, a new one for each program."""

from __future__ import annotations

import http.client
import itertools
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from kube_program import Answer, Ask, Events, Memory, OpenWatch
from kube_worlds import CRD_PATH, NAMESPACE_PATH, NAMESPACES, is_stray_bookmark

from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.store import Store
from iriscw_sims.kube.watches import Watch

START_NS = 1_767_000_000 * 10**9
STEP_NS = 10**6
"""A store's clock moves on by a millisecond with each request, as a real one's does, more or less."""


class StoreWorld:
    """Programs against a simulated store, a new one for each."""

    def __init__(self, crds: Sequence[Mapping[str, Any]]) -> None:
        """Set up nothing yet: :meth:`begin` does."""
        self._crds = crds
        self._runs = itertools.count(1)
        self._now = START_NS
        self._watches: dict[str, Watch] = {}
        self._store = Store(rng=Random(0), now=START_NS)

    def begin(self) -> Memory:
        """Return the store a new life, with what all programs find."""
        number = next(self._runs)
        self._now = START_NS
        self._watches = {}
        self._store = Store(rng=Random(number), now=START_NS)
        for name in NAMESPACES:
            self._make(NAMESPACE_PATH, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for crd in self._crds:
            self._make(CRD_PATH, crd)
        return Memory(number)

    def _make(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self.ask(Ask("POST", path, body=body))
        if answer.code != http.client.CREATED:
            raise RuntimeError(f"{path}: {answer}")

    def _request(self, step: Ask) -> Request:
        self._now += STEP_NS
        return Request(step.method, step.path, tuple(step.query), step.body, step.content_type, step.user, step.accept)

    def ask(self, step: Ask) -> Answer:
        """Answer a resolved request."""
        return _store_answer(self._store.handle(self._request(step), self._now))

    def open_watch(self, step: OpenWatch) -> Answer:
        """Open a watch under its name; code 200 and no body when it began."""
        request = self._request(Ask("GET", step.path, (("watch", "1"), *step.query), user=step.user))
        opened = self._store.watch(request, self._now)
        if isinstance(opened, Response):
            return _store_answer(opened)
        self._watches[step.name] = opened
        return Answer(http.client.OK, None)

    def drain(self, name: str, expected: int | None) -> Events:
        """Return the watch's next events; how many are expected changes nothing here."""
        watch = self._watches[name]
        events = tuple(event for event in thaw(watch.take(self._now)) if not is_stray_bookmark(event))
        return Events(events, watch.closed)

    def compact(self) -> None:
        """Forget all versions before the present."""
        self._store.compact(self._store.revision)

    def wait(self, time_s: int) -> None:
        """Let time pass."""
        self._now += time_s * 10**9


def _store_answer(response: Response) -> Answer:
    headers = response.headers
    warnings = tuple(value for key, value in headers if key == "Warning")
    retry_after = "".join(value for key, value in headers if key == "Retry-After")
    return Answer(response.code, thaw(response.body), warnings, retry_after)
