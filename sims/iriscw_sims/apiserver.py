"""The API server as the controller reaches it: the store, behind a network and a server that fail in honest ways.

Theory of operation. A request leaves, lands some time later, and is answered some time after that. It may be refused
before it does anything (throttled, or the server is in trouble), get lost before it lands, land and lose its answer,
or land long after its sender has given it up, after a crash of the sender too. What landed is the truth. What goes
wrong for minutes, and for everybody, is in :mod:`iriscw_sims.outages`.

A watch is a connection: what the store tells comes in order and late. It breaks behind an unknown prefix of what was
under way; it goes silent without anybody being told (half open), until the client's own probes find that out; and the
server forgets its past (compaction), so that whoever comes back too late is told 410 and has to list again. Nothing is
ever missing from the middle, and nothing comes twice on one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.simulation import EPOCH
from iriscw_sims.api_checks import ConflictChecks, OwnershipChecks
from iriscw_sims.channel import Channel
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.kube.store import Store
from iriscw_sims.kube.watches import BOOKMARK_BEFORE_END, Watch
from iriscw_sims.outages import Outages

if TYPE_CHECKING:
    from iriscw_sims.world import World

REQUEST_TIMEOUT = 10 * SECOND
"""After this whoever waits for an answer hears that none comes."""

LATEST_LANDING = 30 * SECOND
"""How long after that a request may still land."""

KEEPALIVE = 40 * SECOND
"""After this the probes of the transport find a connection that has gone silent: two of them, 20 s apart."""

CONTROLLER = "system:serviceaccount:iris:iris-controller"
"""Who the controller is to the API server."""

Answered = Callable[[ApiResponse | None], None]
"""Takes an answer; None: there is none, and nobody can say whether the request had its effect."""


class WatchConnection:
    """One open watch, seen from the client: ``item`` takes each event, ``ended`` whether it ended with an error.

    ``item`` says False when it has no room: nothing more comes until :meth:`pump`.
    """

    def __init__(
        self, server: ApiServer, item: Callable[[Mapping[str, Any]], bool], ended: Callable[[bool], None]
    ) -> None:
        self.server = server
        self.ended = ended
        self.open = True
        self.channel = Channel(server.world.simulation, server.draw_latency, self._deliver)
        self._item = item
        self._watch: Watch | None = None
        self._over = False
        """Whether the server has ended it, and all that it told is on its way."""

    def begin(self, watch: Watch) -> None:
        """The server has taken the request."""
        self._watch = watch
        self.take()

    def take(self) -> None:
        """Send what the store tells, unless the connection breaks over it."""
        if self._watch is None or self.channel.closed or self._over:
            return
        world = self.server.world
        for event in self._watch.take(self.server.wall):
            if world.chance("watch breaks"):
                self.breaks()
                return
            if world.chance("watch goes silent"):
                self.goes_silent()
                return
            if world.chance("watch stays silent"):
                self.stays_silent()
                return
            if world.chance("watch loses its place"):
                self.server.forget()
                self.breaks()
                return
            self.channel.put(event)
        if self._watch.closed:
            self._over = True
            self.channel.put(None)

    def _deliver(self, event: Mapping[str, Any] | None) -> bool:
        if event is None:
            self._end(error=False)
            return True
        return self._item(event)

    def pump(self) -> None:
        """There is room again."""
        self.channel.pump()

    def breaks(self) -> None:
        """The connection breaks: what is under way is lost, and both ends hear of it some time."""
        self._leave()
        self.server.after(self.server.draw_latency(), self._end, True)

    def goes_silent(self) -> None:
        """Nothing comes any more, and nobody is told until the transport's probes fail."""
        self._leave()
        self.server.after(KEEPALIVE, self._end, True)

    def stays_silent(self) -> None:
        """Nothing comes any more, and something in between answers the probes: only the client's own clock tells."""
        self._leave()
        driver = self.server.world.pace.driver
        self.server.deaf_until = self.server.world.simulation.now + driver.watch_timeout + driver.watch_margin
        self.server.world.disturbed(driver.watch_timeout + driver.watch_margin)

    def refuse(self, response: Response) -> None:
        """The server does not take the request: its Status comes as the one event there is."""
        self.channel.put({"type": "ERROR", "object": response.body})
        self.channel.put(None)

    def _leave(self) -> None:
        self.channel.close()
        if self._watch is not None:
            self._watch.close()
        self.server.forget_connection(self)

    def close(self) -> None:
        """The client hangs up."""
        self.open = False
        self._leave()

    def _end(self, error: bool) -> None:
        if self.open:
            self.close()
            self.ended(error)


class ApiServer:
    """The network in front of the store."""

    def __init__(self, world: World, store: Store) -> None:
        self.world = world
        self.store = store
        self.rng = world.stream("api")
        self.outages = Outages(world)
        self.checks = ConflictChecks(world)
        self._ownership = OwnershipChecks(world)
        self.in_flight = 0
        """Requests that would change something, have not landed and still may."""
        self.connections: list[WatchConnection] = []
        self.deaf_until = 0
        """Until when a client may not know that its watch is silent."""
        self._due = 0
        """When a client that keeps its limit to the last request could send the next one."""

    @property
    def wall(self) -> int:
        """The server's clock, ns since 1970."""
        return EPOCH + self.world.simulation.now

    def after(self, delay: int, function: Callable[..., Any], *args: Any) -> None:
        """Do something later."""
        self.world.simulation.call_after(delay, function, *args)

    def draw_latency(self) -> int:
        """Draw how long one item takes on its way, ns."""
        return self.rng.randrange(MILLISECOND, 500 * MILLISECOND)

    # Requests

    def send(self, request: ApiRequest, answered: Answered) -> None:
        """Send a request; ``answered`` hears of it once."""
        chance = self.world.chance
        self._count()
        self.checks.sends(request)
        latency = self.rng.randrange(10 * MILLISECOND, SECOND)
        if chance("crash behind a request"):
            self.after(self.rng.randrange(latency), self.world.crash, 1 + self.rng.randrange(20))
        if self.outages.away:
            self.after(REQUEST_TIMEOUT if self.outages.hangs else latency, answered, None)
        elif chance("api throttled"):
            wait_s = self.rng.randrange(3)
            status = status_failure(429, "TooManyRequests", "the server has received too many requests")
            self.after(latency, answered, ApiResponse(429, status, wait_s * SECOND))
        elif chance("api in trouble"):
            code, reason = self.rng.choice(((500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")))
            self.after(latency, answered, ApiResponse(code, status_failure(code, reason, "etcdserver: leader changed")))
        elif chance("api lost"):
            self.after(self._silence(), answered, None)
        elif chance("api landed in silence"):
            self._fly(latency, request, None)
            self.after(self._silence(), answered, None)
        elif chance("api landed late"):
            self._fly(REQUEST_TIMEOUT + self.rng.randrange(LATEST_LANDING), request, None)
            self.after(REQUEST_TIMEOUT, answered, None)
        else:
            self._fly(latency, request, answered)

    def _count(self) -> None:
        """INV-F9: a driver sends no more than its limit allows, whatever it wants."""
        now, limit = self.world.simulation.now, self.world.pace.driver
        interval = round(SECOND / limit.qps)
        self._due = max(self._due, now) + interval
        if self._due - now > 2 * limit.burst * interval:  # one process may follow another at once
            self.world.violate("F9", f"more than {limit.burst} requests at once, then {limit.qps} a second")

    def _silence(self) -> int:
        """Draw how long it takes until somebody knows that no answer comes: a broken connection tells at once."""
        return REQUEST_TIMEOUT if self.rng.random() < 0.5 else self.rng.randrange(10 * MILLISECOND, SECOND)

    def _fly(self, latency: int, request: ApiRequest, answered: Answered | None) -> None:
        self.in_flight += request.method != "GET"
        self.after(latency, self._landed, request, answered)

    def _landed(self, request: ApiRequest, answered: Answered | None) -> None:
        self.in_flight -= request.method != "GET"
        judge = self._ownership.lands(request)
        response = self._handle(request)
        judge(response)
        self.world.simulation.note("landed", request.method, request.path, response.code)
        if answered is not None:
            self.checks.answered(request, response.code)
            back = self.rng.randrange(10 * MILLISECOND, SECOND)
            self.after(back, answered, ApiResponse(response.code, response.body, _retry_after(response)))
        if request.method != "GET":
            self.world.cloud.changed()

    def _handle(self, request: ApiRequest) -> Response:
        refused = self.outages.refuses(request) or self.world.cloud.refuses(request)
        return refused if refused is not None else self.store.handle(_as_sent(request), self.wall)

    # Watches

    def watch(
        self, request: ApiRequest, item: Callable[[Mapping[str, Any]], bool], ended: Callable[[bool], None]
    ) -> WatchConnection:
        """Open a watch; the connection may fail like a request, and then ``ended`` hears of an error."""
        connection = WatchConnection(self, item, ended)
        self.connections.append(connection)
        chance = self.world.chance
        if self.outages.away and not self.outages.hangs:
            connection.breaks()
        elif self.outages.away or chance("api lost"):
            connection.goes_silent()
        elif chance("api in trouble"):
            connection.breaks()
        else:
            self.after(self.draw_latency(), self._watched, request, connection)
        return connection

    def _watched(self, request: ApiRequest, connection: WatchConnection) -> None:
        if not connection.open:
            return
        refused = self.outages.refuses(request)
        if refused is not None:
            connection.refuse(refused)
            return
        if self.world.chance("api throttled"):
            connection.refuse(Response(429, status_failure(429, "TooManyRequests", "too many requests")))
            return
        watch = self.store.watch(_as_sent(request), self.wall)
        if isinstance(watch, Watch):
            connection.begin(watch)
            # The server ends a watch at its time, a bookmark before, also when nothing happens.
            lasts = int(dict(request.query).get("timeoutSeconds", 0)) * SECOND
            for delay in (lasts - BOOKMARK_BEFORE_END, lasts) if lasts else ():
                self.after(max(0, delay), connection.take)
        else:
            connection.refuse(watch)

    def forget_connection(self, connection: WatchConnection) -> None:
        """A connection is over."""
        if connection in self.connections:
            self.connections.remove(connection)

    def forget(self) -> None:
        """Forget the past, as etcd does every few minutes: a watch that comes back too late is told so."""
        self.store.compact(self.store.revision)

    def tell(self) -> None:
        """Tell the watches what has changed."""
        for connection in list(self.connections):
            connection.take()

    def hang_up(self) -> None:
        """The controller is down: nobody watches, and the next one begins with its whole allowance."""
        self._due = 0
        for connection in list(self.connections):
            connection.close()

    def heal(self) -> None:
        """Serve everybody, and tell what is not told yet.

        Who listens to a dead connection has to find that out for himself, even now.
        """
        self.outages.heal()
        self.world.disturbed(max(0, self.deaf_until - self.world.simulation.now))
        for connection in list(self.connections):
            connection.take()


def _as_sent(request: ApiRequest) -> Request:
    return Request(
        request.method,
        request.path,
        request.query,
        request.body,
        request.content_type,
        user=CONTROLLER,
    )


def _retry_after(response: Response) -> int | None:
    for name, value in response.headers:
        if name == "Retry-After":
            return int(value) * SECOND
    return None
