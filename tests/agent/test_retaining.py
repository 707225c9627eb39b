"""An agent that applies a policy of retention by itself: real folders and a journal, a repository in memory."""

import math
import sys
import time
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for moves

from agent_world import PATIENCE_S, StepWorld, agent_of
from moves import MemoryRepository, Places

from iriscw.agent.retaining import AGAIN_S, Retainer, candidates
from iriscw.checkpoint.retention import KeptCheckpoint, RetentionPolicy
from iriscw.freeze.traits import CarriedFolder
from iriscw.objects.ports import StoreUnreachable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]

LAST = RetentionPolicy(max_checkpoints=1)


def names(folder):
    """Return what a tier has."""
    return sorted(each.artifact for each in folder.listing())


@pytest.fixture
def disk(tmp_path):
    """A tier with three checkpoints, the first one the oldest."""
    places = Places(tmp_path / "places")
    for number in (1, 2, 3):
        places.put("disk", f"ck-{number}")
    return places.tiers().folders["disk"]


async def test_the_oldest_go_by_themselves(tmp_path, disk):
    """When it starts, and when an operation has ended; what the repository has stays, and takes no place."""
    repository = MemoryRepository()
    await repository.store("ck-1", disk.images("ck-1"), disk.text("ck-1"), lambda progress: None)
    async with agent_of(tmp_path, StepWorld(), folders=[disk]) as (agent, _):
        agent.machine.tiers.repository = repository
        retainer = Retainer(LAST, agent, agent._figures)
        repository.failing = {"listing": StoreUnreachable("no answer")}
        with pytest.raises(StoreUnreachable):
            await retainer._apply(LAST)
        assert names(disk) == ["ck-1", "ck-2", "ck-3"]
        repository.failing = {}
        assert await retainer._apply(LAST) == math.inf
        assert names(disk) == ["ck-1", "ck-3"]
        assert agent._figures.registry.get_sample_value("iriscw_agent_checkpoints_expired_total") == 1


async def test_what_is_stored_meanwhile_stays_in_the_repository(tmp_path, disk):
    """It was in this machine's tiers alone when the round began; what goes are the copies here."""
    repository = MemoryRepository()
    async with agent_of(tmp_path, StepWorld(), folders=[disk]) as (agent, _):
        agent.machine.tiers.repository = repository
        found = await agent.look()

        async def look():
            await repository.store("ck-1", disk.images("ck-1"), disk.text("ck-1"), lambda progress: None)
            return found

        agent.look = look
        await Retainer(LAST, agent, agent._figures)._apply(LAST)
        assert names(disk) == ["ck-3"]
        assert "ck-1" in repository.kept


@pytest.mark.parametrize("broken", ["pins/ck-1", ""])
async def test_one_that_cannot_be_read_or_removed_keeps_none_of_the_others(tmp_path, disk, broken):
    """It stays, and the policy goes on with the rest."""
    if broken:
        place = disk.root / broken
        place.unlink(missing_ok=True)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(place)  # ELOOP, whoever looks
    async with agent_of(tmp_path, StepWorld(), folders=[disk]) as (agent, _):
        remove = agent.remove

        async def refuses(artifact, **words):
            if artifact == "ck-1":
                raise OSError(5, "it cannot be removed")
            await remove(artifact, **words)

        agent.remove = refuses
        await Retainer(LAST, agent, agent._figures)._apply(LAST)
        assert names(disk) == (["ck-1", "ck-3"] if broken else ["ck-1"])


async def test_what_is_to_come_to_a_repository_is_needed(disk):
    """Also where its attempt's folder has gone with its worker: the checkpoint carries it."""
    found = disk.look_at("ck-1")
    for carried in (None, CarriedFolder("/gone/u", "ck-1", 0)):
        frozen = attrs.evolve(found.manifest.frozen, guard="/gone/u", carried=carried)
        (each,) = candidates([attrs.evolve(found, manifest=attrs.evolve(found.manifest, frozen=frozen))])
        assert bool(each.needed) is (carried is not None)


async def test_an_agent_with_a_policy(tmp_path, disk):
    """It applies it: what a thaw uses stays, and takes the place of another."""
    disk.pin("ck-1", "th-1")
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, StepWorld(), folders=[disk], retention=LAST):
            while names(disk) != ["ck-1"]:  # noqa: ASYNC110 - nobody is told of a removal
                await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("policy", "needed", "refused", "due_s"),
    [
        (LAST, "", False, math.inf),
        (LAST, "it is used", False, AGAIN_S),
        (LAST, "", True, AGAIN_S),
        (RetentionPolicy(max_age_ms=100_000), "", False, 90),
        (RetentionPolicy(max_age_ms=100_000), "it is used", False, AGAIN_S),
        (RetentionPolicy(max_age_ms=1), "", False, 0),
    ],
)
def test_when_it_is_due_again(policy, needed, refused, due_s):
    """When the oldest is too old; after a while, if somebody needed one; else with the next operation."""
    sealed = time.time_ns() // 1_000_000 - 10_000
    kept = [KeptCheckpoint("ck-1", 1, sealed, needed=needed)]
    found = Retainer._due_s(policy, kept, refused=refused)
    assert found == due_s or math.isclose(found, due_s, abs_tol=5)
    assert Retainer._due_s(policy, [attrs.evolve(kept[0], sealed_at_ms=sealed + 10_000)], refused=refused) >= found
