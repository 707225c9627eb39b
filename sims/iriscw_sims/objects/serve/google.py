"""The simulated object storage behind a port of the loopback: for clients that speak Google's JSON interface.

Theory of operation. As for S3 (:mod:`iriscw_sims.objects.serve.server`): a request becomes an operation of the storage,
goes through the front with all its faults, and is told as Google would say it. Two things can go wrong here besides: a
chunk of a resumable upload may be taken in part only, and may be spoilt on its way. Who asks is known by a token, which
this server gives out as well (:mod:`iriscw_sims.objects.serve.google_tokens`).
"""

from __future__ import annotations

import ssl

import attrs

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import Answer, ResumableChunk
from iriscw_sims.objects.resumable import MULTIPLE_BYTES
from iriscw_sims.objects.serve.answers import HttpAnswer
from iriscw_sims.objects.serve.google_answers import refused, to_http
from iriscw_sims.objects.serve.google_requests import read_request
from iriscw_sims.objects.serve.google_tokens import TOKEN_PATHS, TokenOffice
from iriscw_sims.objects.serve.http import HASTY, HttpServer
from iriscw_sims.objects.serve.requests import HttpRequest
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.settings import FrontSettings
from iriscw_sims.objects.storage import ObjectStorage

GOOGLES_FAULT_POINTS: tuple[tuple[str, int], ...] = (
    ("object request lost", 60),
    ("object request slow", 200),
    ("object upload torn", 100),
    ("object throttled", 200),
    ("object storage in trouble", 100),
    ("object key denied", 30),
    ("object lands late", 60),
    ("object done and in trouble", 60),
    ("object reply lost", 100),
    ("object download torn", 150),
    ("object chunk cut short", 200),
)
"""Names and highest rates, in thousandths, of what may go wrong at Google."""


class GoogleServer(HttpServer):
    """A simulated Google Cloud Storage, served over HTTP. An async context manager.

    Args:
        storage: What is served; by :data:`~iriscw_sims.objects.rules.GOOGLE`'s rules.
        surroundings: Time, chance and a trace.
        settings: How long everything takes.
        anonymous: The key of those who show no token: an emulator's clients do not. Empty: they are refused.
        tls: With which certificate; None: plain HTTP.

    Raises:
        OSError: (on entering) there is no port to be had.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        surroundings: HostSurroundings | None = None,
        settings: FrontSettings = HASTY,
        *,
        anonymous: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(storage, surroundings, settings, tls=tls)
        self.office = TokenOffice()
        self._anonymous = anonymous

    async def answered(self, asked: HttpRequest) -> HttpAnswer | None:
        """Return the answer to a request; None: its connection breaks."""
        if asked.path in TOKEN_PATHS:
            return self.office.answer(asked, self.surroundings.now)
        request = read_request(asked, self.office.key_of(asked, self.surroundings.now) or self._anonymous)
        if isinstance(request.operation, ResumableChunk):
            request = attrs.evolve(request, operation=self._spoilt(request.operation))
        outcome = await self.send(request)
        return None if outcome.answer is None else to_http(request, outcome.answer, asked)

    def refused(self, answer: Answer) -> HttpAnswer:
        """Say no to what could not be read."""
        return refused(answer)

    def _spoilt(self, chunk: ResumableChunk) -> ResumableChunk:
        """Let a chunk meet with what may happen to it, or not."""
        if chunk.first is None:
            return chunk
        if len(chunk.body) > MULTIPLE_BYTES and self.surroundings.chance("object chunk cut short"):
            return attrs.evolve(chunk, body=chunk.body.part(0, MULTIPLE_BYTES))
        if len(chunk.body) and self.surroundings.chance("object chunk spoilt"):
            last = chunk.body.rendered()[-1] ^ 1
            whole = Content.joined((chunk.body.part(0, len(chunk.body) - 1), Content(bytes([last]))))
            return attrs.evolve(chunk, body=whole, md5="")
        return chunk
