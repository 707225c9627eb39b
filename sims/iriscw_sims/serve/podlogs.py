"""``GET pods/NAME/log``: what a container has said, and, with ``follow``, what it says until it ends."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from aiohttp import web

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.clock import micro, parsed, written
from iriscw_sims.kube.kinds import nested
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import Cause, bad_request, invalid, invalid_value
from iriscw_sims.serve.answers import send_bytes, write
from iriscw_sims.serve.pods import Place, Pod
from iriscw_sims.serve.scripted import state_of
from iriscw_sims.serve.streams import LogLine

TEXT = "text/plain"
IDLE = 60 * SECOND
"""ns after which one who follows a log looks again, if no bell rang: time has to be looked at now and then."""


@attrs.frozen
class LogOptions:
    """What of a log is wanted. ``tail`` and ``limit_bytes`` are ``None`` for all of it."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit_bytes: int | None = None
    since: int = 0
    """In ns since 1970."""


def read_options(request: Request, now: int) -> LogOptions:
    """Read the options.

    Raises:
        Refused: 400, a number is none; 422, it is out of range.
    """
    causes: list[Cause] = []
    tail = _number(request, "tailLines", 0, causes)
    limit = _number(request, "limitBytes", 1, causes)
    seconds = _number(request, "sinceSeconds", 1, causes)
    since = now - seconds * SECOND if seconds else 0
    text = request.parameter("sinceTime")
    if text:
        moment = parsed(text)
        if moment is None:
            raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse')
        since = moment
    if causes:
        raise invalid("", "PodLogOptions", "", causes)
    follow, previous, timestamps = map(request.flag, ("follow", "previous", "timestamps"))
    return LogOptions(follow, previous, timestamps, tail, limit, since)


def _number(request: Request, name: str, least: int, causes: list[Cause]) -> int | None:
    text = request.parameter(name)
    if not text:
        return None
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 18:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    value = int(text)
    if value < least:
        causes.append(invalid_value(name, value, f"must be greater than or equal to {least}"))
    return value


def instance_of(pod: Pod, container: str, *, previous: bool) -> Pod:
    """Return a pod whose container is the instance that is asked for: the last one if it waits for its next start.

    Raises:
        Refused: 400, there is none yet.
    """
    name, status = pod["metadata"]["name"], state_of(pod, container)
    state, last = status.get("state") or {}, status.get("lastState") or {}
    if previous and not last.get("terminated"):
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if not previous and (state.get("running") or state.get("terminated")):
        return pod
    if not last.get("terminated"):
        why = nested(state, "waiting", "reason") or "ContainerCreating"
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {why}')
    statuses = {
        field: [{**each, "state": last} if each.get("name") == container else each for each in pod["status"][field]]
        for field in ("containerStatuses", "initContainerStatuses")
        if field in pod["status"]
    }
    return {**pod, "status": {**pod["status"], **statuses}}


def shown(lines: Sequence[LogLine], *, timestamps: bool) -> bytes:
    """Return lines as they are sent."""
    if not timestamps:
        return b"".join(line.text + b"\n" for line in lines)
    return b"".join(f"{_moment(line.at)} ".encode() + line.text + b"\n" for line in lines)


def _moment(at: int) -> str:
    text = written(at)
    return micro(f"{text[:-1]}.{at % SECOND // 1000:06d}Z") or text


async def send_log(
    http: web.BaseRequest, place: Place, pod: Pod, options: LogOptions, write_s: float
) -> web.StreamResponse:
    """Answer with a container's log.

    Raises:
        Refused: 400, it has not begun.
    """
    instance = instance_of(pod, place.container, previous=options.previous)
    lines = place.streams.log(instance, place.container, place.live.now)
    wanted = [line for line in lines if line.at >= options.since]
    if options.tail is not None:
        wanted = wanted[len(wanted) - min(options.tail, len(wanted)) :]
    text = shown(wanted, timestamps=options.timestamps)[: options.limit_bytes]
    if not options.follow or instance is not pod:
        return await send_bytes(http, 200, text, write_s, content_type=TEXT)
    answer = web.StreamResponse(headers={"Content-Type": TEXT, "Cache-Control": "no-cache, private"})
    await answer.prepare(http)
    left = None if options.limit_bytes is None else options.limit_bytes - len(text)
    if text:
        await write(http, answer, text, write_s)
    first = lines[-1].number + 1 if lines else 0
    restarts = state_of(pod, place.container).get("restartCount", 0)
    await _follow(http, answer, _Tail(place, options, restarts, first, left), write_s)
    return answer


@attrs.define
class _Tail:
    """The end of a log: of which instance, the number of its next line, and how many bytes may still be told."""

    place: Place
    options: LogOptions
    restarts: int
    first: int
    left: int | None

    def take(self, pod: Pod) -> bytes:
        """Return what was said since."""
        now = self.place.live.timeline.catch_up()
        lines = self.place.streams.log(pod, self.place.container, now, self.first)
        if lines:
            self.first = lines[-1].number + 1
        text = shown(lines, timestamps=self.options.timestamps)
        if self.left is not None:
            text = text[: self.left]
            self.left -= len(text)
        return text


async def _follow(http: web.BaseRequest, answer: web.StreamResponse, tail: _Tail, write_s: float) -> None:
    place, live = tail.place, tail.place.live
    while tail.left is None or tail.left > 0:
        bell = live.bells.of("", "pods")
        pod = place.pod()
        if pod is None or state_of(pod, place.container).get("restartCount", 0) != tail.restarts:
            return
        text = tail.take(pod)
        if text:
            await write(http, answer, text, write_s)
        if not nested(state_of(pod, place.container), "state", "running"):
            return
        if live.closed:
            return
        following = place.streams.next_line(pod, place.container, live.now)
        await live.wait(bell, IDLE if following is None else min(IDLE, max(0, following - live.now)))
