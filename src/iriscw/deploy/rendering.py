"""From a configuration to the objects of an installation, in the order in which they are applied.

Each object comes after those that it names: a Role before its binding, an account before the pod that uses it. The
controller's node pool comes as early as it can: its machine boots while the rest is applied. The same configuration
gives the same objects, byte for byte once written (:mod:`iriscw.deploy.writing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw.deploy import access, agent, cluster, controller, network
from iriscw.deploy.installation import Installation


@attrs.frozen
class RenderedObject:
    """One object.

    Attributes:
        body: As the API takes it.
        why: What it is for, in one sentence.
    """

    body: Mapping[str, Any]
    why: str

    @property
    def name(self) -> str:
        """Kind and name, as people say it: ``Deployment/iris-controller``."""
        return f"{self.body['kind']}/{self.body['metadata']['name']}"


def render(installation: Installation) -> tuple[RenderedObject, ...]:
    """Return all objects of an installation, in the order in which they are applied.

    Raises:
        NotInstallable: the configuration is larger than Kubernetes keeps.
    """
    return tuple(RenderedObject(body, why) for body, why in _objects(installation))


def _objects(installation: Installation) -> Iterator[tuple[Mapping[str, Any], str]]:
    yield cluster.namespace(installation), "All of it lives here; workers use their node's network, hence privileged."
    if installation.controller.instance_type:
        text = "The controller's own node: always there, so it costs money always. CoreWeave's agents go there, too."
        yield cluster.node_pool(installation), text
    for body in cluster.priority_classes(installation):
        yield body, "Who makes way for whom when a node is full."
    for body in access.accounts(installation):
        yield body, "Who its pods are to the API server; a token is mounted where a pod says so, and only there."
    for body in access.cluster_access(installation):
        yield body, "What the controller may do in the whole cluster: its node pools, and a look at nodes."
    for body in access.reviews_access(installation):
        yield body, "How it tells which node's agent dials: the API server looks at the token, and nothing is stored."
    for body in access.namespaced_access(installation):
        yield body, "What the controller may do in its own namespace."
    for body in access.worker_access(installation):
        yield body, "What workers may do there: make the pods of their tasks."
    for body in access.events_access(installation):
        yield body, "Events about node pools, which are in no namespace, are in this one: it may write them, not read."
    text = "The configuration, every default spelled out; controller and workers read it from /etc/iris/config.yaml."
    yield controller.config_map(installation), text
    text = "The controller's journal, logs and results: they outlive its pod and its node."
    yield controller.claim(installation), text
    if installation.controller.network_policy:
        for body in network.policies(installation):
            yield body, "Who may talk to whom, where the cluster enforces it."
    if installation.config.agent.enabled:
        yield from _agent(installation)
    yield controller.service(installation), "The name by which workers and clients find the controller."
    yield controller.disruption_budget(installation), "Nobody evicts the controller to tidy up nodes."
    yield controller.deployment(installation), "The controller."
    if installation.controller.service_monitor:
        yield network.service_monitor(installation), "Where Prometheus finds the controller's figures."


def _agent(installation: Installation) -> Iterator[tuple[Mapping[str, Any], str]]:
    if installation.config.agent.runtime_class:
        yield (
            agent.runtime_class(installation),
            "Pods of this class can be frozen: their runtime asks the node's agent.",
        )
    if installation.controller.network_policy:
        text = "Nobody talks to the node agents over a network, and they to nobody but the controller and their store."
        yield network.agent_policy(installation), text
    text = "The node agents, privileged: they freeze and thaw processes. docs/agent.md has each right with its reason."
    yield agent.daemon_set(installation), text
