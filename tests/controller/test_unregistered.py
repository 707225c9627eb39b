"""Workers whose pods run and that do not register: what is found there is their slice's reason."""

import anyio
import attrs
import pytest
from controller_world import Drivers

from iriscw.cloud.model import ExecResult, Gone, PodPhase, Unavailable
from iriscw.controller.unregistered import QUIET_S, Unregistered
from iriscw.fleet.model import SliceState
from iriscw.proto.iriscw import v1
from waiting import until


@attrs.define
class Pods:
    """The way into every pod; says what it was told to."""

    answer: object = attrs.field(factory=lambda: ExecResult(0, b"the controller's\nname is not known"))
    looked: list = attrs.field(factory=list)
    interpreter = ("python9",)

    async def run(self, argv, timeout_s, environment=None):
        self.looked.append(argv[-1])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def inside(monkeypatch):
    """The inside of every pod of the world."""
    made = Pods()
    monkeypatch.setattr(Drivers, "connection", lambda *_: made)
    return made


async def waiting(world):
    """Have a slice wait for its worker; give who looks, and the pod."""
    await world.submit()
    await until(lambda: any(pod.phase is PodPhase.RUNNING for pod in world.cloud.pods.values()))
    fleets = world.controller.features.parts["fleet"]
    looking = Unregistered(
        fleets.overview._access,
        fleets.overview._switchboard,
        Drivers(world.cloud),
        lambda: fleets.fleet,
        4 * QUIET_S,
    )
    await until(lambda: fleets.fleet is not None)
    fleets.fleet = fleet = await fleets.overview.fleet()
    with anyio.fail_after(20):
        while fleet.slices[0].state is not SliceState.INITIALIZING:
            await anyio.sleep(0.01)
            fleets.fleet = fleet = await fleets.overview.fleet()
    return looking, next(iter(world.cloud.pods.values()))


async def until_reason(world, text):
    """Wait until users read this of the slice; of none, that there is nothing to say."""
    with anyio.fail_after(20):
        while True:
            page = await world.call("ListSlices", v1.ListSlicesRequest(), v1.ListSlicesResponse)
            said = page.slices[0].reason
            if (text in said) if text else not said:
                return
            await anyio.sleep(0.01)


async def test_a_finding_becomes_the_slices_reason(world, inside):
    """After the pod has run for long enough, and again after as long; a worker that registers has no trouble left."""
    looking, pod = await waiting(world)
    await looking.round(0)
    await looking.round(QUIET_S - 1)
    assert not inside.looked
    await looking.round(QUIET_S)
    await looking.round(2 * QUIET_S - 1)
    assert inside.looked == [pod.labels["iris-incarnation"]]
    await until_reason(world, "has not registered: the controller's name is not known")
    inside.answer = Gone("no pod")
    await looking.round(2 * QUIET_S)
    await until_reason(world, "cannot be looked into: Gone: no pod")
    async with world.worker(manual=True):
        await until(lambda: world.controller.statistics().workers_connected == 1)
        await looking.round(9 * QUIET_S)
        assert len(inside.looked) == 2
        await until_reason(world, "")


@pytest.mark.parametrize(
    "answer",
    [ExecResult(1, b"x"), ExecResult(0, b""), TimeoutError("too long"), Unavailable("broke"), NotImplementedError()],
)
async def test_a_look_that_finds_nothing_says_so(world, inside, answer):
    """And nothing else comes of it."""
    inside.answer = answer
    looking, _ = await waiting(world)
    await looking.round(0)
    await looking.round(QUIET_S)
    await until_reason(world, "has not registered: ")


async def test_nobody_is_looked_at_while_nobody_waits(world, inside):
    """Nothing is listed then, and what was known of pods is forgotten; a listing that fails is told."""
    looking, _ = await waiting(world)
    await looking.round(0)
    waited, looking._fleet = looking._fleet, lambda: None
    await looking.round(1)
    looking._fleet = waited
    await looking.round(QUIET_S)
    assert not inside.looked
    world.cloud.fail_next("pods.list", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        await looking.round(QUIET_S)
