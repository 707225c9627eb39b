"""A journal whose second copy is in a bucket: the whole way from the journal's writer to the service, and back."""

from contextlib import ExitStack, asynccontextmanager

import anyio
import anyio.to_thread
import gs_stage
import pytest
import s3_stage

from iriscw._errors import JournalLost
from iriscw.controller.stores.replica_store import open_vault
from iriscw.journal.conformance import BOUND_BYTES, REGISTRY, facts
from iriscw.journal.replica import Replica
from iriscw.journal.sqlite import SqliteJournal

pytestmark = pytest.mark.usefixtures("credentials")

in_thread = anyio.to_thread.run_sync
PATIENCE_S = 30.0


@pytest.fixture(params=[s3_stage.staged, gs_stage.staged], ids=["s3", "gs"])
def staged(request):
    """Make a stage of either service."""
    return request.param


@asynccontextmanager
async def opened(stage, folder, holder):
    """Open the journal of a folder, with the second copy in the stage's bucket."""
    with ExitStack() as stack:
        vault = await in_thread(stack.enter_context, open_vault("the bucket", lambda _: stage.new_store(), "journal/"))
        replica = Replica(vault, holder, per_base=4)
        journal = await in_thread(
            lambda: SqliteJournal.open(folder, replica=replica, registry=REGISTRY, bound_bytes=BOUND_BYTES)
        )
        try:
            yield journal
        finally:
            await in_thread(journal.close)
            await in_thread(stack.close)


async def settled(journal):
    """Wait until all that was accepted is durable."""
    with anyio.fail_after(PATIENCE_S):
        while journal.durable != journal.appended:  # noqa: ASYNC110 - another thread's
            await anyio.sleep(0.005)


async def append_for_ever(journal):
    """Append, until that fails."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            journal.append("/a", facts(3))
            await anyio.sleep(0.01)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", ["object reply lost", "object request lost", "object done and in trouble"])
async def test_a_journal_outlives_its_disk(tmp_path, staged, point) -> None:
    """What was acknowledged is there on another disk, although answers to commits were lost."""
    async with staged() as stage:
        async with opened(stage, tmp_path / "one", "first") as journal:
            for number in range(1, 8):
                if number % 2:
                    stage.surroundings.script(point, True)
                journal.append("/a", facts(number))
                await settled(journal)
        async with opened(stage, tmp_path / "two", "second") as journal:
            assert journal.read("/a") == facts(*range(1, 8))
            journal.append("/a", facts(8))
            await settled(journal)
        assert all(name.startswith("journal/") for name in stage.bodies())


async def test_one_writer(tmp_path, staged) -> None:
    """Who opens the journal elsewhere has it; the first one ends by name at its next commit."""
    async with staged() as stage, opened(stage, tmp_path / "one", "first") as first:
        first.append("/a", facts(1))
        await settled(first)
        async with opened(stage, tmp_path / "two", "second") as second:
            assert second.read("/a") == facts(1)
            second.append("/a", facts(2))
            await settled(second)
            with pytest.raises(JournalLost):
                await append_for_ever(first)
        async with opened(stage, tmp_path / "three", "third") as third:
            assert third.read("/a") == facts(1, 2)
