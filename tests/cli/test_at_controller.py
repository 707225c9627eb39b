"""What a cluster's agents are asked for by commands, and how the end of it is told."""

import json

import anyio
import click
import pytest

from iriscw.cli import connection
from iriscw.cli.at_controller import _COLUMNS
from iriscw.cli.connection import job_named
from iriscw.client import nodes as at_nodes
from iriscw.client.errors import NoController, OrderFailed
from iriscw.client.model import OrderStatus, TaskSuspension
from iriscw.client.nodes import Checkpoint, CheckpointCopy
from iriscw.jobs.errors import NoSuchJob
from iriscw.jobs.model import Suspension
from iriscw.proto.iriscw import v1
from raised import that

DISK = Checkpoint("ck-1", "n1", "disk", 4)
ELSEWHERE = Checkpoint("ck-1", "n2", "ram", 4)


class ClientDouble:
    """Suspends task 0 at once, or finds it suspended, and lists checkpoints."""

    def __init__(self, phases, held):
        self.phases = phases
        self.held = held

    async def suspend(self, job, *, seen, **_):
        for phase in self.phases:
            seen(found := TaskSuspension(0, "u0", phase=Suspension(phase), checkpoint="ck-1", node="n1"))
        return found

    async def checkpoints(self):
        return self.held

    async def verify(self, checkpoint, *, node, seen):
        seen(status := OrderStatus("vf-1", node, "verify", checkpoint, outcome="verified", text="disk, ram"))
        return status

    async def move(self, checkpoint, tier, *, node, keep, seen):
        seen(status := OrderStatus("mv-1", node, "move", checkpoint, outcome="copied" if keep else "moved", tier=tier))
        return status


@pytest.fixture
def cluster(monkeypatch):
    """Say what the controller gives."""

    def with_double(phases, held=(DISK, ELSEWHERE)):
        double = ClientDouble(phases, held)
        monkeypatch.setattr(connection, "with_client", lambda address, token, work: anyio.run(work, double))

    return with_double


def test_a_suspended_task_is_told_where_it_is(iriscw, cluster):
    """Its checkpoint's tier is told, not the one that was asked for: it may have been suspended before."""
    cluster(["SUSPENDING", "SUSPENDED"])
    assert iriscw("checkpoint", "st", "--tier", "disk")[1] == "ck-1: task 0 is suspended, in disk of n1\n"
    cluster(["SUSPENDED"])
    assert iriscw("checkpoint", "st")[1] == "ck-1: task 0 was suspended already, in disk of n1\n"
    told = json.loads(iriscw("checkpoint", "st", "-o", "json")[1])
    assert (told["outcome"], told["tier"], told["already"]) == ("suspended", "disk", True)


def test_a_row_has_all_copies():
    """With the node of each that is not in the row, which of them cannot be used, and why."""
    copies = (CheckpointCopy("n1", "disk", 4), CheckpointCopy("n1", "ram", 4, "torn"), CheckpointCopy("n2", "disk", 4))
    checkpoint = Checkpoint("ck-1", "n1", "disk", 4, labels={"a": "b"}, copies=copies)
    assert str(_COLUMNS["TIER"](checkpoint)) == "disk, ram (unusable), n2:disk"
    assert str(_COLUMNS["LABELS"](checkpoint)) == "a=b; ram: torn"


async def test_a_checkpoint_is_removed_on_each_of_its_nodes(monkeypatch):
    """Once, however many copies lie there."""
    asked = []

    async def follow(calls, method, request, key, seen):
        asked.append((method, request.checkpoint_id, request.node))

    monkeypatch.setattr(at_nodes, "follow", follow)
    copies = (CheckpointCopy("n1", "disk", 4), CheckpointCopy("n1", "ram", 4), CheckpointCopy("n2", "disk", 4))
    await Checkpoint("ck-1", "n1", "disk", 4, calls=object(), copies=copies).delete()
    assert asked == [("DeleteCheckpoint", "ck-1", "n1"), ("DeleteCheckpoint", "ck-1", "n2")]


async def test_what_a_repository_has_is_removed_last(monkeypatch):
    """Until then agents leave it alone; one that has it and a copy of its own is asked twice."""
    asked = []

    async def follow(calls, method, request, key, seen):
        asked.append((request.node, request.here_only))

    monkeypatch.setattr(at_nodes, "follow", follow)
    places = (("n2", "disk"), ("n1", "disk"), ("n1", "repository"))
    copies = tuple(CheckpointCopy(node, tier, 4) for node, tier in places)
    await Checkpoint("ck-1", "n2", "disk", 4, calls=object(), copies=copies).delete()
    assert asked == [("n2", True), ("n1", True), ("n1", False)]
    asked.clear()
    await Checkpoint("ck-1", "n1", "repository", 4, calls=object()).delete()
    assert asked == [("n1", False)]


async def test_each_repository_is_listed_by_one_agent(monkeypatch):
    """Of those that are heard of; one that cannot be listed is an error, and nothing is shown."""
    asked, failing = [], []

    async def follow(calls, method, request, key, seen):
        asked.append((method, request.node))
        if request.node in failing:
            raise OrderFailed("it does not answer", operation="ls-1", outcome="refused", kind="StoreUnreachable")

    class Calls:
        """Four nodes, and their checkpoints."""

        async def ask(self, method, request, reply):
            said = {"n4": ("s3://b", 2), "n1": ("s3://b", 3), "n2": ("s3://b", 2), "n3": ("gs://c", 2), "n5": ("", 2)}
            return reply(
                nodes=[
                    v1.NodeStatus(
                        node=node, state=v1.NodeState(state), capabilities=v1.CapabilitiesResponse(repository=url)
                    )
                    for node, (url, state) in said.items()
                ]
            )

        async def stream(self, method, request, kind):
            asked.append((method, request().stored_by))
            for each in ():
                yield each

    monkeypatch.setattr(at_nodes, "follow", follow)
    assert await at_nodes.listing(Calls(), "", "", {}, stored=True) == []
    listed = [("ListRepository", "n2"), ("ListRepository", "n3")]
    assert asked == [*listed, ("ListNodeCheckpoints", ["n2", "n3"])]
    asked.clear()
    await at_nodes.listing(Calls(), "", "n3", {}, stored=True)
    assert asked == [("ListRepository", "n3"), ("ListNodeCheckpoints", ["n3"])]
    failing.append("n2")
    with pytest.raises(OrderFailed):
        await at_nodes.listing(Calls(), "", "", {}, stored=True)


def test_a_checkpoint_is_moved_on_its_node(iriscw, cluster):
    """By its agent; options of this machine are refused, and those of a cluster without --cluster."""
    cluster([])
    told = iriscw("move", "ck-1", "repository", "--cluster", "--node", "n1", "--keep", "-o", "json")
    shown = json.loads(told[1])
    assert (shown["outcome"], shown["tier"]) == ("copied", "repository of n1")
    for words in (("--cluster", "--state-dir", "x"), ("--node", "n1")):
        assert iriscw("move", "ck-1", "disk", *words)[0] == 2


def test_each_node_of_a_checkpoint_verifies_it(iriscw, cluster):
    """One after the other; or one node that is named, whatever is known of its copies."""
    copies = (CheckpointCopy("n1", "disk", 4), CheckpointCopy("n1", "ram", 4), CheckpointCopy("n2", "disk", 4))
    cluster([], held=[Checkpoint("ck-1", "n1", "disk", 4, copies=copies)])
    lines = iriscw("verify", "ck-1", "--cluster")[1].splitlines()
    assert [line.partition(" in disk, ram ")[2] for line in lines] == ["of n1", "of n2"]
    assert "ck-9: verified" in iriscw("verify", "ck-9", "--cluster", "--node", "n7")[1]


def test_a_tier_that_is_not_known_is_not_told(iriscw, cluster):
    """The agent that holds it may not have told of it yet."""
    cluster(["SUSPENDING", "SUSPENDED"], held=[ELSEWHERE])
    assert iriscw("checkpoint", "st", "--tier", "disk")[1] == "ck-1: task 0 is suspended, on n1\n"


@pytest.mark.parametrize("command", ["resume", "stop", "job", "logs", "checkpoint"])
def test_a_checkpoint_where_a_job_is_wanted(iriscw, command):
    """With no controller known the id alone tells what was meant; a job's name is told what is missing."""
    code, _, err = iriscw(command, "ck-a7kvx")
    assert code == 2
    assert "ck-a7kvx is a checkpoint, and a JOB is wanted: `iriscw restore ck-a7kvx` brings it back" in err
    assert f"see `iriscw {command} --help`" in err
    assert "no controller is known here" in iriscw(command, "train")[2]


@pytest.mark.parametrize("error", [NoSuchJob, NoController])
def test_a_job_may_be_called_as_a_checkpoint_is(error):
    """Only what was not found is doubted; other errors, and other names, stay what they are."""
    with job_named("ck-a"):
        pass
    with pytest.raises(error), job_named("train", "ck-A b"):
        raise error("none")
    with pytest.raises(RuntimeError), job_named("ck-a"):
        raise RuntimeError
    with (
        pytest.raises(click.UsageError, check=that(comes_from="connection.job_named", names="ck-a")),
        job_named("train", "ck-a"),
    ):
        raise error("none")
