"""The shell around the pure driver for Kubernetes, in virtual time: what is a few lines of async code in production.

Theory of operation. The driver decides which requests are made and what their answers mean
(:mod:`iriscw.cloud.kube`). This shell carries them to the simulated API server at the rate that the driver allows
itself, keeps the deadline of each call, and lets go of everything when the actor gives an operation up or its process
is gone. What is on its way lands all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from iriscw.cloud.effects import (
    CreateNodePool,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    ListNodePools,
    ListPods,
    WatchNodePools,
)
from iriscw.cloud.kube import pods, pools
from iriscw.cloud.kube.exchange import (
    Action,
    CloseWatch,
    Event,
    Fail,
    Fetched,
    FetchFailed,
    FetchObjects,
    OpenWatch,
    Show,
    Token,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.joining import Join
from iriscw.cloud.kube.limits import RateLimit
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable, Call, Pause
from iriscw.cloud.kube.parsing import pod_of
from iriscw.cloud.kube.paths import NODE_POOLS, NODES, pods_of, selector
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.kube.watching import PodWatch, PoolWatch
from iriscw.cloud.model import CloudError, Unavailable, WatchEvent
from iriscw.testing.simulation import SimOperation, Simulation
from iriscw_sims.api_checks import OwnershipChecks, WatchChecks
from iriscw_sims.apiserver import ApiServer, WatchConnection
from iriscw_sims.kube.messages import Request
from iriscw_sims.telling import Telling

if TYPE_CHECKING:
    from iriscw_sims.world import World


_SERVED = ApiResponse(200, None)
"""Stands for any answer that is no refusal: what is in it need not be kept."""


class KubeDriver:
    """Carries out what actors ask of the cloud."""

    def __init__(self, world: World, server: ApiServer, settings: KubeSettings) -> None:
        self.simulation: Simulation = world.simulation
        self.checks = world.fleet_checks
        self.server = server
        self.settings = settings
        self.call_timeout = world.pace.call_timeout
        self.rng = world.stream("driver")
        self.sessions: list[Session] = []
        self.ownership = OwnershipChecks(world)
        self.told = world.told_checks
        self._limit = RateLimit(settings.qps, settings.burst)

    def request(self, operation: SimOperation) -> None:
        """Carry out a call."""
        Conversation(self, operation, call_of(operation.effect, self.settings, self.rng))

    def watch(self, operation: SimOperation) -> None:
        """Carry out a watch."""
        if operation.system_restarted:
            return  # the process crashed in the step in which it asked
        session = Session(self, operation)
        self.sessions.append(session)
        session.begin()

    def send(self, request: ApiRequest, answered: Callable[[ApiResponse | None], None]) -> None:
        """Send a request when its turn comes."""
        self._queue(self._limit, request, answered)

    def _queue(self, limit: RateLimit, request: ApiRequest, answered: Callable[[ApiResponse | None], None]) -> None:
        now = self.simulation.now
        pause = limit.take(now)
        if pause:
            self.server.after(pause, self._leave, limit, now + pause, request, answered)
        else:
            self.server.after(0, self.server.send, request, answered)

    def _leave(
        self, limit: RateLimit, due: int, request: ApiRequest, answered: Callable[[ApiResponse | None], None]
    ) -> None:
        if limit is not self._limit:
            return  # the process that held it back is no more
        if self.simulation.now > due:
            self._queue(limit, request, answered)  # the process stood still: all who waited would leave at once
        else:
            self.server.send(request, answered)

    def behind(self) -> str:
        """Say which watch shows something else than there is; empty if none does."""
        for session in self.sessions:
            shown, there = session.watch.shown, session.there()
            if shown != there:
                wrong = [name for name in {**shown, **there} if shown.get(name) != there.get(name)]
                return f"a watch of {session.kind} is wrong about {wrong}"
        return ""

    def restart(self) -> None:
        """The controller is down: what it holds is lost, and the next one knows nothing of it."""
        for session in list(self.sessions):
            session.close()
        self.told.forget()
        self._limit = RateLimit(self.settings.qps, self.settings.burst)


def call_of(effect: Any, settings: KubeSettings, rng: Random) -> Call[Any]:
    """Return the driver's call for an effect."""
    match effect:
        case CreateNodePool(spec=spec):
            return pools.create_pool(settings, spec, rng)
        case DeleteNodePool(name=name, uid=uid):
            return pools.delete_pool(settings, name, uid, rng)
        case ListNodePools(labels=labels):
            return pools.list_pools(settings, labels, rng)
        case CreatePod(spec=spec):
            return pods.create_pod(settings, spec, rng)
        case DeletePod(name=name, uid=uid, grace=grace):
            return pods.delete_pod(settings, name, uid, grace, rng)
        case ListPods(labels=labels):
            return pods.list_pods(settings, labels, rng)
    raise AssertionError(effect)


class Conversation:
    """One call on its way: request by request, until it returns, raises, or its deadline passes."""

    def __init__(self, driver: KubeDriver, operation: SimOperation, call: Call[Any]) -> None:
        self.driver = driver
        self.operation = operation
        self._call = call
        self._answers: list[ApiResponse | None] = []
        """What was answered so far; None: nothing was."""
        operation.on_cancel = self._give_up
        driver.server.after(driver.call_timeout, self._too_late)
        self._go_on(lambda: next(call))

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.operation.ended or self.operation.system_restarted

    def _go_on(self, resume: Callable[[], ApiRequest | Pause]) -> None:
        if self.over:
            self._call.close()
            return
        try:
            step = resume()
        except StopIteration as done:
            self.driver.ownership.returned(done.value)
            self.driver.told.concluded(self.operation.effect, self._answers)
            self.operation.complete(done.value)
        except CloudError as error:
            self.driver.told.concluded(self.operation.effect, self._answers)
            self.operation.fail(error)
        else:
            if isinstance(step, Pause):
                self.driver.server.after(step.span, self._answered, None, True)
            else:
                self.driver.checks.sent(self.operation.effect, step)
                self.driver.send(step, self._answered)

    def _answered(self, response: ApiResponse | None, rested: bool = False) -> None:
        if not rested:
            self._answers.append(response if response is None or response.code >= 400 else _SERVED)
        if response is None and not rested:
            self._go_on(lambda: self._call.throw(ApiUnreachable("the connection broke")))
        else:
            self._go_on(lambda: self._call.send(response))

    def _too_late(self) -> None:
        if not self.over:
            self._give_up()
            self.driver.told.concluded(self.operation.effect, [])
            self.operation.fail(Unavailable("no answer in time"))

    def _give_up(self) -> None:
        self._call.close()


class Session:
    """One watch: the driver's machine, its requests and connections, and what the actor has not taken yet."""

    def __init__(self, driver: KubeDriver, operation: SimOperation) -> None:
        effect = operation.effect
        kind = PoolWatch if isinstance(effect, WatchNodePools) else PodWatch
        self.driver = driver
        self.operation = operation
        self.watch: PoolWatch | PodWatch = kind(driver.settings, effect.labels)
        self.closed = False
        self._checks = WatchChecks(driver.checks.world)
        self._telling = Telling(driver.told, self.kind)
        self._connections: dict[Token, WatchConnection] = {}
        self._waiting: deque[WatchEvent] = deque()
        operation.on_room = self._room
        operation.on_cancel = self.close

    def begin(self) -> None:
        """Start."""
        self._do(self.watch.start(self.driver.simulation.now, self.driver.rng))

    def close(self) -> None:
        """Let go of everything."""
        if not self.closed:
            self.closed = True
            for connection in list(self._connections.values()):
                connection.close()
            self._connections.clear()
            self.driver.sessions.remove(self)

    @property
    def kind(self) -> str:
        """What is watched, for people."""
        return "pools" if isinstance(self.watch, PoolWatch) else "pods"

    def there(self) -> dict[str, Any]:
        """Read what this watch should show off the store, at once and as a list would."""
        chosen = selector(self.operation.effect.labels)
        settings, store, now = self.driver.settings, self.driver.server.store, self.driver.server.wall

        def items(path: str) -> list[Any]:
            answer = store.handle(Request("GET", path, (("labelSelector", chosen),)), now)
            return list(answer.body["items"])

        if isinstance(self.watch, PoolWatch):
            return {pool.name: pool for pool in Join.of(items(NODE_POOLS), items(NODES)).all()}
        return {pod.name: pod for pod in map(pod_of, items(pods_of(settings.namespace)))}

    def _tell(self, event: Event) -> None:
        if not self.closed:
            self._do(self.watch.on(event, self.driver.simulation.now, self.driver.rng))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case FetchObjects(token=token, request=request):
                    self._checks.lists(request)
                    self.driver.send(request, partial(self._answered, token, request))
                case OpenWatch(token=token, request=request):
                    self._open(token, request)
                case CloseWatch(token=token):
                    connection = self._connections.pop(token, None)
                    if connection is not None:
                        connection.close()
                case WakeAfter(token=token, after=after):
                    self.driver.server.after(after, self._tell, Woken(token))
                case Show(event=event):
                    self.driver.told.watch_shows(self.kind)
                    self._waiting.append(event)
                case Fail(error=error):
                    self._flush()
                    self.close()
                    self.driver.told.watch_ended(self.kind, error, self._telling.refused)
                    self.operation.fail(error)
        self._flush()

    def _answered(self, token: Token, request: ApiRequest, response: ApiResponse | None) -> None:
        if not self.closed:
            self._telling.answers(str(token[0]), request, response)
        self._tell(FetchFailed(token) if response is None else Fetched(token, response))

    def _open(self, token: Token, request: ApiRequest) -> None:
        def item(thing: Mapping[str, Any]) -> bool:
            if self._waiting:
                return False
            self._checks.took(request, thing)
            self._telling.told(str(token[0]), thing)
            self._tell(WatchItem(token, thing))
            return True

        def ended(error: bool) -> None:
            self._connections.pop(token, None)
            self._tell(WatchEnded(token, error))

        self._checks.opens(request)
        self._connections[token] = self.driver.server.watch(request, item, ended)

    def _flush(self) -> None:
        while self._waiting and self.operation.send(self._waiting[0]):
            self._waiting.popleft()

    def _room(self) -> None:
        """The actor has taken something: give it the rest, and read on."""
        self._flush()
        for connection in list(self._connections.values()):
            connection.pump()
