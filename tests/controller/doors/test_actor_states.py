"""The door for snapshots of hosted actors: whose they are, which one is the latest, and what is refused."""

import hashlib
from types import SimpleNamespace

import pytest

from iriscw.controller.doors.actor_states import ActorStatesDoor
from iriscw.controller.stores.archive import Archive
from iriscw.errors import InvalidArgument, NotHosted, PermissionDenied
from iriscw.hosted.errors import SnapshotMismatch, SnapshotTooLarge
from iriscw.hosted.model import ACTOR_PORT, MAX_STATE_BYTES
from iriscw.objects.drivers.opening import open_store
from iriscw.proto.iriscw import v1
from iriscw.rpc.tokens import Principal, Role


class Callers:
    """Says who calls, and which attempts live, in place of the controller's access."""

    def __init__(self):
        self.calls("job-a", 0)
        self.fenced_after = None
        self.ports = (ACTOR_PORT,)

    def calls(self, job, attempt, role=Role.JOB):
        self.principal = Principal(role, job_id=job, attempt_uid=f"{job}-{attempt}")
        self.number = attempt

    async def client(self):
        if self.fenced_after is not None:
            self.fenced_after -= 1
            if self.fenced_after < 0:
                raise PermissionDenied("it is over")
        return self.principal

    async def view(self, ref, principal):
        return SimpleNamespace(job_id=ref.job_id, spec=SimpleNamespace(replicas=1, ports=self.ports))

    def attempt(self, uid):
        return SimpleNamespace(number=self.number)


@pytest.fixture
async def scene(tmp_path):
    """A door over a store in files."""
    callers = Callers()
    objects = open_store(f"file://{tmp_path}/objects")
    states = Archive(objects, ["states"])
    door = ActorStatesDoor(callers, SimpleNamespace(logs=callers, states=states), tmp_path / "on-its-way")
    yield SimpleNamespace(callers=callers, door=door, states=states, folder=tmp_path / "on-its-way")
    await objects.aclose()


async def put(door, data, number=1, **fields):
    """Send a snapshot, in two pieces."""
    said = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), "number": number} | fields

    async def messages():
        yield v1.PutActorStateRequest(header=v1.ActorStateHeader(**said))
        for piece in (data[:2], data[2:]):
            yield v1.PutActorStateRequest(data=piece)

    await door.put_actor_state(messages())


async def get(door):
    """Read the latest one."""
    parts = [part async for part in door.get_actor_state(v1.GetActorStateRequest())]
    return b"".join(part.data for part in parts[1:]) if parts else None


async def test_the_latest_snapshot_of_the_job_is_given(scene):
    """Whichever attempt kept it: no late one of an earlier attempt hides it. Other jobs have their own."""
    door, callers = scene.door, scene.callers
    assert await get(door) is None
    await put(door, b"first", 9)
    await put(door, b"second", 10)
    assert [each.name.split("-")[1] for each in await scene.states.of_job("job-a")] == [f"{10:012d}"]
    callers.calls("job-a", 1)
    assert await get(door) == b"second"
    await put(door, b"third", 1)
    callers.calls("job-a", 0)
    await put(door, b"late", 11)
    callers.calls("job-a", 2)
    assert await get(door) == b"third"
    callers.calls("job-b", 0)
    assert await get(door) is None
    assert (door.statistics().kept, door.statistics().given) == (4, 2)


async def test_what_is_refused_leaves_the_snapshot_before_it(scene):
    """Other bytes than were announced, too many, no header, and an attempt that is fenced while its bytes come."""
    door, callers = scene.door, scene.callers
    await put(door, b"first")
    for error, fields in (
        (SnapshotMismatch, {"sha256": "0" * 64}),
        (SnapshotMismatch, {"size_bytes": 3}),
        (SnapshotMismatch, {"size_bytes": 10}),
        (SnapshotTooLarge, {"size_bytes": MAX_STATE_BYTES + 1}),
        (InvalidArgument, {"sha256": "../" + "0" * 61}),
        (InvalidArgument, {"number": 0}),
        (InvalidArgument, {"size_bytes": 0}),
    ):
        with pytest.raises(error):
            await put(door, b"second", **({"number": 2} | fields))
    callers.fenced_after = 1
    with pytest.raises(PermissionDenied):
        await put(door, b"second", 2)
    callers.fenced_after = None
    assert await get(door) == b"first"
    assert [*scene.folder.iterdir()] == []
    callers.ports = ("other",)
    with pytest.raises(NotHosted):
        await get(door)
