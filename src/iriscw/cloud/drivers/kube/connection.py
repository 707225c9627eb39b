"""Commands inside a pod: :class:`~iriscw.cloud.ports.Connection` by the ``exec`` subresource.

Theory of operation. ``exec`` names a pod, not a uid, and pods of one name follow each other. So the pod is looked at
*behind* the opened connection and *before* the command is sent: if it has the uid then, the connection leads to it, for
whoever knew the uid had seen it made before, and a pod that went does not come back.

On a fresh node the way to the kubelet takes up to half a minute to stand; until then ``exec`` is refused with 500, and
with version 5 the refusal comes as the command's Status. Nothing was run then, so it is tried again, for
45 s (:data:`~iriscw.cloud.drivers.kube.places.BEGIN_S`) or the caller's time.

*What is guaranteed*: a command that is over (its time, its reader gone, its connection broken, this process killed) is
killed with all that it started: at once where the connection still stands or is seen to break, else when its lease has
run out. See :mod:`iriscw.cloud.drivers.kube.attendant` for the one exception.
"""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack

import anyio
import attrs

from iriscw.cloud.drivers.attended import AttendedConnection
from iriscw.cloud.drivers.kube.api import KubernetesApi
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.exec import (
    Attended,
    exec_request,
    new_mark,
)
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.drivers.kube.places import PodPlace
from iriscw.cloud.drivers.kube.streams import V4, V5
from iriscw.cloud.kube.manifests import CONTAINER
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.model import Throttled, Unavailable

RIGHTS = "get and create on pods/exec, and get on pods"

ENDLESS_S = 1e9


@attrs.frozen
class KubeConnection(AttendedConnection):
    """Runs commands in one pod; see :class:`~iriscw.cloud.ports.Connection`.

    Args:
        api: The API server.
        caller: The rate of requests, and calls.
        pod: The pod's name.
        uid: Its uid.
        container: Which of its containers.
        interpreter: How Python is started there.
        protocols: The versions of the protocol that are understood, the best first.
    """

    api: KubernetesApi
    caller: Caller
    pod: str
    uid: str
    container: str = CONTAINER
    interpreter: tuple[str, ...] = ("python3",)
    protocols: tuple[str, ...] = (V5, V4)

    @property
    def place(self) -> PodPlace:
        """Where the pod is in the API."""
        return PodPlace(self.caller, self.pod, self.uid)

    async def _check(self) -> None:
        with contextlib.suppress(Throttled, Unavailable):  # it is asked again by and by
            await self.place.check()

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the pod runs, and its node lets commands in."""
        with anyio.fail_after(timeout_s):
            self.place.judge(await Objects(self.caller).wait(self.place.path, self.place.is_decided, ENDLESS_S))
            async with self._attended(ENDLESS_S):
                pass

    async def _reached(self, stack: AsyncExitStack, patience_s: float) -> Attended:
        return await self.place.reached(stack, self._try, patience_s)

    async def _try(self, stack: AsyncExitStack) -> Attended:
        mark = new_mark()
        request = exec_request(self.place.path, self.container, self.interpreter, mark)
        await self.caller.turn()
        opened = await stack.enter_async_context(self.api.channels(request, self.protocols))
        if isinstance(opened, ApiResponse):
            await self.place.refused(opened, RIGHTS)
        attended = Attended(opened, mark, self.interpreter[0])
        await attended.ready()
        await self.place.check()
        return attended
