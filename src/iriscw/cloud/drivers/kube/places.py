"""One pod of one uid, for whoever reaches into it: whether it is still there, and what a refusal means."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, NoReturn, TypeVar

import attrs

from iriscw.cloud.drivers.kube.calls import Caller, rest
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.kube.ownership import look
from iriscw.cloud.kube.paths import pods_of
from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.labels import is_name
from iriscw.cloud.model import Forbidden, Gone, InvalidSpec, Throttled, Unavailable
from iriscw.runtime.vocabulary import SECOND

T = TypeVar("T")

OVER = ("Succeeded", "Failed")

WAITING = "is waiting to start"
"""How a kubelet says, with 400, that a container is not there yet."""

BEGIN_S = 45.0
"""Seconds for which a refused beginning is tried again: CoreWeave's nodes need 18 to 30 s until they can be reached."""


class NotYet(Exception):
    """Nothing was begun, for a reason that may pass. It never leaves this folder. ``least`` is a pause in ns."""

    def __init__(self, text: str, least: int = 0) -> None:
        super().__init__(text)
        self.least = least


@attrs.frozen
class PodPlace:
    """One incarnation of a pod.

    Args:
        caller: Carries requests out.
        pod: Its name.
        uid: Its uid.
    """

    caller: Caller
    pod: str
    uid: str

    @property
    def path(self) -> str:
        """Where it is in the API.

        Raises:
            Gone: no pod can have this name.
        """
        if not is_name(self.pod):
            raise Gone(f"there is no pod {self.pod!r}")
        return f"{pods_of(self.caller.settings.namespace)}/{self.pod}"

    def is_ours(self, thing: Mapping[str, Any] | None) -> bool:
        """Whether an object is this incarnation."""
        return thing is not None and thing["metadata"].get("uid") == self.uid

    def is_decided(self, thing: Mapping[str, Any] | None) -> bool:
        """Whether there is no more to wait for: it runs, has ended, or is gone."""
        return not self.is_ours(thing) or _phase(thing) in ("Running", *OVER)

    async def check(self, *, ended: bool = False) -> None:
        """Look whether it is still there.

        Args:
            ended: Whether one that has ended will do.

        Raises:
            Gone: it does not exist any more, or has ended.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        caller = self.caller
        self.judge(await caller.carry_out(look(caller.settings, self.path, caller.rng)), ended=ended)

    def judge(self, thing: Mapping[str, Any] | None, *, ended: bool = False) -> None:
        """Say whether it is still there, by what was read under its name.

        Raises:
            Gone: it does not exist any more, or has ended.
        """
        if not self.is_ours(thing):
            raise Gone(f"there is no pod {self.pod!r} with the uid {self.uid}")
        if _phase(thing) in OVER and not ended:
            status = (thing or {}).get("status") or {}
            raise Gone(f"the pod {self.pod!r} has ended: {status.get('reason') or _phase(thing)}")

    async def refused(self, answer: ApiResponse, rights: str, *, ended: bool = False) -> NoReturn:
        """Say what a refusal of something inside the pod means. Most are about a pod that is not there any more.

        Args:
            answer: The refusal.
            rights: What it takes. Servers ask for ``create`` beside ``get`` since 1.35, and do not say so.
            ended: Whether a pod that has ended will do.

        Raises:
            Gone: it does not exist any more, or has ended.
            InvalidSpec: it has no such container.
            Forbidden: the credentials do not allow it.
            NotYet: it may be answered differently by and by.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        status = answered(answer)
        error = judged(status)
        if isinstance(error, Forbidden):
            raise Forbidden(f"{error} (it takes {rights})")
        await self.check(ended=ended)
        if status.passing or status.code == 404 or WAITING in status.text:  # a kubelet may not have heard of the pod
            raise NotYet(str(error), status.retry_after or 0)
        raise narrowed(error, InvalidSpec)

    async def reached(
        self, stack: AsyncExitStack, attempt: Callable[[AsyncExitStack], Awaitable[T]], patience_s: float
    ) -> T:
        """Get into the pod; trouble that may pass is waited out, with growing pauses.

        Args:
            stack: What is opened is closed with it.
            attempt: Tries it once, and opens things on the stack that it is given. Nothing may have been begun if it
                fails.
            patience_s: For how long to try again.

        Raises:
            Unavailable: the trouble did not pass in time.
        """
        settings, failures = self.caller.settings, 0
        until = time.monotonic() + patience_s
        while True:
            try:
                async with AsyncExitStack() as opened:
                    result = await attempt(opened)
                    await stack.enter_async_context(opened.pop_all())
                    return result
            except (NotYet, ApiUnreachable, Throttled, Unavailable) as found:
                trouble: Exception = found
            failures += 1
            least = trouble.least if isinstance(trouble, NotYet) else getattr(trouble, "retry_after", 0)
            drawn = growing(failures, settings.pause_least, settings.pause_most, self.caller.rng)
            pause = max(least, drawn)
            if time.monotonic() + pause / SECOND > until:
                raise Unavailable(f"the pod {self.pod!r} cannot be reached; nothing was begun: {trouble}") from None
            await rest(pause)


def _phase(thing: Mapping[str, Any] | None) -> str:
    status = (thing or {}).get("status")
    return str(status.get("phase", "")) if isinstance(status, dict) else ""
