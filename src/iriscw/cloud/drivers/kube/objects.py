"""Objects of any kind, as JSON: for what is applied, waited for and removed as a whole (``iriscw manifests --apply``).

The surface, all of it methods of :class:`Objects` (``drivers.objects``, or :func:`open_objects` for a process that
wants nothing else of a cluster)::

    await objects.get(path) -> Thing | None
    await objects.list(collection, selector="") -> tuple[Thing, ...]
    await objects.apply(path, manifest, *, dry_run=False, force=False) -> Thing
    await objects.patch(path, body, content_type, *, dry_run=False) -> Thing
    await objects.delete(path, *, uid="", orphan=False) -> bool
    await objects.wait(path, condition, timeout_s) -> Thing | None
    path_of(manifest, namespace="") -> str              # of iriscw.cloud.drivers.kube.kinds

Theory of operation. A path is that of one object (:func:`~iriscw.cloud.drivers.kube.kinds.path_of`). *Applying* is
server-side: the server merges what we say with what others say, field by field, and refuses (:class:`ApplyConflict`)
where somebody else owns a field and means something different. All that we apply is under one field manager,
:data:`FIELD_MANAGER`, so a field that is left out of the next manifest goes away. Patches say what they are; nothing is
guessed from a body's form.

Every request has the rate, the deadline and the repetitions of the drivers' own (:mod:`iriscw.cloud.kube.calls`); those
that would mean something else the second time are made once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn, TypeAlias

import anyio
import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.calls import Caller, rest
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.kube.calls import MalformedAnswer, ask, collect
from iriscw.cloud.kube.messages import APPLY_PATCH, JSON, MERGE_PATCH, ApiRequest, ApiResponse, ApiUnreachable, Call
from iriscw.cloud.kube.paths import Source
from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.refusals import answered, judged
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import CloudError, Conflict, InvalidSpec, Throttled, Unavailable

Thing: TypeAlias = Mapping[str, Any]
"""An object as the API has it."""

FIELD_MANAGER = "iriscw"
"""Under whose name fields are owned."""

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Merges lists by their keys; for Kubernetes' own kinds only: custom resources answer 415."""

JSON_PATCH = "application/json-patch+json"
PATCHES = (APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH)

WATCH_S = 240
"""Seconds after which a server ends a watch on one object; it is opened again."""

IMMUTABLE_WORDS = ("cannot be changed", "is immutable", "may not change", "may not be changed")
"""How servers say that a field keeps its first value: CoreWeave's webhook of ``instanceType``, CEL rules, Kubernetes'
own validation."""


TYPE_MISTAKE = "failed to create typed"
"""How servers say, with 500, that what is applied is not of its kind: a number where a text belongs."""


class ApplyConflict(Conflict):
    """Others own fields that the manifest sets to something else.

    ``fields`` are what the server names, each with its owner: ``conflict with "kubectl": .spec.replicas``.
    """

    def __init__(self, text: str, fields: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.fields = tuple(fields)


class ImmutableField(InvalidSpec):
    """A field keeps its first value, such as a pool's ``instanceType``: the object must be made anew to change it."""


class NotInTime(CloudError, TimeoutError):
    """What was waited for did not come in time. ``last`` is the object as it was then, None if there was none."""

    def __init__(self, text: str, last: Thing | None = None) -> None:
        super().__init__(text)
        self.last = last


@attrs.frozen
class Objects:
    """Reads and writes objects of one cluster, one at a time.

    Args:
        caller: Carries the requests out.
    """

    caller: Caller

    async def get(self, path: str) -> Thing | None:
        """Read an object; None if there is none.

        Raises:
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        answer = await self._ask(ApiRequest("GET", path))
        if answer.code == 404:
            return None
        return _thing(answer) if answer.code == 200 else _refuse(answer)

    async def list(self, collection: str, selector: str = "") -> tuple[Thing, ...]:
        """Read all objects of a collection that a label selector selects, as they were at one moment.

        Raises:
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        caller = self.caller
        return await caller.carry_out(collect(caller.settings, Source(collection, selector), caller.rng))

    async def apply(self, path: str, manifest: Thing, *, dry_run: bool = False, force: bool = False) -> Thing:
        """Make an object be as a manifest says, and give it as the server has it then (server-side apply).

        Args:
            path: Of the object.
            manifest: All that we say about it; what we said before and do not say now is taken back.
            dry_run: Have it checked, defaulted and admitted, and change nothing.
            force: Take fields over that others own.

        Raises:
            ApplyConflict: others own some of its fields.
            QuotaExceeded: the namespace's quota is used up.
            ImmutableField: it changes what cannot be changed.
            InvalidSpec: it is not accepted.
            Gone: there is no such namespace, or no such kind.
            Conflict: it changed meanwhile.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer; it may have been applied.
        """
        query = (("fieldManager", FIELD_MANAGER), ("force", _word(force)), ("fieldValidation", "Strict"))
        return await self._write(ApiRequest("PATCH", path, _dry(query, dry_run), manifest, APPLY_PATCH))

    async def patch(self, path: str, body: Any, content_type: str, *, dry_run: bool = False) -> Thing:
        """Change an object, and give it as it is then.

        Args:
            path: Of the object, or of its ``status``.
            body: The patch: a mapping, or a list of operations for :data:`JSON_PATCH`.
            content_type: Which kind of patch it is: one of :data:`PATCHES`. One of operations is not sent again when
                nobody answers, for it may not mean the same twice.
            dry_run: Change nothing.

        Raises:
            ApplyConflict: others own some of its fields (an apply patch).
            QuotaExceeded: the namespace's quota is used up.
            ImmutableField: it changes what cannot be changed.
            InvalidSpec: it is not accepted, or is of another form than its type says.
            Gone: there is none.
            Conflict: it changed meanwhile.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer; it may have been changed.
        """
        if content_type not in PATCHES:
            raise InvalidSpec(f"{content_type} is not a kind of patch; there are: {', '.join(PATCHES)}")
        if isinstance(body, list) != (content_type == JSON_PATCH):
            raise InvalidSpec(f"a patch of type {content_type} has another form")
        query = (("fieldManager", FIELD_MANAGER),)
        request = ApiRequest("PATCH", path, _dry(query, dry_run), body, content_type)
        return await self._write(request, once=content_type == JSON_PATCH)

    async def create(self, collection: str, manifest: Thing, *, dry_run: bool = False) -> Thing:
        """Post an object, and give it as the server made it. It is never posted twice.

        Raises:
            QuotaExceeded: the namespace's quota is used up.
            InvalidSpec: it is not accepted.
            Gone: there is no such namespace, or no such kind.
            Conflict: another object has its name.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer; it may exist.
        """
        query = (("fieldManager", FIELD_MANAGER),)
        return await self._write(ApiRequest("POST", collection, _dry(query, dry_run), manifest, JSON), once=True)

    async def delete(self, path: str, *, uid: str = "", orphan: bool = False) -> bool:
        """Ask for an object's deletion. Gives False if there was none: it may go later, :meth:`wait` tells.

        Args:
            path: Of the object.
            uid: Only if it is the one with this uid.
            orphan: Leave what it owns; otherwise the server's collector removes that afterwards.

        Raises:
            Conflict: it has another uid.
            Forbidden: the credentials do not allow it.
            InvalidSpec: a policy does not let it go.
            Throttled: too many calls.
            Unavailable: no answer; it may have been deleted.
        """
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        body = {**options, "preconditions": {"uid": uid}} if uid else options
        answer = await self._ask(ApiRequest("DELETE", path, body=body))
        if answer.code == 404:
            return False
        return True if answer.code in (200, 202) else _refuse(answer)

    async def wait(self, path: str, condition: Callable[[Thing | None], bool], timeout_s: float) -> Thing | None:
        """Wait until an object is as it should be, and give it: None if it should be gone, and is.

        Args:
            path: Of the object.
            condition: Is told the object as it is, None while there is none. It is asked after each change.
            timeout_s: How long to wait.

        Raises:
            NotInTime: it was not so within ``timeout_s``.
            Forbidden: the credentials do not allow it.
        """
        seen = _Seen()
        with anyio.move_on_after(timeout_s):
            return await self._until(path, condition, seen)
        raise NotInTime(f"{path} was not as it should be within {timeout_s:g} s", seen.last)

    async def _until(self, path: str, condition: Callable[[Thing | None], bool], seen: _Seen) -> Thing | None:
        settings, failures = self.caller.settings, 0
        while True:
            try:
                seen.last = await self.get(path)
                if condition(seen.last) or await self._watched(path, condition, seen):
                    return seen.last
                failures = 0
            except (Throttled, Unavailable, ApiUnreachable):
                failures += 1  # until the deadline: a server that restarts is what one waits for, too
            await rest(growing(failures, settings.watch_pause_least, settings.watch_pause_most, self.caller.rng))

    async def _watched(self, path: str, condition: Callable[[Thing | None], bool], seen: _Seen) -> bool:
        """Follow an object from what was seen of it; give whether it became as it should be before the watch ended."""
        collection, _, name = path.rpartition("/")
        query = [("watch", "1"), ("fieldSelector", f"metadata.name={name}"), ("timeoutSeconds", str(WATCH_S))]
        if seen.last is not None:
            query.append(("resourceVersion", str(seen.last["metadata"].get("resourceVersion") or "")))
        await self.caller.turn()
        async with aclosing(self.caller.api.watch(ApiRequest("GET", collection, tuple(query)))) as events:  # type: ignore[type-var]
            async for event in events:
                kind, thing = event.get("type"), event.get("object")
                if kind not in ("ADDED", "MODIFIED", "DELETED") or not isinstance(thing, dict):
                    return False  # an error, most of all 410: it is read anew
                seen.last = None if kind == "DELETED" else thing
                if condition(seen.last):
                    return True
        return False

    async def _write(self, request: ApiRequest, *, once: bool = False) -> Thing:
        answer = await self._ask(request, once=once)
        return _thing(answer) if answer.code in (200, 201, 202) else _refuse(answer)

    async def _ask(self, request: ApiRequest, *, once: bool = False) -> ApiResponse:
        caller = self.caller
        return await caller.carry_out(_mistakes_told(ask(caller.settings, request, caller.rng, once=once)))


@attrs.define
class _Seen:
    last: Thing | None = None


def _mistakes_told(call: Call[ApiResponse]) -> Call[ApiResponse]:
    """Tell a mistake in what is applied from a server's trouble, as which it is answered: it is asked once, not again.

    Raises:
        Throttled: too many calls.
        Unavailable: no answer.
    """
    try:
        step = next(call)
        while True:
            try:
                answer = yield step
            except ApiUnreachable as silence:
                step = call.throw(silence)
            else:
                if answer is not None and answer.code == 500 and TYPE_MISTAKE in answered(answer).text:
                    return ApiResponse(400, answer.body)
                step = call.send(answer)
    except StopIteration as done:
        result: ApiResponse = done.value
        return result


def _word(value: bool) -> str:
    return "true" if value else "false"


def _dry(query: tuple[tuple[str, str], ...], dry_run: bool) -> tuple[tuple[str, str], ...]:
    return (*query, ("dryRun", "All")) if dry_run else query


def _thing(answer: ApiResponse) -> Thing:
    body = answer.body
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise MalformedAnswer("the API answered with something that is not an object")
    return body


def _refuse(answer: ApiResponse) -> NoReturn:
    """Raise the error that an answer is."""
    status = answered(answer)
    error = judged(status)
    if status.code == 409 and "FieldManagerConflict" in status.causes:
        causes = answer.body["details"]["causes"]
        raise ApplyConflict(
            f"others own fields that the manifest changes: {status.text}",
            (f"{each.get('message', '')}: {each.get('field', '')}" for each in causes if isinstance(each, dict)),
        )
    if isinstance(error, InvalidSpec) and any(words in status.text.lower() for words in IMMUTABLE_WORDS):
        raise ImmutableField(str(error))
    raise error


@asynccontextmanager
async def open_objects(
    access: ClusterAccess, *, limits: TransportLimits | None = None, settings: KubeSettings | None = None
) -> AsyncIterator[Objects]:
    """Yield the objects of a cluster; nothing is asked of it before they are.

    Args:
        access: The way to its API server.
        limits: Deadlines and sizes of the transport.
        settings: Rates and pauses; whose pods and pools are whose does not matter here.
    """
    async with open_api(access, limits) as api:
        yield Objects(Caller(api, settings or KubeSettings(cluster="")))
