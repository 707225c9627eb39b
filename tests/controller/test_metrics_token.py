"""The token that reads the controller's figures opens nothing else: every method and every path is tried."""

import http.client
from pathlib import Path

import anyio
import pytest
from controller_world import World

from iriscw.controller.doors.agents import AgentDoor
from iriscw.controller.doors.clients import ClientDoor
from iriscw.controller.doors.workers import WorkerDoor
from iriscw.controller.tokens import METRICS_VARIABLE, ControllerTokens
from iriscw.inspection.doors import InspectionDoor
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Secret, digest_of, read_token_file
from raised import that

METHODS = {
    route: handler
    for door in (ClientDoor, WorkerDoor, AgentDoor, InspectionDoor)
    for route, handler in door.__mapping__(door.__new__(door)).items()
}


def token_of(world: World) -> Secret:
    """Return the token that the controller made."""
    return read_token_file(world.state / "secrets" / "metrics-token")


def read(world: World, path: str, token: str) -> int:
    """Return the status of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", world.controller.address.port, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


async def test_no_method_is_open(world: World) -> None:
    """Each of each service refuses it by its head, before a message is read."""
    assert len(METHODS) > 25
    async with world.channel(token_of(world)) as channel:
        for route, handler in METHODS.items():
            with pytest.raises(PermissionDenied, check=that(names="/metrics")):
                await channel.unary(route, handler.request_type(), handler.reply_type)


async def test_of_the_paths_two_are_open(world: World) -> None:
    """What everybody may read, and the figures; a changed token reads none."""
    token = token_of(world).reveal()
    assert token != world.controller.admin_token.reveal()
    served = world.controller._server._http._routes
    answers = {path: await anyio.to_thread.run_sync(read, world, path, token) for path in (*served, "/")}
    assert answers == {"/health": 200, "/metrics": 200, "/": 404}
    assert await anyio.to_thread.run_sync(read, world, "/metrics", token[:-1]) == 401


async def test_a_controller_keeps_its_token(tmp_path: Path) -> None:
    """Over restarts, in a file that only its user can read."""
    found = []
    for _ in range(2):
        async with World(tmp_path / "state") as world:
            found.append(token_of(world).reveal())
    assert found[0] == found[1]
    assert (tmp_path / "state" / "secrets" / "metrics-token").stat().st_mode & 0o777 == 0o600


def test_workers_are_told_how_to_know_it() -> None:
    """The digest, and not the token: what is in a pod's specification is read by many."""
    token = Secret("for-metrics")
    tokens = ControllerTokens(Secret("cluster"), [Secret("admin")], token)
    assert tokens.told == {METRICS_VARIABLE: digest_of(token)}
    assert "for-metrics" not in repr(tokens.told)
    assert ControllerTokens(Secret("cluster"), [Secret("admin")]).told == {}
