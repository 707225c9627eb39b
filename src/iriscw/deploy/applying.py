"""An installation made so, and compared with what is there: server-side, object by object.

Applying again changes nothing where nothing changed, and goes on where an earlier attempt ended. Fields that others
own (somebody's ``kubectl scale``) are a conflict that is told, unless they are taken over by force.

Comparing asks the server what it would make of each object (a dry run, so with all its defaults), and shows where that
differs from what it has. Values of Secrets are not part of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import ApplyConflict, ImmutableField, Objects, Thing
from iriscw.cloud.model import CloudError, Forbidden, Gone
from iriscw.deploy.errors import NotApplied
from iriscw.deploy.rendering import RenderedObject
from iriscw.deploy.writing import document

Told = Callable[[str], None]
"""Takes a line for people: what was done, or is being waited for."""

_NOISE: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
"""Of an object's metadata: what the server writes and nobody means."""


async def apply(objects: Objects, manifests: Iterable[RenderedObject], told: Told, *, force: bool = False) -> None:
    """Make all objects be as they are written, in their order.

    Args:
        objects: The cluster.
        manifests: What to apply.
        told: Is told what became of each.
        force: Take fields over that others own.

    Raises:
        NotApplied: the cluster refused one, or did not answer; those before it were applied.
    """
    for manifest in manifests:
        before, after = await _applied(objects, manifest, force=force)
        told(f"{manifest.name} {_became(before, after)}")


async def _applied(objects: Objects, manifest: RenderedObject, *, force: bool) -> tuple[Thing | None, Thing]:
    try:
        path = path_of(manifest.body)
        before = await objects.get(path)
        if before is not None and before["metadata"].get("deletionTimestamp"):
            raise NotApplied(f"{manifest.name}: the one that is there is being deleted; apply again when it is gone")
        return before, await objects.apply(path, manifest.body, force=force)
    except CloudError as error:
        raise NotApplied(f"{manifest.name}: {_why(manifest, error)}") from error


def _became(before: Thing | None, after: Thing) -> str:
    if before is None:
        return "created"
    same = before["metadata"].get("resourceVersion") == after["metadata"].get("resourceVersion")
    return "unchanged" if same else "changed"


def _why(manifest: RenderedObject, error: CloudError) -> str:
    """Say what a refusal means for whoever applies, on one line."""
    text = " ".join(str(error).split())
    match error:
        case ApplyConflict():
            return f"others own some of its fields ({'; '.join(error.fields)}); --force-conflicts takes them over"
        case ImmutableField() if manifest.body["kind"] == "PersistentVolumeClaim":
            return f"{text}; the journal is on it: put the old value back, or move the state by hand"
        case ImmutableField():
            return f"{text}; delete it first, and apply again"
        case Gone():
            return f"the cluster has no such kind, or no such namespace: {text}"
        case Forbidden():
            return f"{text}; whoever installs needs rights of an administrator, among them all that a role grants"
        case _:
            return f"{type(error).__name__}: {text}"


@attrs.frozen
class Difference:
    """Where one object differs: ``text`` has the lines, as ``diff -u`` writes them."""

    name: str
    text: str


async def compare(objects: Objects, manifests: Iterable[RenderedObject]) -> tuple[Difference, ...]:
    """Return the objects that applying would change, each with its differences. Nothing is changed.

    Raises:
        NotApplied: the cluster would refuse one, or did not answer.
    """
    found = []
    for manifest in manifests:
        try:
            path = path_of(manifest.body)
            there = await objects.get(path)
            would = await _would_be(objects, path, manifest.body)
        except CloudError as error:
            raise NotApplied(f"{manifest.name}: {_why(manifest, error)}") from error
        text = difference(manifest.name, there, would)
        if text:
            found.append(Difference(manifest.name, text))
    return tuple(found)


async def _would_be(objects: Objects, path: str, body: Mapping[str, Any]) -> Thing:
    """Return an object as it would be; as it is written, where its namespace is not there yet to ask in."""
    try:
        return await objects.apply(path, body, dry_run=True, force=True)
    except Gone:
        namespace = body["metadata"].get("namespace", "")
        if not namespace or await objects.get(f"/api/v1/namespaces/{namespace}") is not None:
            raise
        return body


def difference(name: str, there: Thing | None, would: Thing) -> str:
    """Return the lines in which two states of an object differ; empty if they are equal."""
    before = [] if there is None else document(meant(there)).splitlines(keepends=True)
    after = document(meant(would)).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"there/{name}", f"applied/{name}"))


def meant(thing: Thing) -> dict[str, Any]:
    """Return an object without what only the server writes."""
    metadata = {name: value for name, value in thing["metadata"].items() if name not in _NOISE}
    return {**{name: value for name, value in thing.items() if name != "status"}, "metadata": metadata}
