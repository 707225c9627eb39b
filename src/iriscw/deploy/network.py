"""Who may talk to whom, for the clusters that enforce it, and who may read the controller's figures.

Theory of operation. A worker pod is on its node's own network: NCCL and RDMA want that. For a policy it is then the
node, not a pod, so no selector finds it: the controller's door is open to the whole cluster, on its one port, and what
guards it is TLS and a token. The workers' policy binds worker pods that are put on the pods' network, and that of the
node agents likewise: they are on their node's, dial the controller, and listen on no port.
Tasks' pods are bound by none: what a task may reach is not ours to say, as it is not for a task in a worker's pod.

Neither the API server nor an object store has an address that could be written down, so those ports are open to
everywhere. A policy is a second wall, never the first.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from iriscw.cloud.model import LABEL_MANAGED
from iriscw.deploy.controller import selector
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    AGENT,
    APP,
    AUTHORITY_KEY,
    AUTHORITY_SECRET,
    CONTROLLER,
    INSTANCE,
    METRICS_KEY,
    METRICS_SECRET,
    PORT_NAME,
    WORKER,
    object_labels,
)

DNS: Final = 53
HTTPS: Final = 443
HTTP: Final = 80
"""CoreWeave's cache of its object storage, `cwlota.com`, speaks plain HTTP inside of its network."""

API_SERVER: Final = 6443
"""Where API servers listen behind their Service, and a policy sees the port behind it."""

SCRAPE: Final = "30s"

_COMPONENTS: Final = {CONTROLLER: "controller", WORKER: "worker", AGENT: "agent"}


def policies(installation: Installation) -> list[dict[str, Any]]:
    """Write the network policies of controller and workers."""
    port, worker_port = installation.controller.port, installation.config.defaults.bootstrap.worker_port
    names = {"ports": [_port(DNS, "UDP"), _port(DNS)]}
    stores = {"ports": [_port(each) for each in _store_ports(installation)]}
    workers = {"podSelector": {"matchLabels": {LABEL_MANAGED: "true"}}}
    return [
        _policy(
            installation,
            CONTROLLER,
            {"matchLabels": selector()},
            ingress=[{"ports": [_port(port)]}],
            egress=[names, stores, {"ports": [_port(API_SERVER)]}],
        ),
        _policy(
            installation,
            WORKER,
            workers["podSelector"],
            ingress=[
                {"from": [workers]},
                {"from": [{"podSelector": {"matchLabels": selector()}}], "ports": [_port(worker_port)]},
            ],
            egress=[
                {"to": [{"podSelector": {"matchLabels": selector()}}], "ports": [_port(port)]},
                {"to": [workers]},
                names,
                stores,
            ],
        ),
    ]


def _store_ports(installation: Installation) -> list[int]:
    """Return where stores listen: as usual, at CoreWeave's cache, and where the configuration has its own."""
    usual = [HTTPS, *([HTTP] if installation.uses("s3") else [])]
    return list(dict.fromkeys([*usual, *_configured_port(installation)]))


def _configured_port(installation: Installation) -> list[int]:
    """Return where the store listens that the configuration names, if it names one."""
    parts = urlsplit(installation.platform.object_storage_endpoint)
    port = parts.port or {"http": HTTP, "https": HTTPS}.get(parts.scheme)
    return [port] if port else []


def agent_policy(installation: Installation) -> dict[str, Any]:
    """Write the node agents' policy: nobody talks to them over a network, and they to the controller alone, and to the
    store that they are told of, if any: their repository, and what they run around a freeze.
    """
    pods = {"matchLabels": {APP: AGENT}}
    names = {"ports": [_port(DNS, "UDP"), _port(DNS)]}
    door = {"to": [{"podSelector": {"matchLabels": selector()}}], "ports": [_port(installation.controller.port)]}
    configured, scheme = _configured_port(installation), installation.repository_scheme
    others = [HTTPS] if scheme and not (configured and scheme == "s3") else []
    store = [{"ports": [_port(each)]} for each in dict.fromkeys([*configured, *others])]
    return _policy(installation, AGENT, pods, ingress=[], egress=[door, names, *store])


def service_monitor(installation: Installation) -> dict[str, Any]:
    """Write what the Prometheus operator reads: where `/metrics` is, and with which token."""
    plaintext = installation.controller.insecure_plaintext
    authority = {"ca": {"secret": {"name": AUTHORITY_SECRET, "key": AUTHORITY_KEY}}, "serverName": installation.host}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _metadata(installation, CONTROLLER),
        "spec": {
            "selector": {"matchLabels": {INSTANCE: installation.cluster, "app.kubernetes.io/component": "controller"}},
            "endpoints": [
                {
                    "port": PORT_NAME,
                    "path": "/metrics",
                    "interval": SCRAPE,
                    "scheme": "http" if plaintext else "https",
                    "enableHttp2": False,  # on its one port the controller keeps HTTP/2 for gRPC
                    **({} if plaintext else {"tlsConfig": authority}),
                    "authorization": {"credentials": {"name": METRICS_SECRET, "key": METRICS_KEY}},
                }
            ],
        },
    }


def _policy(
    installation: Installation,
    name: str,
    pods: dict[str, Any],
    *,
    ingress: list[dict[str, Any]],
    egress: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(installation, name),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress", "Egress"],
            **({"ingress": ingress} if ingress else {}),  # an empty list would count as a change each time
            "egress": egress,
        },
    }


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": number, "protocol": protocol}


def _metadata(installation: Installation, name: str) -> dict[str, Any]:
    labels = object_labels(installation.cluster, _COMPONENTS[name])
    return {"name": name, "namespace": installation.namespace, "labels": labels}
