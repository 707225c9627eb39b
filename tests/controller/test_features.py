"""The loop over features: what each adds, how they find each other, and what one that fails may cost."""

import ast
from pathlib import Path

import anyio
import pytest
from controller_world import CONFIG, Drivers, World, get, until

from iriscw._errors import ActorStopped, InvalidArgument
from iriscw.config.load import build_config
from iriscw.controller import assembly
from iriscw.controller.assembly import Controller
from iriscw.controller.doors.figures import gauge
from iriscw.controller.feature import Feature, FeatureContext, Parts
from iriscw.controller.features import commands, fleet, inspection, jobs, nodes, opening
from iriscw.controller.features.opening import OpenFeatures
from iriscw.jobs.messages import JobChanged
from iriscw.journal.records import record
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.runtime import Behavior, ChildSpec, Decision, Reply
from iriscw.runtime.vocabulary import message
from raised import that


@message
class Poke:
    """Answered, or a reason to fail."""

    hard: bool = False


def _poked(state, message, ctx):
    if message.hard:
        raise RuntimeError("a bug of the package")
    return (Reply("poked"),)


class Guest(Parts):
    """Parts of each kind."""

    def __init__(self, context: FeatureContext) -> None:
        self.context = context
        self.done: list[str] = []
        self.events: list[object] = []

    async def prepare(self):
        assert self.context.access.system is None
        self.done.append("prepared")

    def children(self):
        return (ChildSpec("guest", Behavior(initial=object, on={Poke: _poked})),)

    def routes(self):
        return {"/guest": Route(lambda: HttpResponse(200, "text/plain", b"hello\n"), public=True)}

    def background(self):
        return (self._run,)

    async def _run(self):
        self.done.append(await self.context.access.ask("/guest", Poke()))
        await anyio.sleep_forever()

    async def sample(self):
        self.done.append("sampled")
        raise ActorStopped("not now")

    def statistics(self):
        return {"guests_seen": 7}

    def figures(self):
        yield gauge("iriscw_guests", "Guests.", 7)

    def notice(self, event):
        self.events.append(event)


@record("test_features.poked")
@message
class Poked:
    """What a durable actor was told last."""

    count: int


def _counted(count):
    return Decision(records=(Poked(count),), commands=(Reply(count),))


class Keeping(Parts):
    """Has a durable actor, which counts."""

    def __init__(self, context: FeatureContext) -> None:
        pass

    def children(self):
        behavior = Behavior(
            initial=list,
            on={Poke: lambda state, _message, _ctx: _counted(len(state) + 1)},
            evolve=lambda state, record: state.append(record.count),
            compact=lambda state: map(Poked, state),
        )
        return (ChildSpec("keeping", behavior),)


class Hosting(World):
    """A controller with guests."""

    guests: tuple[type[Parts], ...] = (Guest,)

    async def __aenter__(self):
        features = [Feature(name=each.__name__.lower(), open=each) for each in self.guests]
        drivers, config = Drivers(self.cloud), build_config(CONFIG)
        self.controller = Controller(config, state_dir=self.state, drivers=drivers, features=features)
        await self._stack.enter_async_context(self.controller)
        self.client = await self._stack.enter_async_context(self.channel(self.controller.admin_token))
        return self


async def test_a_controller_has_all_that_a_feature_offers(tmp_path: Path) -> None:
    """Its actor, its task, its route, its metric, its samples and events."""
    async with Hosting(tmp_path / "state") as world:
        guest = world.controller.features.parts["guest"]
        await until(lambda: {"poked", "sampled"} <= set(guest.done))
        assert guest.done[0] == "prepared"
        assert (await get(world, "/guest"))[1] == b"hello\n"
        _, body = await get(world, "/metrics", world.controller.admin_token.reveal())
        assert b"\niriscw_guests 7.0\n" in body
        assert world.controller.statistics().guests == {"guest": {"guests_seen": 7}}
        await world.submit()
        await until(lambda: any(isinstance(each, JobChanged) for each in guest.events))


async def test_a_guest_that_fails_ends_no_controller(tmp_path: Path) -> None:
    """An actor of a package that fails again and again is put aside, and the others go on."""
    async with Hosting(tmp_path / "state") as world:
        system, access = world.controller.system, world.controller.features.parts["guest"].context.access
        with anyio.fail_after(20):
            while "QUARANTINED" not in str(system.inspect("/guest").actors[0].state).upper():
                system.ref("/guest").tell(Poke(hard=True))
                await anyio.sleep(0.01)
        with pytest.raises(ActorStopped):
            await access.ask("/guest", Poke())
        assert (await world.submit()).created


async def test_a_feature_that_is_away_for_a_while_finds_its_records(tmp_path: Path) -> None:
    """A controller without the package starts all the same, and leaves what it does not know as it is."""
    world = Hosting(tmp_path / "state")
    counted = []
    for guests in ((Keeping,), (), (Keeping, Guest)):
        world.guests = guests
        await world.restart()
        counted += [await world.controller.system.ask("/keeping", Poke()) for _ in guests[:1]]
    await world.__aexit__()
    assert counted == [1, 2]


def opened(*guests: type[Parts], names: tuple[str, ...] = ("a", "b")) -> OpenFeatures:
    """Open features that need nothing."""
    nothing = dict.fromkeys((field.name for field in FeatureContext.__attrs_attrs__ if field.init), None)
    features = [Feature(name=name, open=guest) for name, guest in zip(names, guests, strict=True)]
    return OpenFeatures.open((), features, FeatureContext(**nothing))


class Carrier(Parts):
    """Carries a port out, at a path."""

    def __init__(self, context):
        self.context = context

    def ports(self):
        return {int: self}

    def routes(self):
        return {"/here": Route(lambda: HttpResponse(200, "text/plain", b""), public=True)}


class Elsewhere(Carrier):
    """The same path, and no port."""

    def ports(self):
        return {}


class Counting(Parts):
    """Counts how often it is sampled."""

    def __init__(self, context):
        self.samples = 0

    async def sample(self):
        self.samples += 1


def test_a_port_is_found_whatever_the_order() -> None:
    """By its type, once all features are open; what nobody carries out is said by name."""
    both = opened(Elsewhere, Carrier)
    context = both.parts["a"].context
    assert context.port(int) is both.parts["b"]
    with pytest.raises(InvalidArgument, check=that(names="str")):
        context.port(str)


def test_two_features_of_one_kind_are_refused() -> None:
    """Two of a name, two that carry out a port, two at a path, one at a path of the controller's own."""
    with pytest.raises(InvalidArgument, check=that(names="'a'")):
        opened(Elsewhere, Carrier, names=("a", "a"))
    with pytest.raises(InvalidArgument, check=that(names="int")):
        opened(Carrier, Carrier)
    with pytest.raises(InvalidArgument, check=that(names="/here")):
        opened(Carrier, Elsewhere).routes({})
    with pytest.raises(InvalidArgument, check=that(names="/here")):
        opened(Elsewhere, Counting).routes({"/here": Route(lambda: HttpResponse(200, "text/plain", b""), public=True)})


async def test_a_feature_that_cannot_be_sampled_delays_no_other(monkeypatch) -> None:
    """It is asked again the next time, and those after it are asked now."""
    monkeypatch.setattr(opening, "SAMPLE_INTERVAL_S", 0.01)
    features = opened(Guest, Counting)
    async with anyio.create_task_group() as tasks:
        for function in features.background()[:1]:
            tasks.start_soon(function)
        await until(lambda: features.parts["b"].samples > 1)
        tasks.cancel_scope.cancel()
    assert features.parts["a"].done.count("sampled") > 1


def ours(module):
    """Return the modules of ours that a module of the controller imports."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    return [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("iriscw.")
    ]


def test_the_assembly_knows_the_list_and_no_feature() -> None:
    """It names no actor, no service and no figure of any feature; what it takes as arguments it has to name."""
    arguments = {"iriscw.cloud.drivers.loading", "iriscw.fleet.policy", "iriscw.jobs.registry"}
    shared = {f"iriscw.controller.doors.{name}" for name in ("access", "figures", "http", "overview", "streams")}
    parts = ("iriscw.cloud", "iriscw.fleet", "iriscw.jobs", "iriscw.nodes", "iriscw.inspection")
    named = {each for each in ours(assembly) if each.startswith((*parts, "iriscw.controller.doors"))}
    assert named == arguments | shared
    assert len(ours(assembly)) < 30


@pytest.mark.parametrize("feature", [fleet, jobs, nodes, commands, inspection])
def test_features_do_not_know_each_other(feature) -> None:
    """What one needs of another is a port: none imports another's module."""
    assert not [each for each in ours(feature) if each.startswith("iriscw.controller.features")]
