"""Status files: what a supervisor writes is read, and whatever else stands there has one name."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw.processes.ends import ProcessEnd
from iriscw.processes.identity import ProcessIdentity
from iriscw.processes.status import (
    StatusDamaged,
    decode_identities,
    read_end,
    read_identity,
    write_stop,
)
from raised import that

BOOT = "0a1b2c3d-0000-4000-8000-0123456789ab"
IDENTITY = {
    "boot_id": BOOT,
    "supervisor": {"pid": 7, "start_ticks": 70},
    "target": {"pid": 8, "start_ticks": 80},
}
ENDING = {
    "code": 3,
    "signal": None,
    "stopped": False,
    "killed": False,
    "lease_over": False,
    "out_of_memory": False,
    "max_rss_bytes": 5,
}


def put(folder: Path, name: str, content: object) -> None:
    (folder / name).write_bytes(json.dumps(content).encode().ljust(512))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """With the room behind it that was not needed."""
    put(tmp_path, "identity.json", IDENTITY)
    put(tmp_path, "exit.json", ENDING)
    assert read_identity(tmp_path) == (ProcessIdentity(7, 70, BOOT), ProcessIdentity(8, 80, BOOT))
    assert read_end(tmp_path) == ProcessEnd(3, None, max_rss_bytes=5)


def test_nothing_is_none(tmp_path: Path) -> None:
    """Nothing of the program was executed; it runs."""
    assert read_identity(tmp_path) is None
    assert read_end(tmp_path) is None


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("elsewhere")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _nested(path: Path) -> None:
    path.write_bytes(b"[" * 60_000)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _list(path: Path) -> None:
    path.write_bytes(b"[]")


@pytest.mark.parametrize("make", [_folder, _pipe, _link, _huge, _nested, _empty, _list])
def test_what_a_program_put_there_has_a_name(tmp_path: Path, make) -> None:
    """Nobody waits for it, and no other error comes of it."""
    for name in ("identity.json", "exit.json", "stop"):
        make(tmp_path / name)
    with pytest.raises(StatusDamaged, check=that(names="identity.json")):
        read_identity(tmp_path)
    with pytest.raises(StatusDamaged, check=that(names="exit.json")):
        read_end(tmp_path)
    if make in (_folder, _pipe, _link):
        with pytest.raises(OSError, check=that(names="stop")):
            write_stop(tmp_path, 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(IDENTITY)), st.sampled_from(["", "pid", "start_ticks"]), json_values)
def test_an_identity_is_whole_or_none(part: str, inner: str, value: object) -> None:
    """Whichever part is replaced by whatever: processes that can be, or one error."""
    content = json.loads(json.dumps(IDENTITY))
    if inner and part != "boot_id":
        content[part][inner] = value
    else:
        content[part] = value
    try:
        found = decode_identities(content)
    except ValueError:
        return
    for each in found:
        assert 0 < each.pid <= 1 << 22
        assert 0 <= each.start_ticks < 1 << 63
        assert isinstance(each.boot_id, str)


@pytest.mark.parametrize("name", sorted(ENDING))
def test_an_ending_is_whole_or_none(tmp_path: Path, name: str) -> None:
    """A part that is missing, or of another type, makes it none."""
    for changed in ({key: value for key, value in ENDING.items() if key != name}, {**ENDING, name: "x"}):
        put(tmp_path, "exit.json", changed)
        with pytest.raises(StatusDamaged):
            read_end(tmp_path)


@pytest.mark.parametrize(("code", "signal"), [(None, None), (1, 1)])
def test_an_ending_is_a_code_or_a_signal(tmp_path: Path, code: int | None, signal: int | None) -> None:
    """Supervisors know which."""
    put(tmp_path, "exit.json", {**ENDING, "code": code, "signal": signal})
    with pytest.raises(StatusDamaged):
        read_end(tmp_path)


def test_an_order_to_stop_is_written_in_place(tmp_path: Path) -> None:
    """Into the file that is there, whose room it does not exceed; twice, as a reader may see half of it."""
    path = tmp_path / "stop"
    with pytest.raises(FileNotFoundError):
        write_stop(tmp_path, 2.5)
    path.write_bytes(bytes(64))
    before = path.stat()
    for grace_s in (86400.0, 2.5):
        write_stop(tmp_path, grace_s)
    after = path.stat()
    assert path.read_bytes().split() == [b"2.500", b"2.500"]
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
