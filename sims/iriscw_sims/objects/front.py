"""The object storage as a client reaches it: a network and a server that fail in honest ways, in virtual time.

Theory of operation. A request leaves; its body, if it has one, takes its share of the way up; when all of it is there
the request *lands*: the storage does it, or refuses, at once. The answer comes back, and its body takes its share of
the way down. What can go wrong on this way:

* Before anything happened: the request is lost, the connection breaks behind a drawn prefix of the body (the storage
  keeps nothing of it), the server throttles (by its rate, or by chance) or is in trouble.
* Around the landing: it happens late, when the sender has long given up and may be dead; another write is in its way
  (409); it happens and the server answers 500 all the same, or the answer is lost; a completion answers 200, fails, and
  says so only in the body.
* Behind it: the connection breaks behind a drawn prefix of the answer's body.

A broken connection is noticed at once or, half of the time, only when the sender's patience ends. The sender hears
exactly one outcome, unless it has abandoned the exchange: then nothing, and what was sent in full lands all the same.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import attrs

from iriscw_sims.objects.link import Link, Transfer
from iriscw_sims.objects.messages import READS, Answer, CompleteMultipartUpload, Request
from iriscw_sims.objects.refusals import refusal, told
from iriscw_sims.objects.settings import FAITHFUL, FrontSettings
from iriscw_sims.objects.storage import ObjectStorage
from iriscw_sims.objects.surroundings import Surroundings
from iriscw_sims.objects.throttle import Throttle

TROUBLES = ("InternalError", "ServiceUnavailable")
"""Codes of a server that is in trouble before it has done anything."""


@attrs.frozen
class Outcome:
    """What a sender hears of its request."""

    answer: Answer | None
    """None: none came, and nobody can say whether the request had or will have its effect. With its body as far as
    that came."""
    whole: bool = True
    """Whether all of the answer's body came."""


@attrs.frozen
class FrontStatistics:
    """What has happened at the front."""

    sent: int
    landed: int
    in_flight: int
    """Requests that would change something, were sent in full, have not landed and still may."""
    uploads: int
    """Bodies on their way up."""
    downloads: int


Answered: TypeAlias = Callable[[Outcome], None]


class Stage(enum.Enum):
    """How far an exchange is."""

    SENDING = "sending"
    """The body is on its way up."""
    FLYING = "flying"
    """All of it has been sent; nobody can take it back."""
    ANSWERING = "answering"
    OVER = "over"


class Exchange:
    """One request and its answer."""

    def __init__(self, front: ObjectFront, request: Request, answered: Answered) -> None:
        self.request = request
        self.stage = Stage.FLYING
        self.answer: Answer | None = None
        """What the server said, once its body is on its way."""
        self.transfer: Transfer | None = None
        self._front = front
        self._answered: Answered | None = answered

    @property
    def abandoned(self) -> bool:
        """Whether nobody listens any more."""
        return self._answered is None

    def abandon(self) -> None:
        """The sender is dead, or has no more use for an answer: it hears nothing, and its connection is gone."""
        self._answered = None
        if self.stage in (Stage.SENDING, Stage.ANSWERING):
            self._front.hang_up(self)

    def end(self, outcome: Outcome) -> None:
        """Tell the sender, unless it has heard already or does not listen."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(outcome)


class ObjectFront:
    """The way to one storage.

    Args:
        storage: what requests land on.
        surroundings: time, chance and a trace; its chances are :data:`~iriscw_sims.objects.fault_points.FAULT_POINTS`.
        settings: how long everything takes.
    """

    def __init__(self, storage: ObjectStorage, surroundings: Surroundings, settings: FrontSettings = FAITHFUL) -> None:
        self.storage = storage
        self.settings = settings
        self.up = Link(surroundings, settings.up_bytes_per_s, settings.stream_bytes_per_s)
        self.down = Link(surroundings, settings.down_bytes_per_s, settings.stream_bytes_per_s)
        self._world = surroundings
        self._rng = surroundings.rng("object storage")
        self._throttle = Throttle(settings.requests_per_s, settings.burst)
        self._out_until = 0
        self._sent = self._landed = self._in_flight = 0
        self._connected: dict[Exchange, None] = {}
        """Exchanges whose bodies are under way."""

    def statistics(self) -> FrontStatistics:
        """Return what has happened so far."""
        return FrontStatistics(self._sent, self._landed, self._in_flight, self.up.active, self.down.active)

    # Access keys and outages

    def add_key(self, access_key: str) -> None:
        """Make an access key; it works after a while."""
        self.storage.add_key(access_key, self._world.now + self.settings.propagation.draw(self._rng))

    @property
    def out(self) -> bool:
        """Whether there is an outage now."""
        return self._world.now < self._out_until

    def outage(self, span: int) -> None:
        """Let nobody reach the storage for ``span`` ns; bodies under way break. What flies already lands."""
        self._out_until = max(self._out_until, self._world.now + span)
        self._world.note("object storage out of reach", span)
        for exchange in list(self._connected):
            self._break(exchange)

    def heal(self) -> None:
        """End an outage."""
        self._out_until = self._world.now

    # Up

    def send(self, request: Request, answered: Answered) -> Exchange:
        """Send a request; ``answered`` hears of it once, later."""
        self._sent += 1
        exchange = Exchange(self, request, answered)
        chance, settings, operation = self._world.chance, self.settings, request.operation
        latency = settings.latency.draw(self._rng)
        if self.out or chance("object request lost"):
            self._fall_silent(exchange, Outcome(None))
            return exchange
        if chance("object request slow"):
            latency += settings.latency_slow.draw(self._rng)
        if chance("object key denied"):
            self.storage.deny_key(request.access_key, self._world.now + settings.denial.draw(self._rng))
        if chance("object throttled"):
            self._world.after(latency, self._answer, exchange, told(operation, refusal("SlowDown")))
        elif chance("object storage in trouble"):
            answer = told(operation, refusal(self._rng.choice(TROUBLES)))
            self._world.after(latency, self._answer, exchange, answer)
        elif len(request.body):
            exchange.stage = Stage.SENDING
            self._world.after(latency, self._upload, exchange)
        else:
            self._fly(exchange, latency)
        return exchange

    def _upload(self, exchange: Exchange) -> None:
        if exchange.stage is not Stage.SENDING:
            return  # abandoned
        length = len(exchange.request.body)
        self._connected[exchange] = None
        if self.out:
            self._break(exchange)
        elif self._world.chance("object upload torn"):
            exchange.transfer = self.up.start(self._rng.randrange(length), partial(self._break, exchange))
        else:
            exchange.transfer = self.up.start(length, partial(self._uploaded, exchange))

    def _uploaded(self, exchange: Exchange) -> None:
        del self._connected[exchange]
        self._fly(exchange, 0)

    def _fly(self, exchange: Exchange, latency: int) -> None:
        exchange.stage = Stage.FLYING
        self._in_flight += not isinstance(exchange.request.operation, READS)
        if self._world.chance("object lands late"):
            patience = self.settings.patience
            self._world.after(patience, exchange.end, Outcome(None))
            latency = patience + self.settings.landing_late.draw(self._rng)
        self._world.after(latency, self._land, exchange)

    def _land(self, exchange: Exchange) -> None:
        self._landed += 1
        self._in_flight -= not isinstance(exchange.request.operation, READS)
        answer = self._done(exchange.request)
        if exchange.abandoned:
            exchange.stage = Stage.OVER
        elif self.out or self._world.chance("object reply lost"):
            self._fall_silent(exchange, Outcome(None))
        else:
            exchange.stage = Stage.ANSWERING
            self._world.after(self.settings.latency.draw(self._rng), self._download, exchange, answer)

    def _done(self, request: Request) -> Answer:
        """Let a request have its effect, or not, and give what the server says of it."""
        chance, operation = self._world.chance, request.operation
        if not self._throttle.admit(self._world.now):
            return told(operation, refusal("SlowDown"))
        if request.conditional and chance("object write conflict"):
            return refusal("ConditionalRequestConflict")
        if isinstance(operation, CompleteMultipartUpload) and chance("object completion fails under 200"):
            return attrs.evolve(refusal("InternalError"), status=200)
        answer = self.storage.handle(request, self._world.now)
        self._world.note("landed", type(operation).__name__, getattr(operation, "key", ""), answer.status)
        if chance("object done and in trouble"):
            return told(operation, refusal("InternalError"))
        return answer

    # Down

    def _download(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.stage is not Stage.ANSWERING:
            return  # abandoned
        length = len(answer.body)
        if not length:
            self._answer(exchange, answer)
            return
        exchange.answer = answer
        self._connected[exchange] = None
        if self.out:
            self._break(exchange)
        elif self._world.chance("object download torn"):
            exchange.transfer = self.down.start(self._rng.randrange(length), partial(self._break, exchange))
        else:
            exchange.transfer = self.down.start(length, partial(self._downloaded, exchange, answer))

    def _downloaded(self, exchange: Exchange, answer: Answer) -> None:
        del self._connected[exchange]
        self._answer(exchange, answer)

    def _answer(self, exchange: Exchange, answer: Answer) -> None:
        exchange.stage = Stage.OVER
        exchange.end(Outcome(answer))

    # The end of a connection

    def hang_up(self, exchange: Exchange) -> int:
        """End an exchange's connection, and give how much of the body under way was moved, in bytes."""
        link = self.up if exchange.stage is Stage.SENDING else self.down
        moved = link.cancel(exchange.transfer) if exchange.transfer is not None else 0
        self._connected.pop(exchange, None)
        exchange.stage = Stage.OVER
        return moved

    def _break(self, exchange: Exchange) -> None:
        moved = self.hang_up(exchange)
        outcome = Outcome(None)
        if exchange.answer is not None:
            body = exchange.answer.body.part(0, moved)
            outcome = Outcome(attrs.evolve(exchange.answer, body=body), whole=False)
        self._fall_silent(exchange, outcome)

    def _fall_silent(self, exchange: Exchange, outcome: Outcome) -> None:
        """Let the sender find out: at once, if the connection is reset; else when its patience ends."""
        exchange.stage = Stage.OVER
        silent = self._rng.random() < 0.5
        self._world.after(
            self.settings.patience if silent else self.settings.latency.draw(self._rng), exchange.end, outcome
        )
