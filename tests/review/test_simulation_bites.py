"""What the simulated world did not notice, and does now: each check against the bug that went past all others."""

import attrs
import pytest

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, DeletePod, WatchPods
from iriscw.cloud.kube import joining
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import NodePoolSpec
from iriscw.jobs.model import Capacity, Entrypoint, EntrypointKind, JobSpec
from iriscw.jobs.records import AttemptPlaced
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.job_checks import TruthOfJob
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World

GANG = JobSpec("gang", Entrypoint(EntrypointKind.COMMAND, "0" * 64), Capacity(1000), replicas=2, group_by="slice-id")


def calm(seed=5, **groups):
    """Return a world without faults; ``groups`` changes all its groups."""
    plan = attrs.evolve(draw_plan(seed), faults=(), rates=())
    return World(seed, attrs.evolve(plan, groups=tuple(attrs.evolve(each, **groups) for each in plan.groups)))


@pytest.fixture
def world():
    """Return a world in which nothing goes wrong by itself, and whose controller asks for nothing."""
    world = calm()
    world.system.crash(0)
    world.cloud.controller_down()
    return world


class Operation:
    """An operation of an actor that takes whatever comes."""

    ended = system_restarted = False

    def __init__(self, effect):
        self.effect, self.items = effect, []

    def send(self, item):
        self.items.append(item)
        return True


def place(world, uid, index, worker_id):
    """Have the placement of a gang's member reach the disk."""
    slice_id = worker_id.rpartition("-")[0]
    checks = world.fleet_checks
    checks.ever[slice_id], checks.whole[slice_id] = world.plan.groups[0].name, None
    checks.places[slice_id] = {f"{slice_id}-{number}": None for number in range(8)}
    world.job_checks.durable("/jobs/j", AttemptPlaced(index, uid, 1, worker_id, "i", 0))


def test_members_of_a_gang_that_share_nothing_are_seen(world):
    """INV-J4: two members on two slices are a violation; on one slice they are none."""
    world.job_checks.jobs["j"] = TruthOfJob(GANG)
    place(world, "a", 0, "iris-g0-x-0")
    place(world, "b", 1, "iris-g0-x-1")
    assert not world.violations
    world.job_checks.jobs["j"].tasks[1].live = ""
    place(world, "c", 1, "iris-g0-y-0")
    assert [each for each in world.violations if each.startswith("INV-J4")]


def test_a_member_that_joins_a_running_gang_is_seen(world):
    """INV-J4: a gang goes down as a whole and comes back as a whole; nobody joins what was placed before."""
    world.job_checks.jobs["j"] = TruthOfJob(GANG)
    place(world, "a", 0, "iris-g0-x-0")
    place(world, "b", 1, "iris-g0-x-1")
    assert not world.violations
    world.simulation.advance(1.0)
    world.job_checks.jobs["j"].tasks[1].live = ""
    place(world, "c", 1, "iris-g0-x-1")
    assert [each for each in world.violations if each.startswith("INV-J4")]


@pytest.mark.parametrize("effect", [DeleteNodePool("a", "u"), DeletePod("a", "u")])
def test_a_deletion_without_preconditions_is_seen(world, effect):
    """INV-F8: what is deleted is named by uid and version, not by name alone."""
    whole = {"preconditions": {"uid": "u", "resourceVersion": "7"}}
    world.fleet_checks.sent(effect, ApiRequest("DELETE", "/things/a", body=whole))
    assert not world.violations
    for path, wrong in (
        ("/things/a", None),
        ("/things/a", {"preconditions": {"uid": "v", "resourceVersion": "7"}}),
        ("/things/a", {"preconditions": {"uid": "u"}}),
        ("/things/b", whole),
    ):
        world.violations.clear()
        world.fleet_checks.sent(effect, ApiRequest("DELETE", path, body=wrong))
        assert world.violations[0].startswith("INV-F8")


def test_a_creation_under_another_name_is_seen(world):
    """INV-F1: what is asked for has the name that is on the disk."""
    effect = CreateNodePool(NodePoolSpec("a", "cd-gp-i64", 1, {}))
    world.fleet_checks.sent(effect, ApiRequest("POST", POOLS, body={"metadata": {"name": "a"}}))
    assert not world.violations
    world.fleet_checks.sent(effect, ApiRequest("POST", POOLS, body={"metadata": {"name": "a-1"}}))
    assert world.violations[0].startswith("INV-F1")


def test_a_slice_that_is_taken_for_booted_too_early_is_seen(monkeypatch):
    """INV-F6: a driver that takes every node for ready and open shows slices as booted that are not."""
    read = joining.node_of
    monkeypatch.setattr(joining, "node_of", lambda thing: attrs.evolve(read(thing), ready=True, usable=True))
    found = [World(seed).run().violations[:1] for seed in range(6)]
    assert any(each and each[0].startswith("INV-F6") for each in found)


def test_a_watch_that_missed_something_for_good_keeps_the_world_from_rest():
    """At rest, what the watches show is what there is: an event that was lost is found, whatever it was about."""
    world = calm(min_slices=1, max_slices=1)
    assert world.run().violations == ()
    assert world.cloud.driver.behind() == ""
    session = next(each for each in world.cloud.driver.sessions if each.kind == "pools")
    name = next(iter(session.watch._shown))
    stale = session.watch._shown[name]
    session.watch._shown[name] = attrs.evolve(stale, resource_version="1")
    assert name in world.unsettled()
    session.watch._shown[name] = stale
    assert world.unsettled() == ""


def test_a_watch_ends_at_its_time_though_nothing_happens():
    """In a calm world no watch is given up by its client, and nothing but the first list is listed."""
    world = calm(min_slices=1, max_slices=1)
    assert world.run().violations == ()
    world.simulation.advance(600.0)
    for session in world.cloud.driver.sessions:
        for each in session.watch.statistics.sources.values():
            assert (each.lists, each.stalled, each.backoffs) == (1, 0, 0)
            assert each.watches > 5


def test_requests_beyond_the_limit_are_seen(world):
    """INV-F9: two bursts, as of two processes one after the other, and one more."""
    limit = world.pace.driver
    request = ApiRequest("GET", POOLS)
    for _ in range(2 * limit.burst):
        world.cloud.server.send(request, lambda response: None)
    assert not world.violations
    world.cloud.server.send(request, lambda response: None)
    assert world.violations[0].startswith("INV-F9")


def test_what_a_dead_process_held_back_is_never_sent(world):
    """A request that waits for its turn when the process dies was not on its way, and does not land."""
    driver, sent = world.cloud.driver, []
    world.cloud.server.send = lambda request, answered: sent.append(request)
    for _ in range(world.pace.driver.burst + 20):
        driver.send(ApiRequest("GET", POOLS), lambda response: None)
    world.simulation.advance(0.001)
    before = len(sent)
    driver.restart()
    world.simulation.advance(60.0)
    assert before == len(sent) == world.pace.driver.burst


def test_a_watch_whose_probes_are_answered_by_others_is_given_up_by_the_client(world):
    """A connection that stays silent for good is left to the driver's own clock, after the end of all faults, too."""
    operation = Operation(WatchPods({}))
    world.cloud.driver.watch(operation)
    world.simulation.advance(5.0)
    (connection,) = world.cloud.server.connections
    connection.stays_silent()
    world.healed, world.disturbed_until = True, world.simulation.now
    world.cloud.heal()
    driver = world.pace.driver
    assert world.disturbed_until - world.simulation.now == driver.watch_timeout + driver.watch_margin
    world.simulation.advance((driver.watch_timeout + driver.watch_margin) / SECOND + 10)
    (session,) = world.cloud.driver.sessions
    assert session.watch.statistics.sources["pods"].stalled == 1
    assert len(world.cloud.server.connections) == 1
