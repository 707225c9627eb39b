"""A Docker engine of this machine, spoken to over its socket. Each answer becomes a value or an error of the cloud's.

Whoever may write to that socket is root on the machine: the engine checks nothing else, and neither do we.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import aiohttp

from iriscw._errors import is_stray
from iriscw.cloud.docker.containers import MAX_SAID_CHARS, pulled_as, said_wrong
from iriscw.cloud.model import CloudError, Conflict, Forbidden, Gone, InvalidSpec, Unavailable

CALL_S: Final = 30.0
PULL_S: Final = 1800.0
"""As long as a pod may take that fetches an image."""

SILENT_S: Final = 300.0
"""How long an engine may say nothing while it fetches: layers are told of several times a second."""

MAX_ANSWER_BYTES: Final = 16 << 20
MAX_LINE_BYTES: Final = 1 << 20
KEPT_LINES: Final = 100

_ERRORS: Final[Mapping[int, type[CloudError]]] = {
    400: InvalidSpec,
    401: Forbidden,
    403: Forbidden,
    404: Gone,
    409: Conflict,
}


class DockerEngine:
    """See the module. Use :func:`open_engine`.

    Args:
        http: Carries the calls.
        socket: Where the engine is; for words.
    """

    def __init__(self, http: aiohttp.ClientSession, socket: str) -> None:
        self._http, self._socket = http, socket

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None, more_s: float = 0.0
    ) -> Any:
        """Make a call, and give what was answered; None if that is nothing.

        Args:
            method: Of HTTP.
            path: Without a version: the engine's own.
            query: Parameters.
            body: An object.
            more_s: What the engine itself is asked to wait.

        Raises:
            Gone: there is no such thing.
            Conflict: there is one already, or something is under way.
            InvalidSpec: the engine does not take that.
            Forbidden: this user may not use the engine.
            Unavailable: no answer; it may have been done.
        """
        timeout = aiohttp.ClientTimeout(total=CALL_S + more_s)
        with _told(self._socket):
            async with self._http.request(
                method, f"http://docker{path}", params=query, json=body, timeout=timeout
            ) as answer:
                data = await answer.content.read(MAX_ANSWER_BYTES)
                while data and len(data) < MAX_ANSWER_BYTES and (more := await answer.content.read(MAX_ANSWER_BYTES)):
                    data += more
        if answer.status >= 400:
            raise _error(answer.status, data)
        if len(data) >= MAX_ANSWER_BYTES:
            raise Unavailable(f"the Docker engine answered {path} with more than {MAX_ANSWER_BYTES} bytes")
        try:
            return json.loads(data) if data else None
        except ValueError as error:
            raise Unavailable(f"the Docker engine answered {path} with something that is not JSON") from error

    async def pull(self, image: str) -> None:
        """Fetch an image. Cancelling stops it.

        Raises:
            InvalidSpec: there is no such image, or it is somebody else's.
            Forbidden, Unavailable: see :meth:`call`; the registry may be the one that does not answer.
        """
        timeout = aiohttp.ClientTimeout(total=PULL_S, sock_read=SILENT_S)
        lines: list[bytes] = []
        url = "http://docker/images/create"
        with _told(self._socket):
            async with self._http.post(url, params=pulled_as(image), timeout=timeout) as answer:
                if answer.status >= 400:
                    error = _error(answer.status, await answer.content.read(MAX_LINE_BYTES))
                    raise InvalidSpec(str(error)) if isinstance(error, Gone) else error
                async for line in answer.content:
                    lines = [*lines[1 - KEPT_LINES :], line]
        if wrong := said_wrong(lines):
            raise Unavailable(f"the image {image} was not fetched: {wrong}")

    @asynccontextmanager
    async def events(self, filters: str) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        """Yield what happens to containers from now on, for as long as the block lasts.

        Raises:
            Forbidden, Unavailable: see :meth:`call`; from the iteration, too, which never ends otherwise.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_S)
        with _told(self._socket):
            async with self._http.get("http://docker/events", params={"filters": filters}, timeout=timeout) as answer:
                if answer.status >= 400:
                    raise _error(answer.status, await answer.content.read(MAX_LINE_BYTES))
                yield self._events(answer.content)

    async def _events(self, content: aiohttp.StreamReader) -> AsyncIterator[Mapping[str, Any]]:
        with _told(self._socket):
            async for line in content:
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise Unavailable("the Docker engine tells of events in something that is not JSON") from error
                if isinstance(event, Mapping):
                    yield event
        raise Unavailable("the Docker engine tells of no more events")


@asynccontextmanager
async def open_engine(socket: str) -> AsyncIterator[DockerEngine]:
    """Reach the engine, and make sure that it is one.

    Raises:
        Forbidden: this user may not use it.
        Unavailable: nobody answers there.
    """
    connector = aiohttp.UnixConnector(path=socket, limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=MAX_LINE_BYTES) as http:
        engine = DockerEngine(http, socket)
        await engine.call("GET", "/version")
        yield engine


@contextmanager
def _told(socket: str) -> Iterator[None]:
    """Raise what the transport says as an error of the cloud's."""
    where = f"the Docker engine at {socket}"
    try:
        yield
    except (PermissionError, aiohttp.ClientConnectorError) as error:
        if isinstance(error, PermissionError) or isinstance(error.os_error, PermissionError):
            raise Forbidden(f"{where}: this user may not write to its socket") from error
        raise Unavailable(f"{where}: {error}") from error
    except TimeoutError as error:
        raise Unavailable(f"{where} did not answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unavailable(f"{where}: {error}") from error
    except asyncio.CancelledError as error:
        if not is_stray(error):
            raise
        raise Unavailable(f"{where}: the request was given up inside of the HTTP client") from error


def _error(status: int, data: bytes) -> CloudError:
    """Say what a refusal means; one that is not in the engine's form is somebody else's, and means nothing."""
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    if isinstance(said, dict) and isinstance(said.get("message"), str):
        return _ERRORS.get(status, Unavailable)(f"the Docker engine says {status}: {said['message'][:MAX_SAID_CHARS]}")
    text = data[:MAX_SAID_CHARS].decode(errors="replace")
    return Unavailable(f"{status} is not the Docker engine's answer: it begins {text!r}")
