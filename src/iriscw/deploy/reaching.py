"""The way to the controller of a cluster: a port of this machine that leads there, or the Service's own name.

Theory of operation. From outside of the cluster a port of loopback is opened, and each connection that it takes goes
through the API server to a port of the pod that serves *at that moment* (``pods/NAME/portforward``, what ``kubectl
port-forward`` does). A pod that goes ends its connections, and whoever dials again is led to its successor: a client
follows the controller to another node as it follows a restart. While nobody serves, connections are closed at once;
:attr:`~iriscw.cloud.drivers.kube.forwarding.Listening.last_error` says why.

*Whom the client trusts* does not change with the way: TLS goes from end to end, and the certificate has to hold the
Service's name, not that of the tunnel's near end.

In a pod of the cluster nothing is opened: the Service's name is the address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.api import KubernetesApi, open_api
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.forwarding import Listening, PortStream, listening, port_forward
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import Forbidden, Unavailable
from iriscw.deploy.errors import ClusterRightsMissing, ControllerNotReady
from iriscw.deploy.finding import ControllerService, Serving, find_authority, find_place, find_serving, find_token
from iriscw.deploy.installation import Installation
from iriscw.rpc.tokens import Secret

FIND_S: Final = 15.0
"""Seconds for finding the pod that a new connection goes to; whoever dialled gives up after 10 and dials again."""


@attrs.frozen
class WantedController:
    """Which controller, and what of it is known already."""

    namespace: str = ""
    service: str = ""
    plaintext: bool | None = None
    """Whether its door is one without TLS; None: its pod says so."""
    authority: str = ""
    """Whom to trust, in PEM; empty: whom the cluster's Secret names."""
    token: Secret | None = None
    """Who asks; None: what the cluster's Secret holds."""
    port: int = 0
    """The port of this machine; 0: a free one."""


def wish_of(installation: Installation) -> WantedController:
    """Return what a configuration says of its controller."""
    controller = installation.controller
    return WantedController(installation.namespace, controller.service_name, controller.insecure_plaintext)


@attrs.frozen
class ControllerGate:
    """Where a client dials, whom it trusts there, and by what it is known."""

    place: ControllerService
    address: str
    token: Secret
    authority: str
    """In PEM; empty where there is no TLS."""
    server_name: str
    """What the certificate has to hold; empty where there is no TLS, or where it is the address's host."""
    tunnel: Listening | None
    """None in the cluster itself."""


@asynccontextmanager
async def open_gate(
    access: ClusterAccess,
    wish: WantedController,
    *,
    limits: TransportLimits | None = None,
    settings: KubeSettings | None = None,
) -> AsyncIterator[ControllerGate]:
    """Find a controller, and lead to it for as long as the block lasts.

    Args:
        access: The way to the cluster's API server.
        wish: Which controller.
        limits: Deadlines and sizes of the transport.
        settings: Rates and pauses.

    Raises:
        NoInstallation: there is none.
        SeveralInstallations: there are several, and nothing says which is meant.
        ControllerNotReady: it does not serve now, or lacks a Secret.
        ClusterRightsMissing: the credentials do not allow to find it.
        CloudError: the API does not answer.
        OSError: the port of this machine is taken.
    """
    settings = settings or KubeSettings(cluster="")
    async with open_api(access, limits) as api:
        anywhere = Objects(Caller(api, settings))
        place = await find_place(anywhere, wish.namespace, wish.service, access.namespace)
        caller = Caller(api, attrs.evolve(settings, namespace=place.namespace))
        objects, plaintext = Objects(caller), wish.plaintext and not wish.authority
        if not access.in_pod:
            serving = await find_serving(objects, place)
            if plaintext is None:
                plaintext = serving.plaintext and not wish.authority
                if plaintext:
                    await _check_plaintext(objects, place, serving)
        token = wish.token or await find_token(objects, place)
        authority = "" if plaintext else wish.authority or await find_authority(objects, place)
        scheme = "" if plaintext else "https://"
        if access.in_pod:
            yield ControllerGate(place, f"{scheme}{place.host}:{place.port}", token, authority, "", None)
            return
        async with listening(_Way(api, caller, place).open, wish.port) as here:
            name = "" if plaintext else place.host
            yield ControllerGate(place, f"{scheme}127.0.0.1:{here.port}", token, authority, name, here)


async def _check_plaintext(objects: Objects, place: ControllerService, serving: Serving) -> None:
    """Believe a pod that it has no TLS only where the installation has none: whoever may make pods says what they say.

    Raises:
        ControllerNotReady: there is an authority to trust.
        ClusterRightsMissing, CloudError: whether there is cannot be seen.
    """
    try:
        await find_authority(objects, place)
    except ControllerNotReady:
        return
    text = f"the pod {serving.name} says that it listens without TLS, and the cluster names an authority to trust"
    raise ControllerNotReady(f"{text}: a configuration with insecure_plaintext says that it may")


@attrs.frozen
class _Way:
    """Opens connections to whatever pod serves at the moment."""

    api: KubernetesApi
    caller: Caller
    place: ControllerService

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PortStream]:
        """Open one.

        Raises:
            ControllerNotReady: nobody serves now.
            ClusterRightsMissing: the credentials do not allow it.
            CloudError: the API does not answer, or the pod has just gone.
        """
        serving = await self._found()
        try:
            async with port_forward(self.api, self.caller, serving.name, serving.uid, serving.port) as stream:
                yield stream
        except Forbidden as refused:
            raise ClusterRightsMissing(str(refused)) from None

    async def _found(self) -> Serving:
        with anyio.move_on_after(FIND_S):
            return await find_serving(Objects(self.caller), self.place)
        raise Unavailable(f"the Kubernetes API did not say within {FIND_S:g} s which pod serves")
