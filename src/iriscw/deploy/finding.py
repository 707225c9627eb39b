"""Where the controller of a cluster is, and what a client needs to talk to it: found through the Kubernetes API.

Theory of operation. Three questions, each asked only if nobody answered it before, so that whoever has few rights gets
far with what others told them:

1. *Which installation?* A configuration or a namespace says so; else Services are looked for by their labels in the
   whole cluster, and, where that is not allowed, in the namespace of the kubeconfig's context, or in ``iris``.
2. *Which pod?* One that the Service selects, and that serves. While one controller follows another there may be two:
   then the one that holds the Lease. Only a tunnel asks; inside the cluster the Service's name leads there.
3. *Whom to trust, and who am I?* The authority's certificate and the administrators' token are in the Secrets that an
   installation has (:mod:`iriscw.deploy.names`). Either may come from a file instead.

Nothing here is written. Where the whole of it stands in rights is :data:`RIGHTS`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.drivers.kube.objects import Objects, Thing
from iriscw.cloud.kube.calls import collect
from iriscw.cloud.kube.paths import Source, pods_of, secrets_of
from iriscw.cloud.labels import is_name
from iriscw.cloud.model import Forbidden
from iriscw.deploy.awaiting import pod_lines
from iriscw.deploy.errors import ClusterRightsMissing, ControllerNotReady, NoInstallation, SeveralInstallations
from iriscw.deploy.installation import CLUSTER_DOMAIN
from iriscw.deploy.names import (
    ADMIN_TOKEN_KEY,
    AUTHORITY_KEY,
    AUTHORITY_SECRET,
    CONTROLLER,
    CONTROLLER_SECRETS,
    PORT_NAME,
)
from iriscw.rpc.tokens import Secret

Value = TypeVar("Value")

DEFAULT_NAMESPACE: Final = "iris"

OURS: Final = "app.kubernetes.io/component=controller,app.kubernetes.io/name=iriscw"
"""The labels of the Service, as a selector: those of :func:`iriscw.deploy.names.object_labels`."""

PLAINTEXT: Final = "--insecure-plaintext"
"""Of the controller's command line: it listens without TLS."""

NAMED_MOST: Final = 20
"""Installations that an error lists."""

RIGHTS: Final = (
    ("services", ("list",), "which installation there is; `get` where a configuration names the Service"),
    ("pods", ("get", "list"), "which pod serves"),
    (
        "pods/portforward",
        ("get", "create"),
        "the tunnel: `create` since Kubernetes 1.35, before that `get`",
    ),
    ("leases", ("get",), "which of two pods leads; asked only while there are two"),
    ("secrets", ("get",), f"`{AUTHORITY_SECRET}` (or --ca-file) and `{CONTROLLER_SECRETS}` (or --token-file)"),
)
"""What a user may have to be allowed, all of it in the controller's namespace."""


@attrs.frozen
class ControllerService:
    """One installation's controller, by its Service."""

    namespace: str
    service: str
    port: int
    target: int | str
    """The pod's port: its number, or its name among the container's ports."""
    selector: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def host(self) -> str:
        """The name that pods find it by, and that its certificate holds."""
        return f"{self.service}.{self.namespace}.{CLUSTER_DOMAIN}"

    def __str__(self) -> str:
        """What people call it."""
        return f"{self.service} in {self.namespace}"


@attrs.frozen
class Serving:
    """The pod that serves now."""

    name: str
    uid: str
    port: int
    plaintext: bool
    """Whether its door is one without TLS."""


async def find_place(objects: Objects, namespace: str = "", service: str = "", context: str = "") -> ControllerService:
    """Find the installation that is meant.

    Args:
        objects: The cluster.
        namespace: Where it is; empty: where there is one.
        service: The Service's name; empty: the one with our labels.
        context: The namespace that the kubeconfig names: it decides between several.

    Raises:
        NoInstallation: there is none.
        SeveralInstallations: there are several, and nothing says which is meant.
        ClusterRightsMissing: the credentials do not allow to look.
        CloudError: the API does not answer.
    """
    if namespace and not is_name(namespace):
        raise NoInstallation(f"{namespace!r} is not a valid namespace name")
    if namespace and service:
        path = f"/api/v1/namespaces/{namespace}/services/{service}"
        found = await _allowed(objects.get(path), "get services", namespace)
        if found is None:
            raise NoInstallation(f"there is no Service {service} in the namespace {namespace}: is it installed?")
        return place_of(found)
    if namespace:
        return choose(await _services(objects, namespace), f"the namespace {namespace}", context)
    try:
        return choose(await _listed(objects, Source("/api/v1/services", OURS)), "this cluster", context)
    except Forbidden:
        near = context or DEFAULT_NAMESPACE
        where = f"the namespace {near}, and to look elsewhere is not allowed: --namespace names another one"
        return choose(await _services(objects, near), where, context)


async def _services(objects: Objects, namespace: str) -> Sequence[Thing]:
    source = Source(f"/api/v1/namespaces/{namespace}/services", OURS)
    return await _allowed(_listed(objects, source), "list services", namespace)


def choose(services: Sequence[Thing], where: str, context: str = "") -> ControllerService:
    """Choose among the Services of controllers.

    Raises:
        NoInstallation: there is none.
        SeveralInstallations: there are several, and none or several of them in the context's namespace.
    """
    places = [place_of(each) for each in services]
    near = [each for each in places if each.namespace == context]
    if len(places) == 1:
        return places[0]
    if len(near) == 1:
        return near[0]
    if not places:
        raise NoInstallation(f"there is no controller of iriscw in {where}; `iriscw manifests --apply` installs one")
    names = sorted(str(each) for each in places)
    rest = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    listed = f"{len(names)} controllers: {', '.join(names[:NAMED_MOST])}{rest}"
    raise SeveralInstallations(f"there are {listed}; --namespace or a configuration says which")


def place_of(service: Thing) -> ControllerService:
    """Read a Service.

    Raises:
        NoInstallation: it leads to no pods, or has no port.
    """
    metadata, spec = _part(service, "metadata"), _part(service, "spec")
    name, namespace = str(metadata.get("name")), str(metadata.get("namespace"))
    selector = _part(spec, "selector")
    ports = [each for each in spec.get("ports") or () if isinstance(each, dict) and each.get("port")]
    ours = [each for each in ports if each.get("name") == PORT_NAME] or ports
    if not ours or not selector:
        raise NoInstallation(f"the Service {name} in {namespace} leads nowhere: it has no port, or no selector")
    port = int(ours[0]["port"])
    return ControllerService(namespace, name, port, ours[0].get("targetPort") or port, dict(selector))


async def find_serving(objects: Objects, place: ControllerService) -> Serving:
    """Find the pod that serves now.

    Raises:
        ControllerNotReady: none does.
        ClusterRightsMissing: the credentials do not allow to look.
        CloudError: the API does not answer.
    """
    selected = ",".join(f"{name}={value}" for name, value in sorted(place.selector.items()))
    source = Source(pods_of(place.namespace), selected)
    pods = await _allowed(_listed(objects, source), "list pods", place.namespace)
    serving = [each for each in pods if serves(each)]
    if not serving:
        raise ControllerNotReady(why_not(place, pods))
    leads = serving[0] if len(serving) == 1 else leader(serving, await _holder(objects, place))
    return serving_of(leads, place)


def serves(pod: Thing) -> bool:
    """Tell whether a pod is ready, and is to stay."""
    metadata, status = _part(pod, "metadata"), _part(pod, "status")
    if metadata.get("deletionTimestamp") or status.get("phase") != "Running":
        return False
    conditions = status.get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def leader(serving: Sequence[Thing], holder: str) -> Thing:
    """Return the one of several pods that holds the Lease (``POD_...``); if none does, the youngest: it took over."""
    named = [each for each in serving if each["metadata"]["name"] == holder.partition("_")[0]]
    ages = sorted(named or serving, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))
    return ages[-1]


def serving_of(pod: Thing, place: ControllerService) -> Serving:
    """Read a pod that serves.

    Raises:
        ControllerNotReady: it does not have the port that the Service leads to.
    """
    metadata, containers = _part(pod, "metadata"), _part(pod, "spec").get("containers") or ()
    words = [str(word) for each in containers for name in ("command", "args") for word in each.get(name) or ()]
    named = {each.get("name"): each.get("containerPort") for own in containers for each in own.get("ports") or ()}
    port = place.target if isinstance(place.target, int) else named.get(place.target)
    if not isinstance(port, int):
        raise ControllerNotReady(f"the pod {metadata.get('name')} has no port {place.target!r}, to which {place} leads")
    return Serving(str(metadata.get("name")), str(metadata.get("uid")), port, PLAINTEXT in words)


def why_not(place: ControllerService, pods: Sequence[Thing]) -> str:
    """Say why no pod serves."""
    if not pods:
        return f"{place} has no pod: look at its Deployment, or at its node pool"
    lines = [line for each in pods for line in (pod_lines(each) or [_plainly(each)])]
    return f"{place} does not serve: {'; '.join(lines)}"


def _plainly(pod: Thing) -> str:
    metadata, phase = _part(pod, "metadata"), _part(pod, "status").get("phase", "Unknown")
    told = "is being deleted" if metadata.get("deletionTimestamp") else f"is {phase}, and not ready"
    return f"pod {metadata.get('name')}: it {told}"


async def _holder(objects: Objects, place: ControllerService) -> str:
    """Return who holds the Lease; empty if nobody does, or it is not for us to know."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases/{CONTROLLER}"
    try:
        lease = await objects.get(path)
    except Forbidden:
        return ""
    return str(_part(lease or {}, "spec").get("holderIdentity") or "")


async def find_authority(objects: Objects, place: ControllerService) -> str:
    """Return the certificate of the authority to trust, in PEM.

    Raises:
        ControllerNotReady: it was not sent to the cluster yet.
        ClusterRightsMissing: the credentials do not allow to read it.
        CloudError: the API does not answer.
    """
    data = await _key(objects, place, AUTHORITY_SECRET, AUTHORITY_KEY, "--ca-file names a file with it")
    return data.decode("ascii", "replace")


async def find_token(objects: Objects, place: ControllerService) -> Secret:
    """Return the administrators' token.

    Raises:
        ControllerNotReady: it was not sent to the cluster yet.
        ClusterRightsMissing: the credentials do not allow to read it.
        CloudError: the API does not answer.
    """
    hint = "--token-file names a file with a token"
    data = await _key(objects, place, CONTROLLER_SECRETS, ADMIN_TOKEN_KEY, hint)
    try:
        return Secret(data.decode("ascii", "replace").strip())
    except InvalidArgument:
        text = f"{ADMIN_TOKEN_KEY} in the Secret {CONTROLLER_SECRETS} in {place.namespace} is not a token"
        raise ControllerNotReady(f"{text}: one line of printable ASCII is expected") from None


async def _key(objects: Objects, place: ControllerService, name: str, key: str, hint: str) -> bytes:
    path = f"{secrets_of(place.namespace)}/{name}"
    found = await _allowed(objects.get(path), f"get secrets/{name}", place.namespace, hint)
    data = _part(found or {}, "data").get(key)
    if not isinstance(data, str):
        missing = f"no Secret {name}" if found is None else f"no {key} in the Secret {name}"
        raise ControllerNotReady(
            f"there is {missing} in {place.namespace}: `--apply --secrets-from` sends it; or {hint}"
        )
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ControllerNotReady(f"{key} in the Secret {name} is not base64") from None


async def _allowed(call: Awaitable[Value], right: str, namespace: str, hint: str = "") -> Value:
    """Await a call of the API; say by name which right it lacks.

    Raises:
        ClusterRightsMissing: the credentials do not allow it.
        CloudError: what else it raises.
    """
    try:
        return await call
    except Forbidden as refused:
        way = f"; {hint}" if hint else ""
        raise ClusterRightsMissing(f"it takes the right to {right} in {namespace}{way} ({refused})") from None


async def _listed(objects: Objects, source: Source) -> tuple[Thing, ...]:
    caller = objects.caller
    return await caller.carry_out(collect(caller.settings, source, caller.rng))


def _part(thing: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = thing.get(name)
    return found if isinstance(found, dict) else {}
