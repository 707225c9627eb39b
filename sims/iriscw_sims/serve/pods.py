"""Which container of which pod somebody means, and whether it can be reached: what logs and exec have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iriscw_sims.kube.kinds import nested
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import Route
from iriscw_sims.kube.refusals import Refused, bad_request, forbidden, internal
from iriscw_sims.kube.reviews import REVIEWS
from iriscw_sims.serve.live import Live
from iriscw_sims.serve.streams import PodStreams

Pod = Mapping[str, Any]


@attrs.frozen
class Place:
    """A container, as far as its pod's path names it."""

    live: Live
    streams: PodStreams
    path: str
    """Of the pod."""
    uid: str
    container: str

    def pod(self) -> Pod | None:
        """Return the pod as it is now, ``None`` if it is gone, or another one has its name."""
        found = self.live.read(self.path)
        if found.code != 200 or found.body["metadata"]["uid"] != self.uid:
            return None
        return found.body


def find(
    live: Live, streams: PodStreams, request: Request, route: Route, verb: str, *, whole: bool = False
) -> tuple[Place, Pod]:
    """Return the container that a request is about, and its pod; with ``whole`` it is about the pod, not one of them.

    Raises:
        Refused: 400, no container or one that does not exist is named; 403; 404; 500, its node cannot be reached.
    """
    _check(live, request, route, verb)
    path = f"/api/v1/namespaces/{route.namespace}/pods/{route.name}"
    found = live.read(path)
    if found.code != 200:
        raise Refused(found.body)
    pod = found.body
    container = "" if whole else _container(pod, request.parameter("container"))
    _check_node(live, streams, pod)
    return Place(live, streams, path, pod["metadata"]["uid"], container), pod


def _check(live: Live, request: Request, route: Route, verb: str) -> None:
    asked = {
        "namespace": route.namespace,
        "verb": verb,
        "resource": route.plural,
        "subresource": route.subresource,
        "name": route.name,
    }
    body = {"spec": {"resourceAttributes": asked}}
    answer = live.handle(Request("POST", REVIEWS, body=body, user=request.user)).body
    if not answer["status"]["allowed"]:
        said = (
            f'User "{request.user}" cannot {verb} resource "pods/{route.subresource}" in API group "" in the namespace '
            f'"{route.namespace}"'
        )
        raise forbidden("", "pods", route.name, said)


def _container(pod: Pod, wanted: str) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for each in spec["containers"]]
    if not wanted:
        default = nested(pod, "metadata", "annotations", "kubectl.kubernetes.io/default-container")
        if default in names:
            return str(default)
        if len(names) > 1:
            listed = " ".join(names)
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
        return str(names[0])
    if wanted not in [*names, *(each["name"] for each in spec.get("initContainers") or ())]:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def _check_node(live: Live, streams: PodStreams, pod: Pod) -> None:
    node_name = pod["spec"].get("nodeName")
    if not node_name:
        raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    node = live.read(f"/api/v1/nodes/{node_name}")
    if node.code == 200 and not streams.exec_ready(node.body, live.now):
        raise internal(f"error dialing backend: No agent available for node {node_name}", "InternalError")
