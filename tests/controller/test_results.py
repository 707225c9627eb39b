"""The result store: whole and verified, or not there."""

import hashlib
from pathlib import Path

import pytest

from iriscw.controller.results import MAX_RESULT_BYTES, Reference, ResultStore, ResultStoreBroken, ResultTooBig

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
    return None if result is None else await store.read(result, 0, 1 << 20)


@pytest.mark.parametrize("data", [b"", b"x", b"value" * 1000])
async def test_result(tmp_path: Path, data: bytes) -> None:
    """A result is there when all of it is and the hash fits, and is the same after a restart."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 2, 1, UID)
    for offset in range(0, len(data), 999):
        assert not await store.settle(UID, reference(data))
        assert await read(store) is None
        assert await store.append(UID, offset, data[offset : offset + 999]) == min(offset + 999, len(data))
    assert await store.settle(UID, reference(data))
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
    assert await again.settle(UID, reference(b"abcd"))
    assert await read(again) == b"abcd"


async def test_other_bytes(tmp_path: Path) -> None:
    """Bytes that do not have the hash are thrown away and wanted again."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"wrong")
    assert not await store.settle(UID, reference(b"right"))
    assert store.stored(UID) == 0
    await store.append(UID, 0, b"right")
    assert await store.settle(UID, reference(b"right"))
    assert await store.append(UID, 0, b"later") == 5, "what is verified stays as it is"
    assert await read(store) == b"right"


async def test_limits_and_strangers(tmp_path: Path) -> None:
    """Unknown attempts have no result, and a Python that is none is not taken for one."""
    store = await ResultStore.open(tmp_path)
    assert await store.append(UID, 0, b"x") is None
    assert not await store.settle(UID, reference(b"x"))
    result = store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"x")
    assert not await store.settle(UID, reference(b"x", "../../x"))
    result.size_bytes = MAX_RESULT_BYTES
    with pytest.raises(ResultTooBig):
        await store.append(UID, MAX_RESULT_BYTES, b"x")


async def test_forget(tmp_path: Path) -> None:
    """A forgotten job leaves nothing."""
    store = await ResultStore.open(tmp_path)
    store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"x")
    assert store.jobs() == [JOB]
    await store.forget(JOB)
    assert (store.jobs(), left(tmp_path)) == ([], [])


async def test_broken_disk(tmp_path: Path) -> None:
    """What the disk refuses is a named error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResultStoreBroken):
        await ResultStore.open(tmp_path / "file")
