"""Waiting until the controller serves, and saying meanwhile what it waits for.

Theory of operation. Between "applied" and "available" lie a machine that boots (up to half an hour), a volume, an image
and a process. Each tells its troubles in another place: the node pool in conditions, the pod in its status, the rest
in events. All of them are looked at every few seconds, and a line is told when it is new. A pool that will never have a
node (no such instance type, no quota) ends the waiting at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import attrs

from iriscw.cloud.drivers.kube.objects import NotInTime, Objects, Thing
from iriscw.cloud.kube.calls import ask, collect
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.kube.parsing import MalformedObject, node_of, pod_of, pool_of
from iriscw.cloud.kube.paths import NODE_POOLS, NODES, Source, pods_of
from iriscw.cloud.lifecycle import PoolHealth, judge_pool
from iriscw.cloud.model import CloudError
from iriscw.deploy.applying import Told
from iriscw.deploy.controller import selector
from iriscw.deploy.errors import NotAvailable
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    AUTHORITY_SECRET,
    CONTROLLER,
    CONTROLLER_SECRETS,
    METRICS_SECRET,
    STATE_CLAIM,
    controller_node_labels,
    controller_pool,
)

LOOK_S: Final = 5.0
"""Between two looks at what is going on."""

HOPELESS: Final = (PoolHealth.INVALID, PoolHealth.NO_QUOTA)
"""No node comes by itself."""

HOPELESS_LOOKS: Final = 2
"""A pool is given up after so many looks in a row: a condition may be older than its pool's last change."""

HOW_MADE: Final = "`--secrets-to DIR`, then `--apply --secrets-from DIR`"

EVENTS: Final = 500
"""Warnings that are read at once; of which the last :data:`EVENTS_TOLD` are told."""

EVENTS_TOLD: Final = 3
TEXT_CHARS: Final = 300
"""Of one message; some quote whole objects."""


@attrs.frozen
class AwaitedSight:
    """What is going on. ``lines`` say it, ``hopeless`` says that waiting does not help."""

    lines: tuple[str, ...] = ()
    hopeless: bool = False


async def await_available(objects: Objects, installation: Installation, timeout_s: float, told: Told) -> None:
    """Wait until the controller of this very configuration serves.

    Args:
        objects: The cluster.
        installation: What was applied.
        timeout_s: How long to wait.
        told: Is told each new thing that is being waited for.

    Raises:
        NotAvailable: it did not serve in time, or cannot; the text says what was seen last.
        Forbidden: the credentials do not allow to look.
    """
    path = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/{CONTROLLER}"
    seen = _Seen(objects, installation, told)
    failure: CloudError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(seen.follow, tasks.cancel_scope)
        try:
            await objects.wait(path, is_available, timeout_s)
        except CloudError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if seen.is_hopeless:
        raise NotAvailable(f"the controller will get no node: {seen.text}")
    if isinstance(failure, NotInTime):
        await seen.look()
        raise NotAvailable(f"the controller does not serve after {timeout_s:g} s: {seen.text}") from failure
    if failure is not None:
        raise failure


def is_available(deployment: Thing | None) -> bool:
    """Tell whether a Deployment runs as it is written now, and serves."""
    if deployment is None:
        return False
    status, wanted = _part(deployment, "status"), _part(deployment, "spec").get("replicas", 1)
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    updated = status.get("updatedReplicas", 0) == status.get("replicas", 0) == wanted
    return current and updated and _condition(status, "Available").get("status") == "True"


class _Seen:
    """What was seen so far, and told."""

    def __init__(self, objects: Objects, installation: Installation, told: Told) -> None:
        self._objects = objects
        self._installation = installation
        self._told = told
        self._sight = AwaitedSight()
        self._hopeless = 0

    @property
    def text(self) -> str:
        """What was seen last."""
        return "; ".join(self._sight.lines) or "nothing was heard of it"

    @property
    def is_hopeless(self) -> bool:
        """Whether waiting does not help."""
        return self._hopeless >= HOPELESS_LOOKS

    async def follow(self, waiting: anyio.CancelScope) -> None:
        """Look again and again; end the waiting when it does not help."""
        while not self.is_hopeless:
            await self.look()
            await anyio.sleep(LOOK_S)
        waiting.cancel()

    async def look(self) -> None:
        """Look once; a cluster that does not answer is looked at again the next time."""
        try:
            sight = await look(self._objects, self._installation)
        except CloudError as error:
            sight = AwaitedSight((f"{type(error).__name__}: {error}",))
        for line in sight.lines:
            if line not in self._sight.lines:
                self._told(f"waiting: {line}")
        self._sight = sight
        self._hopeless = self._hopeless + 1 if sight.hopeless else 0


async def look(objects: Objects, installation: Installation) -> AwaitedSight:
    """Look at everything that may hold the controller up.

    Raises:
        CloudError: the cluster refused, or did not answer.
    """
    pool, hopeless = await _look_at_pool(objects, installation)
    deployment = await objects.get(f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/{CONTROLLER}")
    lines = [*pool, *deployment_lines(deployment)]
    selected = ",".join(f"{name}={value}" for name, value in selector().items())
    serving = []
    for pod in await _listed(objects, Source(pods_of(installation.namespace), selected)):
        lines += pod_lines(pod)
        if _condition(_part(pod, "status"), "Ready").get("status") == "True":
            serving.append(str(_part(pod, "metadata").get("name")))
    return AwaitedSight((*lines, *await _look_at_events(objects, installation, serving)), hopeless)


async def _look_at_pool(objects: Objects, installation: Installation) -> tuple[list[str], bool]:
    if not installation.controller.instance_type:
        return [], False
    name = controller_pool(installation.namespace)
    found = await objects.get(f"{NODE_POOLS}/{name}")
    if found is None:
        return [f"node pool {name}: it is not there"], False
    labels = ",".join(f"{key}={value}" for key, value in controller_node_labels(installation.namespace).items())
    nodes = [node_of(each) for each in await _listed(objects, Source(NODES, labels))]
    judged = judge_pool(pool_of(found, nodes))
    lines = [] if judged.health is PoolHealth.READY else [f"node pool {name}: {judged.text}"]
    return lines, judged.health in HOPELESS


def deployment_lines(deployment: Thing | None) -> list[str]:
    """Say what a Deployment's own conditions complain of: pods that it may not make, a rollout that takes too long."""
    if deployment is None:
        return [f"deployment {CONTROLLER}: it is not there"]
    status, lines = _part(deployment, "status"), []
    for kind, bad in (("ReplicaFailure", "True"), ("Progressing", "False")):
        condition = _condition(status, kind)
        if condition.get("status") == bad:
            lines.append(f"deployment {CONTROLLER}: {_said(condition)}")
    return lines


def pod_lines(thing: Thing) -> list[str]:
    """Say what one pod waits for, or how it ended."""
    try:
        pod = pod_of(thing)
    except MalformedObject as malformed:
        return [str(malformed)]
    status = _part(thing, "status")
    told = (
        [_said(_condition(status, "PodScheduled"))]
        if _condition(status, "PodScheduled").get("status") == "False"
        else []
    )
    for each in status.get("containerStatuses") or ():
        state = _part(each, "state")
        told += [_said(state[kind]) for kind in ("waiting", "terminated") if isinstance(state.get(kind), dict)]
        if each.get("restartCount"):
            last = _part(_part(each, "lastState"), "terminated")
            told.append(f"restarted {each['restartCount']} times; the last one ended with {_said(last)}")
        elif isinstance(state.get("running"), dict) and not each.get("ready"):
            told.append("it runs, and does not serve yet")
    return [f"pod {pod.name}: {'; '.join(told)}"] if told else []


async def _look_at_events(objects: Objects, installation: Installation, serving: Sequence[str]) -> list[str]:
    path = f"/api/v1/namespaces/{installation.namespace}/events"
    request = ApiRequest("GET", path, (("fieldSelector", "type=Warning"), ("limit", str(EVENTS))))
    caller = objects.caller
    answer = await caller.carry_out(ask(caller.settings, request, caller.rng))
    items = answer.body.get("items") if answer.code == 200 and isinstance(answer.body, dict) else None
    return event_lines(items or [], serving)


def event_lines(events: Sequence[Thing], serving: Sequence[str] = ()) -> list[str]:
    """Say the last warnings about the controller's pod or volume.

    Kubernetes keeps an event for an hour. What it warned of a pod that is ``serving`` now is over.
    """
    about = [
        each
        for each in events
        if (name := str(_part(each, "involvedObject").get("name"))).startswith((CONTROLLER, STATE_CLAIM))
        and name not in serving
    ]
    about.sort(key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
    lines = [f"{_named(_part(each, 'involvedObject'))}: {_said(each)}" for each in about[-EVENTS_TOLD:]]
    return [*dict.fromkeys(lines)]


def _named(reference: Thing) -> str:
    return f"{str(reference.get('kind')).lower()} {reference.get('name')}"


async def _listed(objects: Objects, source: Source) -> tuple[Thing, ...]:
    caller = objects.caller
    return await caller.carry_out(collect(caller.settings, source, caller.rng))


def _part(thing: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = thing.get(name)
    return found if isinstance(found, dict) else {}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = status.get("conditions")
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get("type") == kind:
            return each
    return {}


def _said(thing: Mapping[str, Any]) -> str:
    """Return reason and message, on one line."""
    parts = [str(thing[name]) for name in ("reason", "message") if thing.get(name)]
    if "exitCode" in thing:
        parts.insert(0, f"exit code {thing['exitCode']}")
    return " ".join(": ".join(parts).split())[:TEXT_CHARS] or "no reason given"


async def missing_secrets(objects: Objects, installation: Installation) -> tuple[str, ...]:
    """Say which Secrets are not there that pods will want, and how each is made.

    Raises:
        CloudError: the cluster refused to say, or did not answer.
    """
    platform = installation.platform
    wanted = {CONTROLLER_SECRETS: HOW_MADE, AUTHORITY_SECRET: HOW_MADE}
    wanted = {} if installation.controller.insecure_plaintext else wanted
    if installation.controller.service_monitor:
        wanted[METRICS_SECRET] = f"Prometheus reads no figures without it; {HOW_MADE}"
    if platform.image_pull_secret:
        wanted[platform.image_pull_secret] = "not needed if all images are public"
    if platform.storage_secret and (installation.uses("s3") or installation.uses("gs")):
        wanted[platform.storage_secret] = "with the object store's credentials"
    if installation.repository_secret:
        wanted.setdefault(installation.repository_secret, "with the credentials of the agents' repository")
    if installation.repository_keys:
        hint = "no agent starts without the keys of its repository"
        wanted[installation.config.agent.repository_keys.secret] = hint
    missing = []
    for name, hint in wanted.items():
        if await objects.get(f"/api/v1/namespaces/{installation.namespace}/secrets/{name}") is None:
            missing.append(f"there is no Secret {name}: {hint}")
    return tuple(missing)
