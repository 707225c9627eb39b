"""The result store: whole and verified, or not there."""

import hashlib
from pathlib import Path

import pytest

from iriscw.controller.stores.archive import StoredDamaged
from iriscw.controller.stores.result_model import (
    Reference,
    ResultCorrupt,
    ResultMissing,
    ResultStoreBroken,
    ResultTooBig,
    ResultVerdict,
)
from iriscw.controller.stores.results import MAX_MISMATCHES, ResultStore
from iriscw.rpc.limits import MAX_RESULT_BYTES
from raised import that

JOB = "job-aaaaaaaaaaaa"
UID = "0" * 16


def left(folder: Path) -> list[str]:
    """What lies in a folder."""
    return [path.name for path in folder.iterdir()]


def reference(data: bytes, python: str = "3.11") -> Reference:
    """The reference of a result."""
    return Reference(len(data), hashlib.sha256(data).hexdigest(), python)


async def read(store: ResultStore) -> bytes | None:
    """The verified result, if there is one."""
    result = store.result(UID)
    return None if result is None else b"".join([piece async for piece in store.read(result)])


@pytest.mark.parametrize("data", [b"", b"x", b"value" * 1000])
async def test_result(tmp_path: Path, data: bytes) -> None:
    """A result is there when all of it is and the hash fits, and is the same after a restart."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 2, 1, UID)
    for offset in range(0, len(data), 999):
        assert await store.settle(UID, reference(data)) is ResultVerdict.WANTED
        assert await read(store) is None
        assert await store.append(UID, offset, data[offset : offset + 999]) == min(offset + 999, len(data))
    assert await store.settle(UID, reference(data)) is ResultVerdict.KEPT
    assert await read(store) == data
    again = await ResultStore.open(tmp_path)
    assert await read(again) == data
    found = again.result(UID)
    assert found is not None
    assert (found.index, found.number, found.reference) == (2, 1, reference(data))


async def test_half_a_result_survives_a_restart(tmp_path: Path) -> None:
    """A result that was on its way goes on from where it was."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"abc")
    again = await ResultStore.open(tmp_path)
    assert await again.append(UID, 0, b"abcd") == 4
    assert await again.append(UID, 9, b"zz") == 4
    assert await again.settle(UID, reference(b"abcd")) is ResultVerdict.KEPT
    assert await read(again) == b"abcd"


async def test_other_bytes(tmp_path: Path) -> None:
    """Bytes that do not have the hash are thrown away and wanted again."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"wrong")
    assert await store.settle(UID, reference(b"right")) is ResultVerdict.WANTED
    assert store.stored(UID) == 0
    await store.append(UID, 0, b"right")
    assert await store.settle(UID, reference(b"right")) is ResultVerdict.KEPT
    assert await store.append(UID, 0, b"later") == 5, "what is verified stays as it is"
    assert await read(store) == b"right"


async def test_strangers(tmp_path: Path) -> None:
    """Unknown attempts have no result, and none is ever refused them."""
    store = await ResultStore.open(tmp_path)
    assert await store.append(UID, 0, b"x") is None
    assert await store.settle(UID, reference(b"x")) is ResultVerdict.WANTED
    await store.give_up(UID)
    assert store.refusal(UID) is None


async def refused(store: ResultStore, told: Reference, error: type[Exception]) -> None:
    """The result is refused by name and for ever: nothing of it is kept, and its worker may send what it likes."""
    assert await store.settle(UID, told) is ResultVerdict.REFUSED
    assert isinstance(store.refusal(UID), error)
    assert UID in str(store.refusal(UID))
    assert await store.append(UID, 7, b"more") == 11, "all is taken, so that its worker comes to the end"
    assert await store.settle(UID, reference(b"")) is ResultVerdict.REFUSED
    assert store.stored(UID) == 0
    assert await read(store) is None


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (Reference(MAX_RESULT_BYTES + 1, "0" * 64, "3.11"), ResultTooBig),
        (Reference(-1, "0" * 64, "3.11"), ResultCorrupt),
        (Reference(1, "0" * 63, "3.11"), ResultCorrupt),
        (Reference(1, "../" + "0" * 61, "3.11"), ResultCorrupt),
        (reference(b"x", "../../x"), ResultCorrupt),
        (reference(b"x", ""), ResultCorrupt),
    ],
)
async def test_descriptions_that_fit_nothing(tmp_path: Path, told: Reference, error: type[Exception]) -> None:
    """A result that is too big, or described as no result is, is refused before it comes."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"x")
    await refused(store, told, error)
    assert left(tmp_path / JOB) == []


async def test_more_than_was_announced(tmp_path: Path) -> None:
    """A result that grows beyond the limit is thrown away while it comes, without an error, and refused at the end."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    chunk = bytes(1 << 20)
    for offset in range(0, MAX_RESULT_BYTES, len(chunk)):
        assert await store.append(UID, offset, chunk) == offset + len(chunk)
    assert store.refusal(UID) is None, "the limit itself is no more than the limit"
    assert await store.append(UID, MAX_RESULT_BYTES, b"x") == MAX_RESULT_BYTES + 1
    assert left(tmp_path / JOB) == []
    await refused(store, reference(b"right"), ResultTooBig)


async def test_other_bytes_again_and_again(tmp_path: Path) -> None:
    """What comes wrong as often as that is not the network's fault."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    for number in range(MAX_MISMATCHES):
        assert await store.settle(UID, reference(b"right")) is ResultVerdict.WANTED, f"{number} times"
        await store.append(UID, 0, b"wrong")
    await refused(store, reference(b"right"), ResultCorrupt)


@pytest.mark.parametrize("came", [b"", b"rig"])
async def test_a_result_that_does_not_come(tmp_path: Path, came: bytes) -> None:
    """It can be given up; one that is here is not."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, came)
    await store.give_up(UID)
    await refused(store, reference(b"right"), ResultMissing)
    store.begin(JOB, 1, 0, "1" * 16)
    await store.append("1" * 16, 0, b"right")
    assert await store.settle("1" * 16, reference(b"right")) is ResultVerdict.KEPT
    await store.give_up("1" * 16)
    assert await store.settle("1" * 16, reference(b"right")) is ResultVerdict.KEPT


async def test_forget(tmp_path: Path) -> None:
    """A forgotten job leaves nothing."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"x")
    assert await store.jobs() == [JOB]
    await store.forget(JOB)
    assert (await store.jobs(), left(tmp_path)) == ([], [])


@pytest.mark.parametrize("spoilt", [b"rihgt", b"righ", b"rights"])
async def test_what_the_disk_has_spoilt_is_not_given_out(tmp_path: Path, spoilt: bytes) -> None:
    """Not its last byte: no reader takes it for the result."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"right")
    assert await store.settle(UID, reference(b"right")) is ResultVerdict.KEPT
    [path] = (tmp_path / JOB).iterdir()
    path.write_bytes(spoilt)
    with pytest.raises(StoredDamaged, check=that(comes_from="archive.verified")):
        await read(store)


async def test_broken_disk(tmp_path: Path) -> None:
    """What the disk refuses is a named error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResultStoreBroken):
        await ResultStore.open(tmp_path / "file")
