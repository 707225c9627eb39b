"""``iriscw.connect_kubernetes()``: a client of a controller in Kubernetes, found and reached through the API there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.client.client import Client, Connecting
from iriscw.cloud.drivers.kube.access import find_access
from iriscw.config.load import load_config
from iriscw.config.model import ClusterConfig
from iriscw.deploy.installation import installation_of
from iriscw.deploy.reaching import ControllerGate, WantedController, open_gate, wish_of
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.keeping import KeptContext
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import Secret


def connect_kubernetes(
    config: str | os.PathLike[str] | ClusterConfig | None = None,
    *,
    namespace: str = "",
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    token: str | Secret | None = None,
) -> Connecting:
    """Return a client of a controller in a Kubernetes cluster; the connection ends with the block.

    The controller is found by its Service, and reached through the API server's port-forward, without kubectl; the
    client follows it to another pod. In a pod of the cluster itself its Service's name is dialled. Certificates are
    verified either way, by the authority of the installation's own Secret.

    Args:
        config: the cluster's configuration, or its file: it says which installation.
        namespace: where the installation is, if no configuration says so. Neither: there must be just one.
        kubeconfig: the way to the cluster's API. None: what the configuration says, else ``KUBECONFIG``, else the
            service account of this pod.
        context: which context of the kubeconfig; None: its current one.
        token: proves who asks; None takes the administrators', from the installation's Secret.

    Raises:
        NoInstallation: there is no controller there.
        SeveralInstallations: there are several, and nothing says which is meant.
        ControllerNotReady: it does not serve now, or lacks its Secrets.
        ClusterRightsMissing: the credentials may not do what it takes; the text names the right.
        ConfigError: the configuration cannot be read.
        UsageError: there is no way to the cluster's API, or it is not a configuration of a cluster there.
        OperationError: the cluster's API does not answer.
        NeedsAsyncio: this is not a task of an asyncio loop.
    """
    if config is not None and namespace:
        raise InvalidArgument("namespace: the configuration says it")
    given = Secret(token) if isinstance(token, str) else token
    return Connecting(
        KeptContext(_connected(config, namespace, kubeconfig, context, given), "iriscw connection to Kubernetes")
    )


@asynccontextmanager
async def _connected(
    config: str | os.PathLike[str] | ClusterConfig | None,
    namespace: str,
    kubeconfig: str | os.PathLike[str] | None,
    context: str | None,
    token: Secret | None,
) -> AsyncIterator[Client]:
    wish, named = await anyio.to_thread.run_sync(read_wish, config, namespace)
    access = await find_access(Path(kubeconfig) if kubeconfig is not None else named, context)
    async with open_gate(access, attrs.evolve(wish, token=token)) as gate, client_of(gate) as client:
        yield client


def read_wish(
    config: str | os.PathLike[str] | ClusterConfig | None, namespace: str = ""
) -> tuple[WantedController, Path | None]:
    """Return which controller is meant, and the kubeconfig that its configuration names. Blocks on the disk.

    Raises:
        ConfigError: the configuration cannot be read.
        NotInstallable: it is not one of a controller on Kubernetes.
    """
    if config is None:
        return WantedController(namespace), None
    read = config if isinstance(config, ClusterConfig) else load_config(Path(config))
    installation = installation_of(read)
    named = read.platform.coreweave.kubeconfig_path if read.platform.coreweave is not None else ""
    return wish_of(installation), Path(named).expanduser() if named else None


@asynccontextmanager
async def client_of(gate: ControllerGate) -> AsyncIterator[Client]:
    """Yield a client that goes through a gate.

    Raises:
        InvalidTls: the authority is not a certificate.
    """
    tls = client_tls(authority=gate.authority) if gate.authority else None
    # Without TLS the network is trusted by whoever installed it so; through a tunnel none is crossed.
    channel = RpcChannel(
        gate.address, gate.token, tls=tls, server_name=gate.server_name, insecure_plaintext=not gate.authority
    )
    async with channel:
        yield Client(channel)
