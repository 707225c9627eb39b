"""What others have learned about Kubernetes, as laws of the driver against the simulated API server.

Planted bugs repeat each lesson (tests/sims/mutants/lessons.py); these are the tests that have to notice them.
"""

from collections.abc import Iterator
from random import Random

import pytest

from iriscw.cloud.kube.exchange import (
    CloseWatch,
    Fetched,
    FetchObjects,
    ItemChanged,
    Listed,
    OpenWatch,
    Vanished,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, Pause
from iriscw.cloud.kube.ownership import create
from iriscw.cloud.kube.paths import Source
from iriscw.cloud.kube.reflector import Reflector
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_INCARNATION, Conflict
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from iriscw_sims.kube.watches import Watch

SETTINGS = KubeSettings(cluster="test")
MAPS = "/api/v1/namespaces/default/configmaps"
OURS = {LABEL_CLUSTER: "test"}


class Server:
    """A store, its clock, and every request that was made."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND
        self.store = Store(rng=Random(7), now=self.now)
        self.said: list[str] = []

    def handle(self, request: ApiRequest) -> ApiResponse:
        self.said.append(request.method)
        made = Request(request.method, request.path, request.query, request.body, request.content_type)
        response = self.store.handle(made, self.now)
        return ApiResponse(response.code, response.body)

    def do(self, method: str, path: str, body: object = None) -> dict:
        response = self.store.handle(Request(method, path, (), body), self.now)
        assert response.code in (200, 201), response
        return response.body

    def run(self, call: Iterator) -> object:
        """Run a call to its end."""
        step = next(call)
        try:
            while True:
                step = call.send(None if isinstance(step, Pause) else self.handle(step))
        except StopIteration as done:
            return done.value


@pytest.fixture
def server() -> Server:
    return Server()


def config_map(name: str, incarnation: str = "1") -> dict:
    labels = {**OURS, LABEL_INCARNATION: incarnation}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def test_a_create_that_is_repeated_deletes_nothing(server: Server) -> None:
    """However often the answer is lost: the object is made once, and every repetition gives that one (iris 6)."""
    uids = []
    for _ in range(5):
        found, _ = server.run(create(SETTINGS, MAPS, config_map("a"), (LABEL_INCARNATION,), Random(1)))
        uids.append(found["metadata"]["uid"])
    assert len({*uids}) == 1
    assert "DELETE" not in server.said
    assert server.said == ["POST", "POST", "GET", "POST", "GET", "POST", "GET", "POST", "GET"]


def test_a_name_is_not_adopted_by_another_incarnation(server: Server) -> None:
    """What an earlier submission left under the name is a conflict, never an answer (iris 7)."""
    server.run(create(SETTINGS, MAPS, config_map("a", "old"), (LABEL_INCARNATION,), Random(1)))
    with pytest.raises(Conflict):
        server.run(create(SETTINGS, MAPS, config_map("a", "new"), (LABEL_INCARNATION,), Random(1)))
    assert server.do("GET", f"{MAPS}/a")["metadata"]["labels"][LABEL_INCARNATION] == "old"


class Shell:
    """Carries out what a reflector wants, and keeps what it shows."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.reflector = Reflector("maps", Source(MAPS, f"{LABEL_CLUSTER}=test"), SETTINGS)
        self.view: dict[str, str] = {}
        self.watch: Watch | None = None
        self.token: object = None
        self.now = 0
        self.rng = Random(3)
        self.take(self.reflector.start(self.now, self.rng))

    def tell(self, event: object) -> None:
        self.take(self.reflector.on(event, self.now, self.rng))

    def take(self, actions: list) -> None:
        for action in actions:
            match action:
                case FetchObjects(token=token, request=request):
                    self.tell(Fetched(token, self.server.handle(request)))
                case OpenWatch(token=token, request=request):
                    self.token = token
                    self.watch = self.server.store.watch(Request("GET", request.path, request.query), self.server.now)
                case CloseWatch():
                    self.watch = None
                case WakeAfter(token=token, after=after) if after <= LONGEST_REST:
                    self.now += after
                    self.tell(Woken(token))
                case Listed(objects=objects):
                    self.view = {each["metadata"]["name"]: each["metadata"]["uid"] for each in objects}
                case ItemChanged(object=thing):
                    self.view[thing["metadata"]["name"]] = thing["metadata"]["uid"]
                case Vanished(object=thing):
                    del self.view[thing["metadata"]["name"]]

    def look(self) -> None:
        """Take what the watch brings."""
        if self.watch is not None:
            for item in self.watch.take(self.server.now):
                self.tell(WatchItem(self.token, item))

    def breaks(self) -> None:
        """The connection is gone; another one may be there afterwards."""
        self.watch = None
        self.tell(WatchEnded(self.token, error=True))


LONGEST_REST = 60 * SECOND
"""Longer waits are those for a watch that has gone silent, which here none does."""


def test_what_went_while_nobody_watched_is_told(server: Server) -> None:
    """The server forgets what happened between two watches (410): what is gone is missed, and told (iris 5)."""
    server.do("POST", MAPS, config_map("a"))
    shell = Shell(server)
    server.do("POST", MAPS, config_map("b"))
    shell.look()
    assert [*shell.view] == ["a", "b"]
    server.do("DELETE", f"{MAPS}/a")
    server.do("POST", MAPS, config_map("c"))
    server.store.compact(server.store.revision)
    shell.breaks()
    shell.look()
    shell.look()
    assert [*shell.view] == ["b", "c"]


def test_a_name_that_is_used_again_is_another_object(server: Server) -> None:
    """Deleted and made again between two watches: who asks by uid sees another one (iris 20)."""
    first = server.do("POST", MAPS, config_map("a"))["metadata"]["uid"]
    shell = Shell(server)
    server.do("POST", MAPS, config_map("b"))
    shell.look()
    server.do("DELETE", f"{MAPS}/a")
    second = server.do("POST", MAPS, config_map("a", "2"))["metadata"]["uid"]
    server.store.compact(server.store.revision)
    shell.breaks()
    shell.look()
    shell.look()
    assert shell.view["a"] == second != first
