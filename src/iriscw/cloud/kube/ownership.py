"""Creating and deleting one object, so that neither is done twice, nor to somebody else's.

Theory of operation. *Creating*: the object is posted under its name. If the name is taken (because an earlier answer
was lost, or by somebody else) the holder is read and compared: one that carries the same label as ours *is* ours, and
is given back; another one, or one that is being deleted, is a conflict. A holder that is gone when it is looked at has
left the name free: once more. What must never exist twice, not even one after the other, is posted ``once``: when no
answer comes, the name is looked at, and whoever asked is told that nothing is known unless the object is there.

*Deleting*: the object is read first, because whose it is stands in its labels (INV-F2). The deletion then carries its
uid and the resource version that was judged, so nothing that changed hands in between is deleted: the server refuses,
and the object is read and judged again. Controllers write to an object's status all the time, so a few rounds of that
are normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from iriscw.cloud.kube.calls import MalformedAnswer, ask
from iriscw.cloud.kube.messages import ApiRequest, Call, Pause
from iriscw.cloud.kube.parsing import is_deleting, labels_of
from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.labels import check_ours, is_name
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    CloudError,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
    Unseen,
)

MAX_ROUNDS = 8
"""Times that a name or a version may slip away under one call; each needs somebody else to write just then."""


def create(
    settings: KubeSettings,
    path: str,
    manifest: Mapping[str, Any],
    same: tuple[str, ...],
    rng: Random,
    *,
    once: bool = False,
) -> Call[tuple[Mapping[str, Any], bool]]:
    """Make an object exist. Give it, and whether it was made just now.

    Args:
        settings: The cluster.
        path: Of the collection.
        manifest: What to post.
        same: Labels by which the holder of the name is known to be the same thing.
        rng: For pauses.
        once: Let at most one request that can have an effect go out.

    Raises:
        QuotaExceeded: the quota is used up.
        InvalidSpec: the manifest is not accepted.
        Conflict: another object, or one that is being deleted, has the name.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; the object may exist or appear later.
    """
    name = str(manifest["metadata"]["name"])
    problem: CloudError = Unavailable(f"others make and delete {name!r} all the time")
    for turn in range(1, MAX_ROUNDS + 1):
        try:
            response = yield from ask(settings, ApiRequest("POST", path, body=manifest), rng, once=once)
        except Unavailable as silence:
            if not once:
                raise
            try:
                holder = yield from look(settings, f"{path}/{name}", rng)
            except CloudError as error:
                raise silence from error  # not the look's error: that would say that nothing was made
            if holder is None:
                raise
            _compare(name, labels_of(manifest), holder, same)
            return holder, True
        if response.code in (200, 201, 202):
            return _object(response.body), True
        status = answered(response)
        if status.code == 409 and status.reason != "AlreadyExists":
            # A counter of the server's own was changed by others: resource quotas are counted so.
            problem = Unavailable(f"the API could not decide: {status.text}")
        elif status.code == 409:
            holder = yield from _holder(settings, f"{path}/{name}", rng)
            if holder is not None:
                _compare(name, labels_of(manifest), holder, same)
                return holder, False
        elif status.code == 404:
            raise Unavailable(f"the cluster has no place for it (namespace or resource definition): {status.text}")
        else:
            raise narrowed(judged(status), QuotaExceeded, InvalidSpec, Forbidden, Throttled)
        if turn < MAX_ROUNDS:
            yield Pause(growing(turn, settings.pause_least, settings.pause_most, rng))
    raise problem


def _holder(settings: KubeSettings, path: str, rng: Random) -> Call[Mapping[str, Any] | None]:
    """Read who has a name, None if nobody has any more; where that cannot be seen, nothing is known.

    Raises:
        Unseen: the credentials do not allow it.
        Unavailable: it cannot, for another reason.
    """
    try:
        found = yield from look(settings, path, rng)
    except Forbidden as error:
        raise Unseen(f"{path} is there already, and whose it is cannot be seen: {error}") from error
    except CloudError as error:
        raise Unavailable(f"{path} is there already, and whose it is cannot be seen: {error}") from error
    return found


def _compare(name: str, wanted: Mapping[str, str], holder: Mapping[str, Any], same: tuple[str, ...]) -> None:
    has = labels_of(holder)
    for label in (LABEL_CLUSTER, *same):
        if has.get(label) != wanted.get(label):
            raise Conflict(f"another object has the name {name!r}: its {label} is {has.get(label)!r}")
    if is_deleting(holder):
        raise Conflict(f"{name!r} is being deleted: the name is not free yet")


def look(settings: KubeSettings, path: str, rng: Random) -> Call[Mapping[str, Any] | None]:
    """Read one object; None if there is none.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    response = yield from ask(settings, ApiRequest("GET", path), rng)
    if response.code == 200:
        return _object(response.body)
    if response.code == 404:
        return None
    raise narrowed(judged(answered(response)), Forbidden, Throttled)


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise MalformedAnswer("the API answered with something that is not an object")
    found: Mapping[str, Any] = body
    return found


def delete(
    settings: KubeSettings, path: str, name: str, uid: str, options: Mapping[str, Any], rng: Random
) -> Call[None]:
    """Ask for the deletion of the object of this name and uid, if it is ours.

    Args:
        settings: The cluster.
        path: Of the collection.
        name: Its name.
        uid: Its uid.
        options: What the deletion says beside the preconditions.
        rng: For pauses.

    Raises:
        Gone: there is none of this name, or another one with another uid.
        Conflict: it is not ours to delete.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may have been deleted.
    """
    missing = Gone(f"there is no {name!r} with the uid {uid}")
    if not is_name(name):
        raise missing
    where = f"{path}/{name}"
    for turn in range(1, MAX_ROUNDS + 1):
        found = yield from look(settings, where, rng)
        if found is None or _metadata(found).get("uid") != uid:
            raise missing
        check_ours(settings.cluster, labels_of(found))
        if _is_going(_metadata(found), options):
            return
        preconditions = {"uid": uid, "resourceVersion": _metadata(found).get("resourceVersion")}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions, **options}
        response = yield from ask(settings, ApiRequest("DELETE", where, body=body), rng)
        status = answered(response)
        if response.code in (200, 202):
            return
        if status.code == 404:
            raise missing
        if status.code != 409:
            raise narrowed(judged(status), Forbidden, Throttled)
        if turn < MAX_ROUNDS:
            yield Pause(growing(turn, settings.pause_least, settings.pause_most, rng))
    raise Unavailable(f"{name!r} changes faster than its deletion can be asked for")


def _is_going(metadata: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether a deletion is under way that leaves no more grace than the one that is asked for."""
    left, grace = metadata.get("deletionGracePeriodSeconds"), options.get("gracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and (grace is None or (isinstance(left, int) and left <= grace))


def _metadata(found: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
