"""The simulated object storage behind a port of the loopback: for clients that speak S3 over HTTP.

Theory of operation. A request is read as a whole, becomes an operation of the storage, and goes on its way through the
front (:mod:`iriscw_sims.objects.front`) in real time, with all faults that the front's surroundings bring. What the
front says of it is told over HTTP: an answer as S3 would say it; an answer cut short, with the length that the whole
has, and a broken connection behind its bytes; or a broken connection and nothing else.

So one simulation serves both: programs that use the port in virtual time, and a driver's own client in real time.
"""

from __future__ import annotations

import ssl

from iriscw_sims.objects.messages import Answer
from iriscw_sims.objects.serve.answers import HttpAnswer, elsewhere, refused, to_http
from iriscw_sims.objects.serve.http import HASTY, HttpServer
from iriscw_sims.objects.serve.requests import HttpRequest, read_request
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.settings import FrontSettings
from iriscw_sims.objects.storage import ObjectStorage


class S3Server(HttpServer):
    """A simulated S3, served over HTTP. An async context manager.

    Args:
        storage: What is served.
        surroundings: Time, chance and a trace.
        settings: How long everything takes.
        domain: Below which hosts' names begin with a bucket.
        region: For which requests have to be signed; empty: any.
        tls: With which certificate; None: plain HTTP.
        locks: Whether objects are locked when they are written: then their bodies need a digest of their own.

    Raises:
        OSError: (on entering) there is no port to be had.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        surroundings: HostSurroundings | None = None,
        settings: FrontSettings = HASTY,
        *,
        domain: str = "cwobject.com",
        region: str = "",
        tls: ssl.SSLContext | None = None,
        locks: bool = False,
    ) -> None:
        super().__init__(storage, surroundings, settings, tls=tls)
        self._domain, self._region, self._locks = domain, region, locks

    async def answered(self, asked: HttpRequest) -> HttpAnswer | None:
        """Return the answer to a request; None: its connection breaks."""
        request, region = read_request(asked, self._domain, locks=self._locks)
        if self._region and region not in {"", self._region}:
            return elsewhere(request, self._region)
        outcome = await self.send(request)
        if outcome.answer is None:
            return None
        return to_http(request, outcome.answer, quoted="encoding-type=url" in asked.query)

    def refused(self, answer: Answer) -> HttpAnswer:
        """Say no to what could not be read."""
        return refused(answer)
