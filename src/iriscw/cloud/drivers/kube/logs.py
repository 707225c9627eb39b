"""What a container says: the ``log`` subresource, as bytes that come.

Theory of operation. As with commands, the log is opened first and the pod looked at then: if it has the uid behind the
opening, the log is its own. Nothing is read ahead of whoever iterates but a socket's buffer. A log that is followed
may be silent for as long as its container is; what breaks meanwhile is found by TCP's own probes.

The kubelet keeps 10 MiB of a container's log by default, and the log of one earlier instance. It is gone with the pod.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import attrs

from iriscw.cloud.drivers.kube.api import KubernetesApi
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.places import BEGIN_S, PodPlace
from iriscw.cloud.drivers.kube.streams import AnswerBody
from iriscw.cloud.kube.manifests import CONTAINER
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from iriscw.cloud.model import Gone, InvalidSpec, Unavailable

RIGHTS = "get on pods/log, and get on pods"

NO_PREVIOUS = "previous terminated container"
"""How a kubelet says, with 400, that there was no earlier instance."""


@attrs.frozen(kw_only=True)
class LogWish:
    """What of a log is wanted.

    Attributes:
        follow: Go on until the container ends.
        tail: Only so many lines of what there is; None for all that the kubelet keeps.
        since_s: Only what was said in the last seconds, at least one.
        previous: The log of the container's last instance.
        limit_bytes: End after so many bytes.

    Raises:
        InvalidSpec: a number is out of range.
    """

    follow: bool = False
    tail: int | None = None
    since_s: int | None = None
    previous: bool = False
    limit_bytes: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.tail is not None and self.tail < 0:
            raise InvalidSpec(f"a log cannot be asked for {self.tail} lines")
        for name in ("since_s", "limit_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSpec(f"{name} of a log is at least 1, not {value}")

    def request(self, pod: str, container: str) -> ApiRequest:
        """Ask for it."""
        numbers = {"tailLines": self.tail, "sinceSeconds": self.since_s, "limitBytes": self.limit_bytes}
        words = {"follow": self.follow, "previous": self.previous}
        query = (
            ("container", container),
            *((name, str(value)) for name, value in numbers.items() if value is not None),
            *((name, "true") for name, value in words.items() if value),
        )
        return ApiRequest("GET", f"{pod}/log", query)


async def read_log(
    api: KubernetesApi, caller: Caller, pod: str, uid: str, wish: LogWish, container: str = CONTAINER
) -> AsyncGenerator[bytes, None]:
    """Yield a container's log as it comes, in pieces of some 64 KiB at most.

    Args:
        api: The API server.
        caller: The rate of requests, and calls.
        pod: The pod's name.
        uid: Its uid.
        wish: What of the log.
        container: Which of its containers.

    Raises:
        Gone: the pod does not exist any more, or its container had no earlier instance.
        InvalidSpec: it has no such container.
        Forbidden: the credentials do not allow it.
        Unavailable: the log could not be opened, or broke off.
    """
    place = PodPlace(caller, pod, uid)
    request = wish.request(place.path, container)

    async def opened(stack: AsyncExitStack) -> AnswerBody:
        await caller.turn()
        answer = await stack.enter_async_context(api.body(request))
        if isinstance(answer, ApiResponse):
            await place.refused(answer, RIGHTS, ended=True)
        await place.check(ended=True)
        return answer

    async with AsyncExitStack() as stack:
        try:
            body = await place.reached(stack, opened, BEGIN_S)
        except InvalidSpec as refused:
            if wish.previous and NO_PREVIOUS in str(refused):
                raise Gone(f"the container {container!r} of {pod!r} had no earlier instance") from None
            raise
        left = float("inf") if wish.limit_bytes is None else wish.limit_bytes
        try:
            while left > 0 and (chunk := await body.more()):
                yield chunk[: int(min(left, len(chunk)))]
                left -= len(chunk)
        except ApiUnreachable as broken:
            raise Unavailable(f"the log broke off: {broken}") from None
