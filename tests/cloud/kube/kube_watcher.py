"""A shell around watches, in virtual time: a server whose objects change at random, and a network that fails.

It keeps the promises of ``exchange.py`` and no others: an item may come twice, a connection may break behind any
prefix, or go silent; answers to what was given up may come late.
"""

import heapq
from random import Random

import attrs
from kube_shell import OURS, POOLS, SECOND, Server, refusal

from iriscw.cloud.kube.exchange import (
    CloseWatch,
    Fail,
    Fetched,
    FetchFailed,
    FetchObjects,
    ItemChanged,
    Listed,
    OpenWatch,
    Show,
    Vanished,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.settings import KubeSettings
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.watches import Watch

MILLISECOND = SECOND // 1000
POLL = 2 * SECOND
FAULTS = ("lost", "later", "trouble", "breaks", "silent", "ends", "repeats", "error", "odd", "compact", "late")
"""What may go wrong. lost: a request is not answered; later, trouble: 429, 5xx; breaks, silent, ends: what a watch
does; repeats: an item comes twice; error: an ``ERROR`` event; odd: an item that nobody knows; compact: the server
forgets its past; late: answers come after those of later requests."""

SETTINGS = KubeSettings(
    cluster="test",
    page_limit=2,
    watch_timeout=40 * SECOND,
    watch_margin=5 * SECOND,
    watch_pause_most=10 * SECOND,
    patience=3600 * SECOND,
)


@attrs.define(eq=False)
class Connection:
    """One open watch."""

    token: object
    watch: Watch | None
    silent: bool = False
    last: list = attrs.field(factory=list)


class Watcher:
    """Runs one watch machine against a server. ``rates`` says how likely each fault is."""

    def __init__(self, machine, server=None, *, seed=0, rates=None):
        self.machine = machine
        self.server = server or Server()
        self.rng = Random(seed)
        self.rates = dict(rates or {})
        self.now = 0
        self.shown = []
        self.failed = None
        self.opened = []
        """(time, kind, request): each list and watch as it began."""
        self.connections = {}
        self._wall = self.server.now
        self._queue = []
        self._serial = 0

    def chance(self, fault):
        """Tell whether a fault strikes now."""
        return self.rng.random() < self.rates.get(fault, 0)

    def after(self, delay, function, *args):
        """Do something later."""
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay, self._serial, function, args))

    def start(self):
        """Start the machine."""
        self.do(self.machine.start(self.now, self.rng))
        self.after(POLL, self.poll)

    def run(self, span):
        """Let ``span`` ns pass."""
        end = self.now + span
        while self._queue and self._queue[0][0] <= end:
            self.now, _, function, args = heapq.heappop(self._queue)
            self.server.now = self._wall + self.now
            function(*args)
        self.now = end
        self.server.now = self._wall + self.now

    def tell(self, event):
        """Tell the machine."""
        self.do(self.machine.on(event, self.now, self.rng))

    def do(self, actions):
        """Carry out what the machine wants."""
        for action in actions:
            match action:
                case FetchObjects(token=token, request=request):
                    if "continue" not in dict(request.query):
                        self.opened.append((self.now, "list", request))
                    self.fetch(token, request)
                case OpenWatch(token=token, request=request):
                    self.opened.append((self.now, "watch", request))
                    self.open(token, request)
                case CloseWatch(token=token):
                    self.connections.pop(token, None)
                case WakeAfter(token=token, after=after):
                    assert after > 0
                    self.after(after, self.tell, Woken(token))
                case Show() | Listed() | ItemChanged() | Vanished():
                    assert self.failed is None
                    self.shown.append(action)
                case Fail(error=error):
                    self.failed = error

    def fetch(self, token, request):
        """Let a request be answered, or not."""
        if self.chance("lost"):
            self.after(3 * SECOND, self.tell, FetchFailed(token))
            return
        if self.chance("later"):
            response = refusal(429, "TooManyRequests", retry_after=self.rng.randrange(5) * SECOND)
        elif self.chance("trouble"):
            response = refusal(self.rng.choice((500, 502, 503, 504)))
        else:
            response = self.server.handle(request)
        delay = self.rng.randrange(20 * SECOND if self.chance("late") else 200 * MILLISECOND)
        self.after(delay, self.tell, Fetched(token, response))

    def open(self, token, request):
        """Open a watch, or let it fail."""
        if self.chance("lost"):
            self.after(SECOND, self.tell, WatchEnded(token, True))
            return
        connection = Connection(token, None)
        self.connections[token] = connection
        if self.chance("silent"):
            connection.silent = True
            return
        watch = self.server.store.watch(Request("GET", request.path, request.query), self.server.now)
        if isinstance(watch, Watch):
            connection.watch = watch
            self.after(10 * MILLISECOND, self.serve, connection)
        else:
            self.after(MILLISECOND, self.deliver, connection, {"type": "ERROR", "object": watch.body})
            self.after(2 * MILLISECOND, self.end, connection, False)

    def poll(self):
        """Let every watch tell what it has."""
        if self.chance("compact"):
            self.server.store.compact(self.server.store.revision)
        for connection in list(self.connections.values()):
            self.serve(connection)
        self.after(POLL, self.poll)

    def serve(self, connection):
        """Deliver what a watch has, unless it fails."""
        if connection.silent or connection.watch is None or connection.watch.closed:
            return
        events = connection.watch.take(self.server.now)
        if self.chance("silent"):
            connection.silent = True
            return
        for event in events:
            if self.chance("breaks"):
                connection.silent = True
                self.after(MILLISECOND, self.end, connection, True)
                return
            self.deliver(connection, event)
            connection.last = [*connection.last, event][-3:]
            if self.chance("repeats"):
                self.deliver(connection, self.rng.choice(connection.last))
        self.trouble(connection)
        if connection.watch.closed and not connection.silent:
            self.end(connection, False)

    def trouble(self, connection):
        """Let a watch be told what no object is."""
        if self.chance("odd"):
            odd = ({"type": "GOSSIP", "object": {}}, {"type": "ADDED", "object": {"metadata": {"name": 1}}}, 7, None)
            self.deliver(connection, self.rng.choice(odd))
        if self.chance("error"):
            code, reason = self.rng.choice(((410, "Expired"), (410, "Gone"), (429, "TooManyRequests"), (500, "")))
            status = refusal(code, reason, retryAfterSeconds=self.rng.randrange(3)).body
            self.deliver(connection, {"type": "ERROR", "object": status})
            connection.silent = True
            self.after(MILLISECOND, self.end, connection, False)
        elif self.chance("ends"):
            connection.silent = True
            self.after(MILLISECOND, self.end, connection, False)

    def deliver(self, connection, event):
        """Let an event arrive, if the connection is still wanted."""
        if connection.token in self.connections:
            self.tell(WatchItem(connection.token, event))

    def end(self, connection, error):
        """Let a connection end."""
        if self.connections.pop(connection.token, None) is not None:
            self.tell(WatchEnded(connection.token, error))


class Life:
    """Random changes to pools: made, changed, relabelled out of sight and back, deleted, made anew."""

    def __init__(self, watcher, names=4):
        self.watcher = watcher
        self.server = watcher.server
        self.rng = Random(watcher.rng.random())
        self.names = [f"p{number}" for number in range(names)]
        self._serial = 0

    def begin(self, span):
        """Let changes come for ``span`` ns."""
        at = 0
        while at < span:
            at += self.rng.randrange(1, 8 * SECOND)
            self.watcher.after(at, self.change)

    def change(self):
        """Change one pool."""
        name, store = self.rng.choice(self.names), self.server
        self._serial += 1
        present = {item["metadata"]["name"]: item for item in store.objects(POOLS)}
        if name not in present:
            body = {
                "apiVersion": "compute.coreweave.com/v1alpha1",
                "kind": "NodePool",
                "metadata": {"name": name, "labels": OURS},
                "spec": {"instanceType": "x", "targetNodes": 1},
            }
            store.do("POST", POOLS, body)
            return
        what = self.rng.randrange(4)
        if what == 0:
            store.do("DELETE", f"{POOLS}/{name}")
        elif what == 1:
            seen = present[name]["metadata"].get("labels", {}).get("iris-managed") == "true"
            store.do("PATCH", f"{POOLS}/{name}", {"metadata": {"labels": {"iris-managed": "no" if seen else "true"}}})
        else:
            status = {"status": {"currentNodes": self._serial}}
            store.do("PATCH", f"{POOLS}/{name}/status", status)

    def truth(self):
        """Return (uid, resourceVersion) of each selected pool, by name."""
        return {
            item["metadata"]["name"]: (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
            for item in self.server.objects(POOLS)
            if item["metadata"].get("labels", {}).get("iris-managed") == "true"
        }
