"""Leave for one thaw: whatever comes in whatever order, a grant is taken or withdrawn once, and never offered again."""

import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw.processes import supervisor
from iriscw.processes.grants import (
    OFFERED,
    TAKEN,
    Grant,
    GrantRefused,
    GrantStanding,
    decode,
    offer,
    owner_of,
    standing_of,
    withdraw,
)
from iriscw.processes.lease import LeaseFile
from raised import that

GRANT = Grant("thaw-1", "worker-b/life-1", Path("/lease"))
names = st.text(min_size=1, max_size=20)


@given(names, names, names)
def test_what_is_written_is_read(name: str, owner: str, lease: str) -> None:
    """An offer says the same to whoever takes it."""
    grant = Grant(name, owner, Path(lease))
    assert decode(grant.encode()) == grant


@pytest.mark.parametrize("data", [b"", b"[]", b'{"id": "a"}', b'{"id": "a", "owner": "b", "lease": 3}', b"[" * 100_000])
def test_anything_else_grants_nothing(data: bytes) -> None:
    """It is no grant, and nothing worse."""
    with pytest.raises(ValueError):
        decode(data)


def test_a_grant_is_taken_or_withdrawn(tmp_path: Path) -> None:
    """Who comes second finds none; who asks is told which it was."""
    assert standing_of(tmp_path, "thaw-1") is GrantStanding.NONE
    assert owner_of(tmp_path) is None
    assert offer(tmp_path, GRANT) is GrantStanding.OFFERED
    assert owner_of(tmp_path) == GRANT.owner
    assert supervisor._take_grant(str(tmp_path)) == "/lease"
    assert withdraw(tmp_path, "thaw-1") is GrantStanding.TAKEN
    assert owner_of(tmp_path) == GRANT.owner
    with pytest.raises(FileNotFoundError):
        supervisor._take_grant(str(tmp_path))
    second = Grant("thaw-2", "third", Path("/lease-2"))
    assert offer(tmp_path, second) is GrantStanding.OFFERED
    assert withdraw(tmp_path, "thaw-2") is GrantStanding.WITHDRAWN
    with pytest.raises(FileNotFoundError):
        supervisor._take_grant(str(tmp_path))
    with pytest.raises(GrantRefused, check=that(comes_from="grants.offer")):
        offer(tmp_path, second)


def test_two_owners_never_grant_at_once(tmp_path: Path) -> None:
    """An offer replaces none: the first one stands, and leaves nothing beside it."""
    offer(tmp_path, GRANT)
    with pytest.raises(GrantRefused, check=that(comes_from="grants.offer")):
        offer(tmp_path, Grant("thaw-2", "third", Path("/lease")))
    assert owner_of(tmp_path) == GRANT.owner
    assert [path.name for path in tmp_path.iterdir()] == [OFFERED]


@given(st.lists(st.sampled_from(["offer", "take", "withdraw"]), max_size=8))
def test_it_is_spent_once(steps: list) -> None:
    """Whatever is repeated in whatever order, as crashes make it: at most one taking, and none after a withdrawal."""
    folder = Path(tempfile.mkdtemp())
    try:
        taken, offered, withdrawn = 0, False, False
        for step in steps:
            if step == "take":
                try:
                    supervisor._take_grant(str(folder))
                except FileNotFoundError:
                    continue
                assert offered
                assert not withdrawn
                taken += 1
            elif step == "withdraw":
                withdrawn |= withdraw(folder, "thaw-1") is GrantStanding.WITHDRAWN
            else:
                try:
                    offered |= offer(folder, GRANT) is GrantStanding.OFFERED
                except GrantRefused:
                    assert withdrawn
        assert taken <= 1
        assert not (taken and withdrawn)
    finally:
        shutil.rmtree(folder)


def test_what_a_program_puts_there_grants_nothing(tmp_path: Path) -> None:
    """A folder, a link or nonsense under a grant's name: nobody takes it for one."""
    (tmp_path / OFFERED).mkdir()
    (tmp_path / TAKEN).write_text("x")
    assert standing_of(tmp_path, "thaw-1") is GrantStanding.NONE
    with pytest.raises(GrantRefused, check=that(comes_from="grants.offer")):
        offer(tmp_path, GRANT)


def test_a_lease_counts_by_the_clock_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was brought back lives by a clock that stood still while it was frozen; its lease did not."""
    lease = LeaseFile(tmp_path / "lease")
    lease.hold(time.monotonic_ns() + 3_600_000_000_000)
    lease.write()
    asked = supervisor._Lease(str(lease.path))
    assert asked.left_s() > 0
    monkeypatch.setattr(supervisor, "_offset_ns", lambda clock: -3_600_000_000_000 if clock == "monotonic" else 0)
    assert asked.left_s() <= 0
    lease.close()
