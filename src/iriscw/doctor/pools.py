"""An empty node pool of each configured instance type: made, heard, and deleted again.

Theory of operation. Quota and capacity can only be asked by a pool: CoreWeave writes what it thinks of one into its
conditions, and an empty one costs nothing. So a pool without nodes is made of each type, under a name that nobody else
has, and deleted when its conditions were read, when they did not come, when something failed and when we are
interrupted. A pool is deleted by its uid, or, where the answer to its creation was lost, only if it carries our mark of
this very run: no other pool is ever touched.

It has our labels but ``iris-managed``: a controller that runs takes a managed pool that is no slice for what a lost
request left, and would delete it before it was read. So what we cannot delete stays; it is named, with the command that
deletes it, and a later run finds it by its label.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

import anyio

from iriscw.cloud.catalogue import RACK_TYPES
from iriscw.cloud.drivers.kube.objects import NotInTime, Objects, Thing
from iriscw.cloud.kube.paths import NODE_POOLS, POOL_API
from iriscw.cloud.lifecycle import CAPACITY_WAITS, QUOTA_REFUSALS
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_CLUSTER_NAME,
    CloudError,
    Conflict,
    Forbidden,
    InvalidSpec,
    QuotaExceeded,
    Unavailable,
)
from iriscw.deploy.installation import Installation
from iriscw.doctor.findings import Finding, ok, unseen, warning, wrong
from iriscw.doctor.instance_types import Type, types_of

LABEL_DOCTOR: Final = "iris-doctor"
"""On the pools that are made here: which run made them."""

CONDITIONS_S: Final = 60.0
"""Until a pool has its conditions. They come within seconds: nothing is booted for them."""

CAPACITY_S: Final = 10.0
"""How much longer than the others the condition ``Capacity`` may take: an empty pool may never have it."""

DELETE_S: Final = 30.0
"""For deleting one pool, repetitions included, whatever else is going on."""

TEXT_CHARS: Final = 300
"""Of one condition's message."""

CERTAIN: Final = (Forbidden, InvalidSpec, QuotaExceeded)
"""Refusals after which there is certainly no pool."""

VALIDATED: Final = ("Validated", "Valid")


class Probes:
    """The pools of one run.

    Args:
        objects: The cluster.
        installation: Whose configuration is probed.
        cluster: The value of ``iris-cluster``: the namespace's uid.
    """

    def __init__(self, objects: Objects, installation: Installation, cluster: str) -> None:
        self.left: list[str] = []
        """The pools that are not certainly deleted: while one is probed, and where deleting it failed."""
        self._objects = objects
        self._installation = installation
        self._cluster = cluster
        self._run = secrets.token_hex(4)

    async def look(self) -> list[Finding]:
        """Probe each type, one after the other; what earlier runs left is told first."""
        found = await self._look_for_earlier()
        for number, each in enumerate(types_of(self._installation.config)):
            found += await self._probe(each, f"iris-doctor-{self._run}-{number}")
        return found

    async def _look_for_earlier(self) -> list[Finding]:
        try:
            there = await self._objects.list(NODE_POOLS, f"{LABEL_DOCTOR},{LABEL_CLUSTER}={self._cluster}")
        except CloudError as error:
            return [unseen("probe", error)]
        names = [each["metadata"]["name"] for each in there if not each["metadata"].get("deletionTimestamp")]
        text = f"an earlier run left {', '.join(names)}"
        return [warning("probe", text, f"if no other run is going on: {how_deleted(names)}")] if names else []

    async def _probe(self, kind: Type, name: str) -> list[Finding]:
        """Probe one type; its pool is deleted however this ends."""
        made: Thing | None = None
        refused = False
        self.left.append(name)
        try:
            made = await self._objects.create(NODE_POOLS, self._manifest(kind, name))
            found = await self._hear(kind, name, made)
        except CloudError as error:
            refused = made is None and isinstance(error, CERTAIN)
            found = [judge_refusal(kind, error)]
        finally:
            deleted = [] if refused else await self._delete(name, made)
        if refused:
            self.left.remove(name)
        return [*found, *deleted]

    def _manifest(self, kind: Type, name: str) -> dict[str, Any]:
        labels = {
            LABEL_CLUSTER: self._cluster,
            LABEL_CLUSTER_NAME: self._installation.cluster,
            LABEL_DOCTOR: self._run,
        }
        racks = kind.name.lower().startswith(RACK_TYPES)
        return {
            "apiVersion": POOL_API,
            "kind": "NodePool",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "computeClass": kind.compute_class,
                "instanceType": kind.name,
                "targetRacks" if racks else "targetNodes": 0,
                "autoscaling": False,
                "nodeLabels": dict(labels),
            },
        }

    async def _hear(self, kind: Type, name: str, made: Thing) -> list[Finding]:
        """Wait for the conditions of a pool, and judge them."""
        path, uid = f"{NODE_POOLS}/{name}", made["metadata"].get("uid")

        def is_gone(thing: Thing | None) -> bool:
            return thing is None or thing["metadata"].get("uid") != uid or "deletionTimestamp" in thing["metadata"]

        try:
            seen = await self._objects.wait(path, lambda thing: is_gone(thing) or is_told(thing), CONDITIONS_S)
            if not is_gone(seen) and is_open(seen):
                seen = await self._wait_for_capacity(path, is_gone, seen)
        except NotInTime as late:
            seen = late.last or made
        if is_gone(seen):
            advice = "who deletes node pools here? without it, try again"
            return [warning(kind.check, "its empty pool was deleted by somebody before it was read", advice)]
        return [judge_pool(kind, conditions_of(seen))]

    async def _wait_for_capacity(self, path: str, is_gone: Any, seen: Thing | None) -> Thing | None:
        try:
            return await self._objects.wait(
                path, lambda thing: is_gone(thing) or "Capacity" in conditions_of(thing), CAPACITY_S
            )
        except NotInTime as late:
            return late.last or seen

    async def _delete(self, name: str, made: Thing | None) -> list[Finding]:
        """Delete a pool, not to be interrupted; gives a finding if it may be left.

        It is done in a task of its own: Ctrl-C cancels the one that waits here, and no shield holds in that.
        """
        found: list[Finding] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._delete_shielded, name, made, found)
        return found

    async def _delete_shielded(self, name: str, made: Thing | None, found: list[Finding]) -> None:
        text = "it was not deleted in time"
        with anyio.move_on_after(DELETE_S, shield=True):
            try:
                text = await self._deleted(name, made)
            except CloudError as error:
                text = _line(error)
        if text:
            found.append(wrong("probe", f"the empty pool {name} may be left: {text}", how_deleted([name])))
        else:
            self.left.remove(name)

    async def _deleted(self, name: str, made: Thing | None) -> str:
        """Delete the pool that we made, or may have made; say why it may be left, or nothing."""
        path = f"{NODE_POOLS}/{name}"
        found = made if made is not None else await self._objects.get(path)
        if found is None:
            return "nobody said whether it was made, and it may appear yet"
        if (found["metadata"].get("labels") or {}).get(LABEL_DOCTOR) != self._run:
            return "one of its name is somebody else's"
        with contextlib.suppress(Conflict):  # another one has its name by now: ours is gone
            await self._objects.delete(path, uid=str(found["metadata"]["uid"]))
        return ""


def how_deleted(names: list[str]) -> str:
    """Return the command that deletes pools."""
    return f"kubectl delete nodepool {' '.join(names)}"


def conditions_of(pool: Thing | None) -> Mapping[str, Mapping[str, Any]]:
    """Return a pool's conditions that are known, by type."""
    status = pool.get("status") if pool is not None else None
    listed = status.get("conditions") if isinstance(status, dict) else None
    return {
        str(each.get("type")): each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and each.get("status") in ("True", "False")
    }


def validated(conditions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the condition that says whether a pool is accepted, under either name; empty if there is none."""
    return next((conditions[name] for name in VALIDATED if name in conditions), {})


def is_told(pool: Thing | None) -> bool:
    """Tell whether a pool's conditions say what can be said, ``Capacity`` aside."""
    conditions = conditions_of(pool)
    accepted = validated(conditions).get("status")
    return accepted == "False" or (accepted == "True" and "Quota" in conditions)


def is_open(pool: Thing | None) -> bool:
    """Tell whether capacity is still of interest: the pool is accepted, and within its quota."""
    conditions = conditions_of(pool)
    quota = conditions.get("Quota", {})
    return validated(conditions).get("status") == "True" and quota.get("reason") not in QUOTA_REFUSALS


def judge_pool(kind: Type, conditions: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Judge what an empty pool of a type was told."""
    accepted, quota, capacity = validated(conditions), conditions.get("Quota"), conditions.get("Capacity")
    told = ", ".join(f"{name} {each.get('reason', '')}".strip() for name, each in conditions.items())
    if accepted.get("status") == "False":
        text = f"not accepted: {_said(accepted)}"
        return wrong(kind.check, text, "look at the type's name and the zone: not every type is in each")
    if quota is not None and quota.get("reason") in QUOTA_REFUSALS:
        text = f"quota {quota['reason']}: {_said(quota)}"
        advice = "no node of it will come: raise the quota (Console, Administration, Quotas), or use another type"
        return wrong(kind.check, text, f"{advice}; used by {kind.used}")
    if not accepted or quota is None:
        missing = "quota" if accepted else "validation"
        text = f"no word of {missing} within {CONDITIONS_S:g} s; told: {told or 'nothing'}"
        return warning(kind.check, text, "look at CoreWeave's status page; `kubectl get nodepools` shows the others'")
    if quota.get("status") != "True":
        return warning(kind.check, f"quota {quota.get('reason')}: {_said(quota)}", "a reason that is not known here")
    if capacity is not None and capacity.get("reason") in CAPACITY_WAITS:
        return warning(kind.check, f"{told}: {_said(capacity)}", "nodes come when machines are free; nothing to do")
    if capacity is not None and capacity.get("status") == "False":
        return warning(kind.check, f"{told}: {_said(capacity)}", "the zone may have no machines of this type now")
    return ok(kind.check, told)


def judge_refusal(kind: Type, error: CloudError) -> Finding:
    """Judge why a pool could not be made, or heard."""
    text = _line(error)
    match error:
        case QuotaExceeded():
            return wrong(kind.check, f"quota: {text}", "raise the quota (Console, Administration, Quotas)")
        case InvalidSpec():
            return wrong(kind.check, f"not accepted: {text}", "look at the type's name and the zone")
        case Forbidden():
            advice = "to probe takes the rights that the controller has on node pools"
            return warning(kind.check, f"not probed: {text}", advice)
        case Unavailable():
            return wrong(kind.check, f"not probed: {text}", "try again")
        case _:
            return wrong(kind.check, f"not probed: {type(error).__name__}: {text}", "try again")


def _line(error: CloudError) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _said(condition: Mapping[str, Any]) -> str:
    text = " ".join(str(condition.get("message") or condition.get("reason") or "no reason given").split())
    return text[:TEXT_CHARS]
