"""What each worker may hold: written before orders leave, the same after a restart."""

import errno
import os
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.controller import granted_attempts as module
from iriscw.controller.granted_attempts import HeldAttempts, HeldBroken
from profiles import examples

KEY, OTHER = ("w-0", "a"), ("w-0", "b")


async def test_give_and_strike(tmp_path: Path) -> None:
    """Uids stay in order until they are struck out; incarnations do not mix."""
    held = HeldAttempts(tmp_path / "held")
    await held.give(KEY, ["1", "2", "1", "3"])
    await held.give(OTHER, ["9"])
    await held.strike(KEY, ["2", "7"])
    for each in (held, HeldAttempts(tmp_path / "held")):
        assert (await each.of(KEY), await each.of(OTHER)) == (("1", "3"), ("9",))


@examples(30)
@given(steps=st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from("abcdef"), max_size=4)), max_size=20))
async def test_any_steps(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    """Whatever was given and struck out, a new record of the folder says the same."""
    root = tmp_path_factory.mktemp("held")
    held, model = HeldAttempts(root), {}
    for given_out, uids in steps:
        if given_out:
            await held.give(KEY, uids)
            model.update(dict.fromkeys(uids))
        else:
            await held.strike(KEY, uids)
            for uid in uids:
                model.pop(uid, None)
    assert set(await held.of(KEY)) == set(await HeldAttempts(root).of(KEY)) == set(model)


async def test_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record does not grow with what was struck out, over restarts neither."""
    monkeypatch.setattr(module, "REWRITE_LINES", 4)
    monkeypatch.setattr(module, "MAX_STRUCK", 2)
    for number in range(50):
        held = HeldAttempts(tmp_path)
        await held.give(KEY, [str(number)])
        await held.strike(KEY, [str(number)])
    status = Path(tmp_path, "w-0#a").stat()  # noqa: ASYNC240 - a test's own look at the disk
    assert status.st_size < 60
    assert status.st_mode & 0o777 == 0o600


async def test_what_was_let_go_is_the_next_ones(tmp_path: Path) -> None:
    """A worker that let a suspended attempt go is not believed about it any more, also by the next controller."""
    held = HeldAttempts(tmp_path)
    await held.give(KEY, ["1", "2"])
    await held.let_go(KEY, ["1", "7"])
    await held.give(OTHER, ["1"])
    for each in (held, HeldAttempts(tmp_path)):
        assert (await each.of(KEY), await each.of(OTHER)) == (("2",), ("1",))
        assert (each.owns(KEY, "1"), each.owns(OTHER, "1")) == (False, True)
    await held.let_go(OTHER, ["1"])
    await held.give(KEY, ["1"])
    assert held.owns(KEY, "1")


async def test_owns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt is its worker's from the order on, after it was struck out too, and nobody else's."""
    monkeypatch.setattr(module, "MAX_STRUCK", 2)
    held = HeldAttempts(tmp_path)
    assert not held.owns(KEY, "1")
    await held.give(KEY, ["1", "2", "3", "4"])
    await held.give(OTHER, ["9"])
    await held.strike(KEY, ["1", "2", "3"])
    again = HeldAttempts(tmp_path)
    assert not again.owns(KEY, "4"), "before its record was read"
    for each in (held, again):
        assert await each.of(KEY) == ("4",)
        await each.of(OTHER)
        assert [uid for uid in "12349" if each.owns(KEY, uid)] == ["2", "3", "4"]
        assert [uid for uid in "12349" if each.owns(OTHER, uid)] == ["9"]
    await again.retain([OTHER])
    assert not again.owns(KEY, "4")


async def test_a_line_that_was_not_finished(tmp_path: Path) -> None:
    """What a machine that stopped left of a line was never given out, and spoils no later line."""
    held = HeldAttempts(tmp_path)
    await held.give(KEY, ["1", "2"])
    path = tmp_path / "w-0#a"
    path.write_text(path.read_text()[:-2])
    again = HeldAttempts(tmp_path)
    assert await again.of(KEY) == ("1",)
    await again.give(KEY, ["3"])
    assert await HeldAttempts(tmp_path).of(KEY) == ("1", "3")


async def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives nothing out, keeps nobody from reading, and leaves no half of a line."""
    held = HeldAttempts(tmp_path)
    await held.give(KEY, ["1"])
    write, room = os.write, [2]

    def short(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: room.pop()])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        with pytest.raises(HeldBroken):
            await held.give(KEY, ["22"])
        assert not held.owns(KEY, "22")
        assert await HeldAttempts(tmp_path).of(KEY) == ("1",)
    await held.give(KEY, ["3"])
    for each in (held, HeldAttempts(tmp_path)):
        assert await each.of(KEY) == ("1", "3")


async def test_many_workers_are_given_by_few_writes(tmp_path: Path) -> None:
    """What leaves for a hundred workers at once is not handed to the disk a hundred times; one that cannot be written
    keeps no other.
    """
    held = HeldAttempts(tmp_path)
    keys = [(f"w-{number}", "i") for number in range(100)]
    for key in keys:
        await held.of(key)
    (tmp_path / "w-7#i").mkdir()
    refused = []

    async def give(key: tuple[str, str]) -> None:
        try:
            await held.give(key, [f"{key[0]}-a", f"{key[0]}-b"])
        except HeldBroken:
            refused.append(key)

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(give, key)
    assert held.giving.writes <= 2
    assert refused == [keys[7]]
    assert [key for key in keys if not held.owns(key, f"{key[0]}-a")] == refused
    (tmp_path / "w-7#i").rmdir()
    again = HeldAttempts(tmp_path)
    assert [len(await again.of(key)) for key in keys] == [2] * 7 + [0] + [2] * 92


async def test_retain(tmp_path: Path) -> None:
    """Records of incarnations that are gone are removed."""
    held = HeldAttempts(tmp_path)
    await held.give(KEY, ["1"])
    await held.give(OTHER, ["2"])
    await held.retain([OTHER])
    assert (await held.of(KEY), await held.of(OTHER)) == ((), ("2",))


async def test_broken_disk(tmp_path: Path) -> None:
    """What the disk refuses is a named error: the orders must not leave."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(HeldBroken):
        await HeldAttempts(tmp_path / "file").give(KEY, ["1"])
