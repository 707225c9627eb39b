"""Storing, removing and collecting at the same time, in every order that a seed draws, with deaths in between.

Each call to the object store waits until the stage lets it go, one at a time; a caller that dies does so before its
call, or after it has had its effect. Threads are replaced by calls, so that a seed means one order.
"""

import random
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import attrs
import pytest
from hypothesis import given, strategies as st
from key_stage import both, encrypting
from repository_stage import contents_of, images, noise, repository, sealed, unseen

from iriscw._errors import IriscwError
from iriscw.checkpoint.drivers.repository.objects import RepositoryObjects
from iriscw.checkpoint.drivers.repository.protection import PLAIN
from iriscw.checkpoint.drivers.repository.storing import Storing
from iriscw.checkpoint.repository.contents import read_contents
from iriscw.checkpoint.repository.keys import named_manifest
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown
from iriscw.objects.drivers.fake import FakeObjectStore
from profiles import examples

BASE = 0x7F0000000000
NAMES = ("a", "b", "c")
NEWER = attrs.evolve(both(), own=encrypting(2).own, keys=encrypting(2, (1,)).keys)
SETTLES = 12
"""Steps of the event loop after which everybody waits for a turn, or nearly: a bound on what is tried, no more."""


class Died(Exception):
    """The process of a caller was killed."""


class Gated:
    """An object store whose every call waits for its turn."""

    def __init__(self, under, rng):
        self.under, self.rng, self.waiting = under, rng, []

    async def turn(self):
        """Wait; say whether the caller dies, and when."""
        event = anyio.Event()
        self.waiting.append(event)
        await event.wait()
        return self.rng.choices(("", "before", "after"), (60, 1, 1))[0]

    def let_one_go(self):
        """Let one of those that wait go."""
        self.waiting.pop(self.rng.randrange(len(self.waiting))).set()

    async def call(self, function, *args, **words):
        """Make a call in turn."""
        dies = await self.turn()
        if dies == "before":
            raise Died
        try:
            return await function(*args, **words)
        finally:
            if dies == "after":
                raise Died

    async def put(self, *args, **words):
        return await self.call(self.under.put, *args, **words)

    async def list(self, *args, **words):
        return await self.call(self.under.list, *args, **words)

    async def stat(self, *args, **words):
        return await self.call(self.under.stat, *args, **words)

    async def delete(self, *args, **words):
        return await self.call(self.under.delete, *args, **words)

    @asynccontextmanager
    async def get(self, *args, **words):
        if await self.turn():
            raise Died
        async with self.under.get(*args, **words) as reading:
            yield reading


@pytest.fixture(scope="module")
def inline():
    """Have threads be calls."""

    async def run_sync(function, *args, **words):
        await anyio.lowlevel.checkpoint()
        return function(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anyio.to_thread.run_sync", run_sync)
        yield


def memory_of(name, shared):
    """Return what a program of this name has in memory: much of it is what others have."""
    return {BASE: noise(1, 80), BASE + (1 << 30): noise(name if not shared else "all", 3)}


async def played(folder, seed, protection):
    """Play one seed, and return the store and what was certainly stored, or removed, by the name of a checkpoint.

    Whoever stores has these keys, or encrypts with a newer one; whoever removes or collects has none.
    """
    rng = random.Random(seed)
    store = FakeObjectStore()
    gate = Gated(store, rng)
    stored, unsure = {}, {}

    async def one(work):
        try:
            await work()
        except (Died, IriscwError):
            return
        finally:
            callers.remove(work)

    def storing(name, keys=protection):
        place = images(folder / name, memory_of(name, shared=True))

        async def work():
            unsure[name] = True
            await repository(gate, keys).store(name, place, sealed(place, name), unseen)
            if not removed.get(name):
                stored[name] = place

        return work

    def removing(name):
        async def work():
            removed[name] = True
            stored.pop(name, None)
            await repository(gate).remove(name)

        return work

    async def collecting():
        there = repository(gate)
        for _ in range(3):
            await there.collect(grace_s=0)

    removed = {}
    anew = protection if protection.own is None else NEWER
    kinds = [*(storing(name) for name in NAMES), *(storing(name, anew) for name in NAMES)]
    kinds += [collecting, collecting, collecting]
    kinds += [removing(name) for name in NAMES[:2]]
    rng.shuffle(kinds)
    callers = kinds[:9]
    async with anyio.create_task_group() as tasks:
        for work in callers.copy():
            tasks.start_soon(one, work)
        while callers:
            for _ in range(SETTLES):
                await anyio.lowlevel.checkpoint()
            if gate.waiting:
                gate.let_one_go()
    return store, stored


@given(seed=st.integers(0, 1 << 32), protection=st.sampled_from((PLAIN, both())))
@examples(20)  # a seed takes 140 ms
def test_what_can_be_seen_is_whole(seed, protection, tmp_path_factory, inline):
    """Whatever is interleaved, and whoever dies: a checkpoint that was stored can be fetched; so can all that is
    listed; and once all is removed, collections leave nothing behind.
    """
    folder = tmp_path_factory.mktemp("images")

    async def check():
        store, stored = await played(folder, seed, protection)
        there = repository(store, protection if protection.own is None else NEWER)
        assert set(stored) <= {each.artifact for each in await there.listing()}
        for each in await there.listing():
            assert not each.trouble
            into = folder / f"back-{each.artifact}"
            into.mkdir()
            await there.fetch(each.artifact, into, unseen)
            assert contents_of(into) == contents_of(folder / each.artifact)
            await there.remove(each.artifact)
        for _ in range(4):
            await there.collect(grace_s=0)
        assert set(store.contents()) <= {"format", "recent"}

    anyio.run(check)


async def test_who_refers_to_what_is_being_removed_stores_it_again(tmp_path, inline):
    """The removal of a pack had begun when somebody referred to it: the mark says so."""
    there = repository()
    place = images(tmp_path / "a", memory_of("a", shared=True))
    await there.store("a", place, sealed(place, "a"), unseen)
    (pack,) = [key for key in there.bucket.contents() if key.startswith("packs/")]
    await there.objects.mark(pack, removing=await there.objects.mark(pack))
    other = images(tmp_path / "b", memory_of("a", shared=True))
    await there.store("b", other, sealed(other, "b"), unseen)
    await there.bucket.delete(pack)
    await there.verify("b", unseen)
    with pytest.raises((ArtifactRefused, ArtifactUnknown)):
        await there.verify("a", unseen)


async def test_what_it_shares_goes_before_it_refers_to_it(tmp_path, monkeypatch):
    """Without a mark that is left: the pack is missed all the same, and its chunks are stored again."""
    there = repository()
    place = images(tmp_path / "a", memory_of("a", shared=True))
    await there.store("a", place, sealed(place, "a"), unseen)
    begun = Storing._begin

    async def late(storing, source):
        if await there.has("a"):
            await there.remove("a")
            for _ in range(3):
                await there.collect(grace_s=0)
        return await begun(storing, source)

    monkeypatch.setattr(Storing, "_begin", late)
    other = images(tmp_path / "b", memory_of("a", shared=True))
    await there.store("b", other, sealed(other, "b"), unseen)
    await there.verify("b", unseen)


@pytest.mark.parametrize("anew", [False, True])
async def test_an_attempt_that_was_given_up_is_not_shown(tmp_path, monkeypatch, anew):
    """Its manifest may be gone by then: it begins anew. So is one to encrypt anew what can be seen meanwhile."""
    there = repository(protection=both() if anew else PLAIN)
    lost, times = Storing._lost, []

    async def slow(storing, packs):
        found = await lost(storing, packs)
        if not times:
            times.append(storing.attempt)
            for _ in range(3):
                await there.collect(grace_s=0)
        return found

    place = images(tmp_path / "a", memory_of("a", shared=True))
    if anew:
        await there.store("a", place, sealed(place, "a"), unseen)
        there = repository(there.bucket, NEWER)
    monkeypatch.setattr(Storing, "_lost", slow)
    await there.store("a", place, sealed(place, "a"), unseen)
    shown, _ = await there.objects.shown("a")
    assert shown.attempt not in times
    await there.verify("a", unseen)


async def test_who_did_not_change_the_mark_removes_nothing(tmp_path, monkeypatch):
    """Between a plan and its removal somebody refers to the pack: the mark is gone, and the pack stays."""
    there = repository()
    place, other = (images(tmp_path / name, memory_of("a", shared=True)) for name in "ab")
    await there.store("a", place, sealed(place, "a"), unseen)
    await there.remove("a")
    await there.collect(grace_s=0)
    mark, times = RepositoryObjects.mark, []

    async def slow(objects, key, *, removing=None):
        if removing is not None and not times:
            times.append(key)
            await there.store("b", other, sealed(other, "b"), unseen)
        return await mark(objects, key, removing=removing)

    monkeypatch.setattr(RepositoryObjects, "mark", slow)
    known = await _places(there)

    async def learned(storing, source):
        storing._places.update(known)

    monkeypatch.setattr(Storing, "_learn", learned)
    await there.collect(grace_s=0)
    assert times
    await there.verify("b", unseen)


async def _places(there):
    """Return where all chunks lie that a manifest names."""
    (key,) = [key for key in there.bucket.contents() if key.startswith("manifests/")]
    contents = read_contents(there.bucket.contents()[key], *named_manifest(key))
    return {chunk.digest: chunk.place for file in contents.files for chunk in file.chunks if chunk.place.stored_bytes}
