"""Run documents: stored once, verified when read, bounded."""

import shlex

import pytest

from iriscw.controller.errors import SubmissionTooLarge
from iriscw.controller.stores import payloads as module
from iriscw.controller.stores.payloads import Payloads, display_name
from iriscw.jobs.model import EntrypointKind
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import ObjectNotFound, StoreUnreachable
from iriscw.proto.iriscw import v1
from raised import that

COMMAND = v1.Entrypoint(command=v1.Command(argv=["echo", "hi"]))
CALLABLE = v1.Entrypoint(callable=v1.Callable(payload=b"x" * 100, python_version="3.11", display_name="m.f"))


@pytest.mark.parametrize(
    ("entrypoint", "kind", "python", "name"),
    [(COMMAND, EntrypointKind.COMMAND, "", "echo hi"), (CALLABLE, EntrypointKind.CALLABLE, "3.11", "m.f")],
)
async def test_round_trip(entrypoint: v1.Entrypoint, kind: EntrypointKind, python: str, name: str) -> None:
    """What was kept is read back by another controller over the same store; keeping it again changes nothing."""
    store = FakeObjectStore()
    kept = await Payloads(store, "").keep(entrypoint, "b")
    assert (kept.kind, kept.python) == (kind, python)
    assert await Payloads(store, "").keep(entrypoint, "b") == kept
    assert (await Payloads(store, "").keep(entrypoint, "c")).payload_sha256 != kept.payload_sha256
    document = await Payloads(store, "").load(kept.payload_sha256)
    assert (bytes(document.entrypoint), document.bundle_id) == (bytes(entrypoint), "b")
    assert display_name(document) == name


def test_a_command_is_shown_whole_and_quoted() -> None:
    """What is shown can be given to a shell again, however long it is."""
    argv = ["sh", "-c", "echo 'a b'; exit 1", "", "x" * 5000]
    document = v1.TaskSpecification(entrypoint=v1.Entrypoint(command=v1.Command(argv=argv)))
    assert shlex.split(display_name(document)) == argv


async def test_damage_and_loss() -> None:
    """A document with other bytes than its name says is never handed out, and one that is gone is named."""
    store = FakeObjectStore()
    kept = await Payloads(store, "p").keep(COMMAND, "")
    await store.put(f"p/payloads/{kept.payload_sha256}", b"other")
    with pytest.raises(StoreUnreachable, check=that(comes_from="payloads.Payloads.load")):
        await Payloads(store, "p").load(kept.payload_sha256)
    with pytest.raises(ObjectNotFound):
        await Payloads(store, "p").load("0" * 64)


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large is refused; the cache gives up the oldest first."""
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 150)
    monkeypatch.setattr(module, "CACHE_BYTES", 150)
    store = FakeObjectStore()
    payloads = Payloads(store, "")
    with pytest.raises(SubmissionTooLarge):
        await payloads.keep(v1.Entrypoint(command=v1.Command(argv=["x" * 200])), "")
    kept = [await payloads.keep(v1.Entrypoint(command=v1.Command(argv=[f"{n}" * 60])), "") for n in range(3)]
    assert len(payloads._cache) == 2
    assert kept[-1].payload_sha256 in payloads._cache
