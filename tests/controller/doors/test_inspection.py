"""Who may see the actors of a controller, and what is said before there are any."""

import pytest
from controller_world import World

from iriscw._errors import SystemClosed
from iriscw.client.calls import INSPECTION
from iriscw.inspection.doors import InspectionDoor
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Role

LIST = INSPECTION + "ListActors"


async def test_administrators_see_the_actors(world: World) -> None:
    """Page by page, each once."""
    paths: list[str] = []
    token = ""
    while token or not paths:
        page = await world.client.unary(
            LIST, v1.ListActorsRequest(page_size=2, page_token=token), v1.ListActorsResponse, safe=True
        )
        paths += [each.path for each in page.actors]
        token = page.next_page_token
    assert len(paths) == len(dict.fromkeys(paths)) > 5
    assert {"/", "/fleet", "/jobs/scheduler"} <= {*paths}


@pytest.mark.parametrize("whose", ["worker", "agent", "job"])
async def test_nobody_else_does(world: World, whose: str) -> None:
    """Paths have the names of other people's jobs, and failures what their programs said."""
    tokens = world.tokens
    token = {
        "worker": lambda: tokens.worker_token("w-0", "i"),
        "agent": lambda: tokens.agent_token("n-0"),
        "job": lambda: tokens.job_token("job-aaaaaaaaaaaa", "a1"),
    }[whose]()
    async with world.channel(token) as channel:
        with pytest.raises(PermissionDenied):
            await channel.unary(LIST, v1.ListActorsRequest(), v1.ListActorsResponse, safe=True)


async def test_a_process_that_has_no_actors_yet_says_so() -> None:
    """A worker opens its door first."""
    door = InspectionDoor(lambda: None, Role.WORKER)
    with pytest.raises(SystemClosed):
        await door.list_actors(v1.ListActorsRequest())
