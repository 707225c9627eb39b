"""The file that says until when programs may run: what is written is read, what cannot be trusted has run out."""

import errno
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw.processes import lease as module
from iriscw.processes.identity import boot_id
from iriscw.processes.lease import MAX_LINE_BYTES, NEVER_NS, LeaseFile, decode, encode
from raised import that

BOOT = "0a1b2c3d-0000-4000-8000-0123456789ab"
times = st.integers(0, NEVER_NS)


@given(times)
def test_what_is_written_is_read(until_ns: int) -> None:
    """Every line has the same length, so that it is written in place."""
    line = encode(BOOT, until_ns)
    assert decode(line, BOOT) == until_ns
    assert len(line) == len(encode(BOOT, 0)) <= MAX_LINE_BYTES


@given(times, times, st.data())
def test_half_of_a_write_is_never_believed(before_ns: int, after_ns: int, data: st.DataObject) -> None:
    """A line that is new up to some byte and old from there is either whole or says nothing."""
    old, new = encode(BOOT, before_ns), encode(BOOT, after_ns)
    cut = data.draw(st.integers(0, len(new)))
    assert decode(new[:cut] + old[cut:], BOOT) in (before_ns, after_ns, 0)


@given(st.binary(max_size=MAX_LINE_BYTES))
def test_anything_else_has_run_out(line: bytes) -> None:
    """An empty or damaged file, or another boot's, grants nothing."""
    assert decode(line, BOOT) == 0
    assert decode(encode("another-boot", NEVER_NS), BOOT) == 0


def test_the_next_writer_begins_with_what_was_written(tmp_path: Path) -> None:
    """A file that is new has run out; one that is found says what its last writer wrote."""
    path = tmp_path / "lease"
    first = LeaseFile(path)
    assert (first.until_ns, first.over) == (0, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    until_ns = time.monotonic_ns() + 3_600_000_000_000
    assert not first.hold(until_ns)
    first.write()
    first.close()
    second = LeaseFile(path)
    assert (second.until_ns, second.over) == (until_ns, False)
    assert second.hold(until_ns - 1), "sooner than it was: readers must be told"
    second.close()


def test_a_renewal_is_in_place(tmp_path: Path) -> None:
    """Whoever has the file open sees it: no other file takes its place, and it does not grow."""
    path = tmp_path / "lease"
    lease = LeaseFile(path)
    with path.open("rb", buffering=0) as reader:
        before = os.fstat(reader.fileno())
        lease.hold(NEVER_NS)
        lease.write()
        after = os.fstat(reader.fileno())
        assert decode(reader.read(), boot_id()) == NEVER_NS
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size) == (path.stat().st_ino, before.st_size)
    lease.close()


def test_a_link_is_no_lease(tmp_path: Path) -> None:
    """Nobody has us write elsewhere."""
    (tmp_path / "target").write_text("")
    (tmp_path / "lease").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, check=that(names="lease")):
        LeaseFile(tmp_path / "lease")


def _removed(path: Path) -> None:
    path.unlink()


def _link(path: Path) -> None:
    path.rename(path.with_name("target"))
    path.symlink_to("target")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("somebody's")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _another(path: Path) -> None:
    path.unlink()
    path.write_bytes(encode(boot_id(), NEVER_NS))


@pytest.mark.parametrize("change", [_removed, _link, _folder, _pipe, _another])
def test_the_file_is_put_back(tmp_path: Path, change) -> None:
    """Whatever took its place: who opens it next reads what holds, and who has the old one open reads it once more."""
    path = tmp_path / "lease"
    lease = LeaseFile(path)
    with path.open("rb", buffering=0) as reader:
        change(path)
        lease.hold(12345)
        lease.write()
        assert decode(reader.read(), boot_id()) == 12345
    assert path.is_file()
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lease.hold(67890)
    lease.write()
    assert decode(path.read_bytes(), boot_id()) == 67890
    if change is _folder:
        assert [each.read_text() for each in tmp_path.glob("*/file")] == ["somebody's"]
    lease.close()


def test_what_cannot_be_put_back_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk: programs that run have been told all the same, and the next write tries again."""
    path = tmp_path / "lease"
    lease = LeaseFile(path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with path.open("rb", buffering=0) as reader:
        path.unlink()
        monkeypatch.setattr(module, "write_atomic", full)
        lease.hold(12345)
        with pytest.raises(OSError, check=that(errno=errno.ENOSPC)):
            lease.write()
        assert decode(reader.read(), boot_id()) == 12345
    monkeypatch.undo()
    lease.write()
    assert decode(path.read_bytes(), boot_id()) == 12345
    lease.close()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_lease(tmp_path: Path, make) -> None:
    """Nobody waits for it."""
    make(tmp_path / "lease")
    with pytest.raises(OSError, check=that(names="lease")):
        LeaseFile(tmp_path / "lease")
