"""What the controller says of a fleet in trouble, on a real API server: to users, and on the node pools (INV-F5, F7).

What it does about each trouble is judged from the pools themselves: which were made, which stayed, which went.
"""

import asyncio
import sys
from pathlib import Path

import anyio
import pytest

from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.resources import Resources
from iriscw_sims.coreweave.crd import POOLS

sys.path.insert(0, str(Path(__file__).parent))

from coreweave_cluster import EVENTS, CoreweaveCluster, is_slice
from kube_server import NoBinariesError
from promises import read_audit

pytestmark = pytest.mark.slow

PATIENCE_S = 120
SMALL = Resources(cpu="1", memory="64MiB")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster with nothing in it; the tests of this module follow each other on it."""
    try:
        with CoreweaveCluster(tmp_path_factory.mktemp("troubles") / "cluster") as made:
            yield made
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    assert made.leftovers() == []


@pytest.fixture
async def scene(cluster):
    """The cluster, its client, and what is seen while a test lasts."""
    async with cluster.client() as client:
        await client.status()
        scene = Scene(cluster, client)
        try:
            yield scene
        except BaseException as error:
            error.add_note(cluster.report())
            raise
        finally:
            await scene.by_hand(cluster.heal)


class Scene:
    """What a test does and sees."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client
        self.began = cluster.audit_log.stat().st_size

    async def by_hand(self, function, *args):
        """Do something that waits, in the one thread for that."""
        return await asyncio.wrap_future(self.cluster.hands.submit(function, *args))

    async def mood(self, name):
        """Have a misfortune come true each time."""
        await self.by_hand(self.cluster.mood, {name: 1.0})

    async def submit(self, name, group="single"):
        """Submit a job that needs a slice of a group."""
        return await self.client.submit(Command(["true"]), name=name, resources=SMALL, constraints={"pool": group})

    def asked(self, verb):
        """Return the names of the pools for which the controller asked this since the test began, in order."""
        with self.cluster.audit_log.open(encoding="utf-8") as file:
            file.seek(self.began)
            asked = read_audit(line for line in file.read().splitlines() if line.endswith("}"))
        ours = [each for each in asked if each.ours and not each.unread and each.kind == "nodepools"]
        return [each.name for each in ours if each.verb == verb]

    def made(self):
        """Return the names of the pools that the controller asked for: a request without an answer is repeated."""
        return list(dict.fromkeys(self.asked("create")))

    async def told(self, reason):
        """Wait until a pool of this test is told so; give the pool's name and the text."""

        def of_it(items):
            made = self.made()
            return [each for each in items if each["reason"] == reason and each["involvedObject"]["name"] in made]

        items, held = await self.by_hand(self.cluster.until, EVENTS, of_it, PATIENCE_S)
        assert held, f"no pool was told {reason}: {sorted({each['reason'] for each in items})}"
        about, text = of_it(items)[0]["involvedObject"], of_it(items)[0]["message"]
        assert about["kind"] == "NodePool"
        return about["name"], text

    async def shown(self, holds):
        """Wait until the controller shows its users something: ``holds(slices, pools by group)``. Give that."""
        found = None
        with anyio.fail_after(PATIENCE_S):
            while not found:
                slices = await self.client.slices()
                found = holds(slices, {each.scale_group: each for each in await self.client.pools()})
                await anyio.sleep(0.1)  # lists are asked for: nobody tells of changes
        return found

    async def closed(self, group, availability):
        """Wait until a group is shown as closed so; give its reason."""
        shown = await self.shown(lambda _, pools: pools[group] if pools[group].availability == availability else None)
        return shown.reason

    async def gone(self):
        """Wait until no pool of ours is left."""
        pools, held = await self.by_hand(
            self.cluster.until, POOLS, lambda items: not [each for each in items if is_slice(each)], PATIENCE_S
        )
        assert held, f"left: {[each['metadata']['name'] for each in pools]}"


async def test_no_quota_gives_the_pool_up_and_closes_the_group_for_a_while(scene):
    """The cloud's own words come with it; once there is quota, the job gets its slice."""
    await scene.mood("pool quota exceeded")
    job = await scene.submit("quota")
    assert "quota" in (await scene.closed("single", "QUOTA_EXCEEDED")).lower()
    name, text = await scene.told("QuotaExceeded")
    assert text
    assert (await job.status()).state is JobState.PENDING
    await scene.by_hand(scene.cluster.heal)
    assert (await job.wait()).state is JobState.SUCCEEDED
    assert name in scene.asked("delete")
    assert len(scene.made()) > 1
    await scene.gone()


async def test_no_capacity_keeps_the_place_in_the_queue(scene):
    """Nothing is deleted or asked for again; the very pool gets its node when there is one."""
    await scene.mood("pool without capacity")
    job = await scene.submit("capacity")
    name, text = await scene.told("NoCapacity")
    assert text
    said = await scene.shown(lambda slices, _: [each for each in slices if "capacity" in each.reason.lower()])
    assert [each.slice_id for each in said] == [name]
    assert await scene.closed("single", "NO_CAPACITY")
    assert scene.made() == [name]
    assert scene.asked("delete") == []
    await scene.by_hand(scene.cluster.heal)
    assert (await job.wait()).state is JobState.SUCCEEDED
    await scene.gone()


async def test_a_slow_boot_is_told_and_replaced_in_the_end(scene):
    """First that it is slow; then another pool, under another name."""
    await scene.mood("pool never boots")
    job = await scene.submit("slow")
    name, text = await scene.told("SlowBoot")
    assert text
    await scene.shown(lambda _, __: len(scene.made()) > 1)
    assert name in scene.asked("delete")
    await scene.by_hand(scene.cluster.heal)
    assert (await job.wait()).state is JobState.SUCCEEDED
    await scene.gone()


async def test_a_deletion_that_is_stuck_is_told_and_repeated_and_blocks_nothing(scene):
    """What is needed meanwhile is served by another slice."""
    await scene.mood("deletion stuck")
    assert (await (await scene.submit("stuck")).wait()).state is JobState.SUCCEEDED
    name, text = await scene.told("DeletionStuck")
    assert text
    said = await scene.shown(lambda slices, _: [each for each in slices if each.slice_id == name])
    assert said[0].state == "DELETING"
    assert said[0].reason
    looks = scene.asked("get").count(name)  # one that is under way is looked at; asking again would change nothing
    await scene.shown(lambda _, __: scene.asked("get").count(name) > looks + 1)
    assert name in scene.asked("delete")
    assert (await (await scene.submit("beside")).wait()).state is JobState.SUCCEEDED
    assert len(scene.made()) > 1
    assert await scene.by_hand(scene.cluster.get, f"{POOLS}/{name}") is not None
    await scene.by_hand(scene.cluster.heal)
    await scene.gone()


async def test_an_invalid_specification_closes_its_group_and_no_other(scene):
    """Nothing is asked for again, because the same would come of it; people have to change something."""
    await scene.mood("pool invalid")
    job = await scene.submit("invalid", "pair")
    name, text = await scene.told("InvalidSpecification")
    assert text
    assert await scene.closed("pair", "INVALID_SPEC")
    await scene.by_hand(scene.cluster.heal)
    assert (await (await scene.submit("other group")).wait()).state is JobState.SUCCEEDED
    assert [each for each in scene.made() if "pair" in each] == [name]
    assert (await job.status()).state is JobState.PENDING
    await job.terminate()
    assert (await job.wait()).state is JobState.KILLED
    await scene.gone()
