"""A process is its number, its start and its boot; never its number alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.processes.identity import (
    ProcessGone,
    ProcessIdentity,
    boot_id,
    decode_identity,
    identify,
    is_alive,
    open_pidfd,
    parse_stat,
    pidfd_of,
    read_stat,
    send_signal,
)
from raised import that


def stat_line(name: str, state: str = "S", start: int = 77) -> str:
    """Write a line as the kernel does: 52 fields, of which the second may hold anything."""
    fields = [state, "10", "11", "12", *["0"] * 15, str(start), *["0"] * 30]
    return f"42 ({name}) {' '.join(fields)}\n"


@given(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=20))
def test_a_stat_line_is_read_whatever_the_name_holds(name: str) -> None:
    """Names with spaces and parentheses do not shift the fields."""
    stat = parse_stat(stat_line(name))
    assert (stat.pid, stat.name, stat.parent_pid, stat.group_id, stat.session_id) == (42, name, 10, 11, 12)
    assert stat.start_ticks == 77


@pytest.mark.parametrize("text", ["", "42", "42 (x", "42 (x) S 1 2", "(x) S"])
def test_other_text_is_refused(text: str) -> None:
    """A line that is cut short gives an error, not a wrong identity."""
    with pytest.raises(ValueError, check=that(comes_from="identity.parse_stat")):
        parse_stat(text)


@pytest.mark.parametrize(
    ("state", "ended"), [("R", False), ("S", False), ("D", False), ("T", False), ("Z", True), ("X", True)]
)
def test_a_zombie_has_ended(state: str, ended: bool) -> None:
    """Only states in which code can run count as alive."""
    assert parse_stat(stat_line("x", state)).ended is ended


def test_this_process_is_alive_and_itself() -> None:
    """Identity is stable from one look to the next."""
    mine = identify(os.getpid())
    assert mine == identify(os.getpid())
    assert is_alive(mine)
    assert mine.boot_id == boot_id()


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_a_reused_number_is_another_process(change: dict[str, object]) -> None:
    """With the same number but another start or boot it is dead, and nothing is opened or signalled."""
    other = attrs.evolve(identify(os.getpid()), **change)
    assert not is_alive(other)
    with pytest.raises(ProcessGone):
        open_pidfd(other)
    with pytest.raises(ProcessGone):
        send_signal(other, signal.SIGKILL)


def test_a_process_that_ended_is_gone_before_and_after_it_is_reaped() -> None:
    """A zombie keeps its number but is dead; a reaped one has no number."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(process.pid)
    with pidfd_of(identity) as descriptor:
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
    assert read_stat(process.pid).state == "Z"
    assert not is_alive(identity)
    with pytest.raises(ProcessGone):
        identify(process.pid)
    process.wait()
    assert not is_alive(identity)
    with pytest.raises(ProcessGone):
        read_stat(process.pid)


def test_no_descriptor_is_left_open() -> None:
    """A refused identity costs no descriptor."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(ProcessGone):
            open_pidfd(attrs.evolve(identify(os.getpid()), start_ticks=1))
        with pidfd_of(identify(os.getpid())):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_identity_comes_back_from_json() -> None:
    """As it was written."""
    ours = identify(os.getpid())
    assert decode_identity(json.loads(json.dumps(attrs.asdict(ours)))) == ours


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "1"},
        {"pid": "self"},
        {"pid": "1\0"},
        {"pid": [1]},
        {"pid": -1},
        {"pid": 0},
        {"pid": 10**30},
        {"pid": 1.0},
        {"start_ticks": -1},
        {"start_ticks": 10**30},
        {"start_ticks": None},
        {"boot_id": 5},
    ],
)
def test_what_no_process_can_be_is_refused(change: dict[str, object]) -> None:
    """Before anything is looked up with it."""
    content = {**attrs.asdict(ProcessIdentity(1, 2, "boot")), **change}
    with pytest.raises(ValueError, check=that(comes_from="identity.decode_identity")):
        decode_identity(content)
    for other in (None, [], "x", {}):
        with pytest.raises(ValueError, check=that(comes_from="identity.decode_identity")):
            decode_identity(other)
