"""``inspect tree``, against a real door of a tree that has a sick actor."""

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.cli.inspection import level
from iriscw.client.model import ActorStatus
from iriscw.inspection.doors import InspectionDoor
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Role
from iriscw.runtime import ActorSystem, Behavior
from iriscw.runtime.behavior import ChildSpec, Supervision


def fail(state, received, ctx):
    """Be sick."""
    raise InvalidArgument("no GPU has this number")


@pytest.fixture
async def ask(tmp_path, iriscw):
    """Run the command against a socket's door; give its exit code, standard output and standard error."""
    sick = ChildSpec("sick", Behavior(decide=fail), entity=True)
    group = Behavior(children=(sick, ChildSpec("well", Behavior())), supervision=Supervision(restarts=0))
    async with (
        ActorSystem(Behavior(children=(ChildSpec("group", group),)), name="test") as system,
        RpcServer([InspectionDoor(lambda: system, Role.LOCAL)], authenticate=lambda token: None) as server,
    ):
        await server.listen_unix(tmp_path / "door.sock")
        system.tell("/group/sick", "work")

        async def run(*words, status=0):
            at = ["inspect", "tree", "--address", f"unix:{tmp_path}/door.sock"]
            code, out, err = await anyio.to_thread.run_sync(iriscw, *at, *words)
            assert code == status, err
            return out or err

        yield run


@pytest.mark.anyio
async def test_what_people_see(ask):
    """The tree by indentation, what is wrong in words; only that if it is asked for; and a wrong path by its name."""
    lines = (await ask()).splitlines()
    assert [line.split("  ACTIVE")[0].split("  QUAR")[0].rstrip() for line in lines[1:]] == [
        "/",
        "  group",
        "    sick",
        "    well",
    ]
    assert "QUARANTINED" in lines[3]
    assert lines[3].endswith(" ago: InvalidArgument: no GPU has this number")
    assert [line.split()[0] for line in (await ask("--troubled")).splitlines()[1:]] == ["/group/sick"]
    assert await ask("--troubled", "/group/well/") == "no actor at or below /group/well is in trouble\n"
    assert "there is no actor at /nobody" in await ask("/nobody", status=2)
    assert "leave one out" in await ask("--agent", status=2)


def test_levels():
    """Counted from the actor that was asked for."""
    levels = [level(ActorStatus(path, "", "ACTIVE"), "/") for path in ("/", "/a", "/a/b")]
    assert levels == [0, 1, 2]
    assert [level(ActorStatus(path, "", "ACTIVE"), "/a") for path in ("/a", "/a/b", "/a/b/a")] == [0, 1, 2]
