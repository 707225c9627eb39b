"""The cluster itself: whether its API answers, whose clock is right, whether node pools are served, and the namespace.

Theory of operation. The first question (:func:`reach`) is asked once, without the repetitions of the drivers: whoever
has a wrong address wants to hear so at once. Everything later goes the drivers' way.

*Whose clock.* The server writes its time into each answer to a review of rights; that is compared with ours before and
after the question, so the way there does not count. Both have a resolution of one second.

*Conditions.* CoreWeave has renamed the conditions of node pools before. So what the pools that are there carry is told,
and whether those are among them that this version judges by.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio

from iriscw.cloud.drivers.kube.credentials import InvalidAccess
from iriscw.cloud.drivers.kube.objects import Objects, Thing
from iriscw.cloud.kube.calls import MalformedAnswer, ask
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.cloud.kube.paths import NODE_POOLS, POOL_API
from iriscw.cloud.kube.refusals import answered, judged
from iriscw.cloud.model import CloudError, Forbidden, Gone, InvalidSpec
from iriscw.deploy.installation import Installation
from iriscw.doctor.findings import Finding, ok, unseen, warning, wrong

REACH_S: Final = 15.0
"""Until the first answer has to be there; half of what a request of the drivers has."""

SKEW_S: Final = 5.0
"""How far two clocks may be apart. Tokens and certificates begin to fail at minutes, signatures of S3 at fifteen;
machines that ask for the time are apart by less than a second."""

POOLS_READ: Final = 50
"""Of the pools that are there: their conditions have the same names everywhere."""

JUDGED: Final = (("Validated", "Valid"), ("Quota",), ("Capacity",))
"""The conditions that pools are judged by, each with its older name."""

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
PRIVILEGED: Final = "privileged"

WHO_AM_I: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MAY_I: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def reach(objects: Objects) -> Finding:
    """Ask the API server for its version, once."""
    try:
        with anyio.fail_after(REACH_S):
            answer = await objects.caller.request(ApiRequest("GET", "/version"))
    except TimeoutError:
        return wrong("api", f"no answer within {REACH_S:g} s", "look at the address, the network, and a proxy between")
    except (CloudError, InvalidAccess) as error:
        return wrong("api", f"no answer: {error}", "look at the address, the network, and a proxy between")
    if answer.code in (401, 403):
        text = answered(answer).text
        return wrong("api", f"it refuses: {text}", "the token is not known there (CoreWeave answers 403): renew it")
    version = answer.body.get("gitVersion") if isinstance(answer.body, dict) else None
    if answer.code != 200 or not isinstance(version, str):
        return wrong("api", f"it answers {answer.code}, and no version", "what answers there is no Kubernetes API")
    return ok("api", f"Kubernetes {version}")


async def known_as(objects: Objects) -> str:
    """Return the name that the server knows us by; empty if it does not say.

    Raises:
        Throttled: too many calls.
        Unavailable: no answer.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await objects.create(WHO_AM_I, body)
    except (Forbidden, Gone, InvalidSpec):  # before Kubernetes 1.28
        return ""
    return str(_part(_part(answer, "status"), "userInfo").get("username") or "")


async def look_at_clock(objects: Objects) -> list[Finding]:
    """Compare the server's clock with ours; a server that does not say its time is not compared.

    Raises:
        Forbidden: the credentials are not known.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    asked = {"resourceAttributes": {"verb": "list", "group": POOL_API.partition("/")[0], "resource": "nodepools"}}
    before = datetime.now(UTC)
    answer = await objects.create(MAY_I, {"kind": "SelfSubjectAccessReview", "spec": asked})
    after = datetime.now(UTC)
    told = time_of(answer)
    return [] if told is None else [judge_clock(before, told, after)]


def time_of(review: Thing) -> datetime | None:
    """Return the time at which a server answered a review; None if it does not say."""
    fields = review["metadata"].get("managedFields")
    for entry in fields if isinstance(fields, list) else ():
        try:
            return datetime.fromisoformat(str(entry["time"]))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def judge_clock(before: datetime, told: datetime, after: datetime) -> Finding:
    """Judge what a server told between two moments of ours; its time is cut to whole seconds."""
    early, late = before - timedelta(seconds=1) - told, told - after
    apart = max(early, late).total_seconds()
    if apart <= SKEW_S:
        return ok("clock", "the server's and this machine's agree")
    which = "behind" if early > late else "ahead of"
    text = f"the server's is {apart:.0f} s {which} this machine's"
    return warning("clock", text, "have both synchronised (NTP): tokens, certificates and leases are judged by time")


async def look_at_pools(objects: Objects) -> list[Finding]:
    """Look whether node pools are served, and what conditions they have.

    Raises:
        Forbidden: the credentials do not allow to look.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    answer = await _asked(objects, ApiRequest("GET", f"/apis/{POOL_API}"))
    listed = answer.body.get("resources") if answer.code == 200 and isinstance(answer.body, dict) else None
    names = [each.get("name") for each in listed or () if isinstance(each, dict)]
    if answer.code not in (200, 404):
        raise judged(answered(answer))
    if "nodepools" not in names:
        advice = "is this a CoreWeave cluster (CKS)? its NodePools are part of it, and are not installed by hand"
        return [wrong("node pools", f"{POOL_API} is not served", advice)]
    try:
        return [ok("node pools", f"{POOL_API} is served"), await _look_at_conditions(objects)]
    except CloudError as error:
        return [ok("node pools", f"{POOL_API} is served"), unseen("conditions", error)]


async def _look_at_conditions(objects: Objects) -> Finding:
    answer = await _asked(objects, ApiRequest("GET", NODE_POOLS, (("limit", str(POOLS_READ)),)))
    if answer.code != 200:
        raise judged(answered(answer))
    if not isinstance(answer.body, dict) or "items" not in answer.body:
        raise MalformedAnswer("the API answered a list with something else")
    return judge_conditions(answer.body["items"] or ())


def judge_conditions(pools: Any) -> Finding:
    """Judge the conditions of pools that are there: a name that is not known judges nothing, and a fleet waits."""
    found = {
        str(condition.get("type")): None
        for pool in pools
        for condition in _part(pool, "status").get("conditions") or ()
        if isinstance(condition, dict)
    }
    if not found:
        return ok("conditions", "no pool is there that has any; `--probe` makes one")
    missing = [names[0] for names in JUDGED if not any(name in found for name in names)]
    text = ", ".join(sorted(found))
    if not missing:
        return ok("conditions", text)
    advice = "pools are judged by them: if they were renamed, look for a newer iriscw"
    return warning("conditions", f"{text}; not among them: {', '.join(missing)}", advice)


async def look_at_namespace(objects: Objects, installation: Installation) -> tuple[list[Finding], str]:
    """Look at the namespace, and whether it takes worker pods. Gives its uid, too; empty if there is none.

    Raises:
        Forbidden: the credentials do not allow to look.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    name = installation.namespace
    found = await objects.get(f"/api/v1/namespaces/{name}")
    if found is None:
        return [wrong("namespace", f"there is no {name}", "`iriscw manifests CONFIG --apply` makes it")], ""
    uid = str(found["metadata"].get("uid") or "")
    if found["metadata"].get("deletionTimestamp"):
        return [wrong("namespace", f"{name} is being deleted", "wait until it is gone, then apply again")], uid
    return [ok("namespace", f"{name}, uid {uid}"), judge_security(found)], uid


def judge_security(namespace: Thing) -> Finding:
    """Judge the level of pod security: worker pods use their node's network and a folder of it."""
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(ENFORCE, "")
    if level == PRIVILEGED:
        return ok("pod security", PRIVILEGED)
    if not level:
        return ok("pod security", "not said: the cluster's default, which is privileged unless somebody changed it")
    name = namespace["metadata"]["name"]
    advice = f"kubectl label namespace {name} --overwrite {ENFORCE}={PRIVILEGED}"
    text = f"{level}: it refuses worker pods, which use their node's network and a folder of it"
    return wrong("pod security", text, advice)


async def _asked(objects: Objects, request: ApiRequest) -> ApiResponse:
    caller = objects.caller
    return await caller.carry_out(ask(caller.settings, request, caller.rng))


def _part(thing: Any, name: str) -> dict[str, Any]:
    found = thing.get(name) if isinstance(thing, dict) else None
    return found if isinstance(found, dict) else {}
