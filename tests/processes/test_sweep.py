"""Finding processes by their environment: by a marker, and by a folder that they were told of."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from iriscw._errors import InvalidArgument
from iriscw.processes import identity
from iriscw.processes.identity import ProcessIdentity, identify, read_environment, read_process_file
from iriscw.processes.sweep import carries, marked_processes, processes_told_of, sweep_told_of

SLEEPER = [sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()"]


@pytest.fixture
def sleepers(tmp_path: Path):
    """Yield a function that starts a process which was told of a folder."""
    started = []

    def start(folder: Path, variable: str = "IRIS_WORKDIR") -> int:
        process = subprocess.Popen(SLEEPER, env={variable: str(folder)}, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_a_folder_finds_what_is_at_or_below_it(sleepers, tmp_path: Path) -> None:
    """A folder whose name only begins the same is another one, and so is another variable."""
    folder = tmp_path / "cluster"
    inside = {sleepers(folder), sleepers(folder / "a" / "work")}
    others = {sleepers(tmp_path / "cluster-2"), sleepers(tmp_path)}
    stranger = sleepers(folder, "PWD")
    assert {each.pid for each in processes_told_of("IRIS_WORKDIR", folder)} == inside
    assert await sweep_told_of("IRIS_WORKDIR", folder) == 2
    assert processes_told_of("IRIS_WORKDIR", folder) == ()
    assert {each.pid for each in processes_told_of("IRIS_WORKDIR", tmp_path)} == others
    assert {each.pid for each in processes_told_of("PWD", folder)} == {stranger}


def test_a_process_that_was_started_just_now_is_found() -> None:
    """Until its program's environment is in place the kernel shows an empty one: many a look meets that."""
    marker = {"IRIS_TEST_MARK": str(os.getpid())}
    for _ in range(60):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], marker)
        try:
            assert read_environment(pid)[0] == f"IRIS_TEST_MARK={os.getpid()}".encode()
            assert [each.pid for each in marked_processes(marker)] == [pid]
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.parametrize("looks", [0, 3])
def test_a_program_may_have_no_environment(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """It is not waited for longer than until its environment is in place, and empty."""
    with subprocess.Popen(SLEEPER, env={}, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            started.stdout.readline()
            yielded: list[int] = []
            stat = read_process_file(started.pid, "stat")
            early = stat.rpartition(") ")[2].split()
            early[47:49] = "0", "0"
            shown = [f"1 (a) b) {' '.join(early)}"] * looks
            monkeypatch.setattr(identity, "read_process_file", lambda *_: shown.pop() if shown else stat)
            monkeypatch.setattr(os, "sched_yield", lambda: yielded.append(1))
            assert read_environment(started.pid) == [b""]
            assert len(yielded) == looks
        finally:
            started.kill()


def test_too_many_are_refused() -> None:
    """No marker, the root of all folders, a folder that depends on where one stands: a slip, not a wish."""
    with pytest.raises(InvalidArgument):
        marked_processes({})
    for folder in (Path("/"), Path("relative")):
        with pytest.raises(InvalidArgument):
            processes_told_of("IRIS_WORKDIR", folder)


def test_this_process_is_never_found(tmp_path: Path) -> None:
    """Whoever sweeps goes on."""
    began_with = dict(each.split("=", 1) for each in Path("/proc/self/environ").read_text().split("\0") if "=" in each)
    name, value = next(iter(began_with.items()))
    assert os.getpid() not in {each.pid for each in marked_processes({name: value})}


def test_what_a_process_carries(sleepers, tmp_path: Path) -> None:
    """All of the markers, and this very process: another one with its number, or none, carries nothing."""
    process = identify(sleepers(tmp_path))
    assert carries(process, {"IRIS_WORKDIR": str(tmp_path)})
    assert not carries(process, {"IRIS_WORKDIR": str(tmp_path), "OTHER": "1"})
    assert not carries(process, {"IRIS_WORKDIR": f"{tmp_path}x"})
    assert not carries(attrs.evolve(process, start_ticks=process.start_ticks + 1), {"IRIS_WORKDIR": str(tmp_path)})
    assert not carries(ProcessIdentity(1 << 22, 1, process.boot_id), {})
