"""How a policy is applied: what turns out to be needed takes its place, and an error leaves the rest."""

import contextlib

import anyio
import pytest

from iriscw.checkpoint.retention import KeptCheckpoint, RetentionPolicy
from iriscw.cli.at_agent import check_repository
from iriscw.cli.retaining import retain
from iriscw.client.errors import OrderFailed
from iriscw.freeze.model import ArtifactInUse
from iriscw.nodes.errors import AgentAway, CheckpointNeeded
from iriscw.objects.ports import StoreUnreachable
from iriscw.proto.iriscw import v1

CANDIDATES = [KeptCheckpoint(f"ck-{number}", 1, number) for number in (1, 2, 3, 4)]


def applied(errors, policy, **more):
    """Apply a policy where some cannot be removed; return what was."""
    removed = []

    async def remove(checkpoint):
        if checkpoint in errors:
            raise errors[checkpoint]
        removed.append(checkpoint)

    async def apply():
        await retain(CANDIDATES, policy, remove=remove, **{"dry_run": False, **more})

    anyio.run(apply)
    return removed


NEEDED = (CheckpointNeeded("x"), ArtifactInUse("x"), OrderFailed("x", operation="o", outcome="refused", kind="y"))


@pytest.mark.parametrize("error", NEEDED)
def test_what_turns_out_to_be_needed(error, capsys):
    """It stays and is counted, so another one goes in its place; and it is asked for once."""
    assert applied({"ck-1": error}, RetentionPolicy(max_checkpoints=2)) == ["ck-2", "ck-3"]
    assert capsys.readouterr().err.count("ck-1 stays") == 1


def test_what_cannot_be_removed(capsys):
    """It is told, all others are looked at, and the command does not end well."""
    errors = {"ck-1": PermissionError("no right"), "ck-3": OSError("busy")}
    with pytest.raises(PermissionError):
        applied(errors, RetentionPolicy(max_checkpoints=1))
    err = capsys.readouterr().err
    assert [each for each in ("ck-1", "ck-2", "ck-3", "ck-4") if f"{each} stays" in err] == ["ck-1", "ck-3"]
    assert [each for each in ("ck-2", "ck-4") if f"removed {each}" in err] == ["ck-2", "ck-4"]


def test_a_dry_run(capsys):
    """It removes nothing."""
    assert applied({}, RetentionPolicy(max_checkpoints=2), dry_run=True) == []
    assert capsys.readouterr().err.splitlines() == [
        "iriscw: would remove ck-1: beyond max-checkpoints",
        "iriscw: would remove ck-2: beyond max-checkpoints",
    ]


def test_an_error_is_told():
    """Nothing is guessed of a node that does not answer."""
    with pytest.raises(AgentAway):
        applied({"ck-1": AgentAway("away")}, RetentionPolicy(max_checkpoints=2))


@pytest.mark.parametrize("trouble", ["", "no answer"])
def test_an_agent_that_cannot_read_its_repository(trouble):
    """A policy leaves alone what the repository has: where nobody knows that, nothing is removed."""

    class Agent:
        async def capabilities(self):
            return v1.CapabilitiesResponse(tiers=[v1.TierView(name="repository", repository=True, trouble=trouble)])

    with pytest.raises(StoreUnreachable) if trouble else contextlib.nullcontext():
        anyio.run(check_repository, Agent())
