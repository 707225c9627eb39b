"""Attempts as processes: the contract, programs, environment, adoption."""

import os
import signal
import stat
import sys
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw._errors import InvalidArgument
from iriscw.processes.ends import EndKind
from iriscw.processes.identity import send_signal
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.supervised import Limits
from iriscw.processes.sweep import marked_processes
from iriscw.task.environment import task_environment
from iriscw.task.payload import make_payload
from iriscw.testing.conformance.task_runtime import TaskRuntimeConformance, facts
from iriscw.worker.ports import (
    AttemptSpec,
    NotFreezable,
    ProgramMissing,
    ResultMissing,
    ResultUnreadable,
    TaskRuntime,
    WorkerTrouble,
)
from iriscw.worker.runtimes import input_checks as given_module
from iriscw.worker.runtimes.process import MARKER, ProcessRuntime
from raised import Check, that

PAUSE = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    return ProcessRuntime(tmp_path / "attempts", {"PATH": os.environ["PATH"], "SECRET": "of the worker"})


class TestProcessRuntime(TaskRuntimeConformance):
    """The public suite, with a lease: without one attempts run until they are told to end."""

    @pytest.fixture
    def runtime(self, runtime: ProcessRuntime, lease: LeaseFile) -> TaskRuntime:
        lease.hold(NEVER_NS)
        return attrs.evolve(runtime, lease=lease)


def program(code: str, uid: str = "attempt-1", **changes) -> AttemptSpec:
    return AttemptSpec(facts(uid), argv=(sys.executable, "-I", "-S", "-c", code), **changes)


def text_of(path: Path) -> str:
    return path.read_text()


async def until_up(path: Path) -> None:
    with anyio.fail_after(20):
        while "up" not in text_of(path):  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)


async def test_the_environment_is_exactly_as_documented(runtime: ProcessRuntime) -> None:
    """Ours wins over the user's, the user's over the worker's, and the worker's own stays with the worker."""
    user = {"IRIS_JOB_ID": "forged", "PATH": "/user", "MINE": "1", "LC_ALL": "C.UTF-8"}
    code = "import os; print(sorted(os.environ.items()), os.getcwd(), os.getsid(0) == os.getpid())"
    attempt = await runtime.start(program(code, environment=user))
    await attempt.wait()
    work = attempt.folder.work
    ours = {"PYTHONUNBUFFERED": "1", **task_environment(facts(), work)}
    expected = {"MINE": "1", "LC_ALL": "C.UTF-8", "PATH": "/user", **ours}
    assert text_of(attempt.stdout) == f"{sorted(expected.items())} {work} True\n"


@pytest.mark.parametrize(("environment", "seen"), [({}, "a word"), ({"PYTHONUNBUFFERED": ""}, "")])
async def test_what_python_prints_is_in_the_log_at_once(
    runtime: ProcessRuntime, environment: dict[str, str], seen: str
) -> None:
    """Also half a line, though the log is a file; a job that wants blocks says so."""
    code = "import os; print('a word', end=''); print(open('/proc/self/fd/1').read(), file=os.fdopen(2, 'w'))"
    spec = AttemptSpec(facts(), argv=(sys.executable, "-S", "-c", code), environment=environment)
    attempt = await runtime.start(spec)
    assert (await attempt.wait()).succeeded
    assert text_of(attempt.stderr) == f"{seen}\n"


async def test_files_are_private(runtime: ProcessRuntime) -> None:
    """The token above all."""
    attempt = await runtime.start(program("pass", token="t0ken"))
    await attempt.wait()
    token = attempt.folder.work / ".iris" / "token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("t0ken", 0o600)
    for path in (runtime.root, attempt.folder.path, attempt.folder.work):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert "t0ken" not in repr(program("pass", token="t0ken"))


async def test_not_started_is_not_failed(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """A missing program is a named error and no attempt; a worker without room is another one."""
    with pytest.raises(ProgramMissing, check=that(comes_from="process.ProcessRuntime.start", names="no-such-program")):
        await runtime.start(AttemptSpec(facts(), argv=("no-such-program",)))
    assert await runtime.adopt() == ()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(WorkerTrouble):
        await ProcessRuntime(blocked / "below").start(program("pass"))


@pytest.mark.parametrize("freezable", [True, False])
async def test_one_that_is_freezable_gets_no_io_uring(runtime: ProcessRuntime, freezable: bool) -> None:
    """The program begins under the filter, and others under none."""
    code = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp_filters')))"
    attempt = await runtime.start(program(code, freezable=freezable))
    assert (await attempt.wait()).succeeded
    before = next(each for each in text_of(Path("/proc/self/status")).splitlines() if each.startswith("Seccomp_f"))
    assert int(text_of(attempt.stdout)) == int(before.split()[1]) + freezable


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("hindrance", lambda: "not on a riscv64", that(names="riscv64")),
        ("FREEZABLE", bytes(8), that(comes_from="supervised.launch")),
    ],
)
async def test_what_cannot_be_freezable_is_not_started(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch, name: str, value: object, why: Check
) -> None:
    """On a machine without a filter, or a kernel that takes none, it is refused by name, and nothing is left of it."""
    monkeypatch.setattr(given_module, name, value)
    with pytest.raises(NotFreezable, check=why):
        await runtime.start(program("pass", freezable=True))
    assert await runtime.adopt() == ()
    assert (await (await runtime.start(program("pass", "other"))).wait()).succeeded


async def test_words_that_no_program_can_be_given(runtime: ProcessRuntime) -> None:
    """NULs and names with '=' are refused before anything is made."""
    for spec in (
        AttemptSpec(facts(), argv=("true", "a\0b")),
        program("pass", environment={"A=B": "1"}),
        program("pass", environment={"": "1"}),
        program("pass", environment={"A": "\0"}),
    ):
        with pytest.raises(InvalidArgument):
            await runtime.start(spec)
    assert await runtime.adopt() == ()


async def test_a_restarted_worker_finds_its_attempts(runtime: ProcessRuntime) -> None:
    """Running and ended ones; those that were only half prepared go."""
    running = await runtime.start(program(PAUSE, "running"))
    ended = await runtime.start(program("raise SystemExit(3)", "ended"))
    await ended.wait()
    await until_up(running.stdout)
    half = runtime.root / "half"
    half.mkdir()
    found = {attempt.uid: attempt for attempt in await ProcessRuntime(runtime.root).adopt()}
    assert sorted(found) == ["ended", "running"]
    assert not half.exists()
    assert (await found["ended"].wait()).code == 3
    end = await found["running"].stop(20)
    assert (end.kind, end.signal, end.killed) == (EndKind.STOPPED, signal.SIGTERM, False)
    assert end.log_bytes == len("up\n")
    assert (await running.wait()).kind is EndKind.STOPPED
    assert marked_processes({MARKER: "running", "IRIS_WORKDIR": str(running.folder.work)}) == ()


async def test_a_killed_supervisor_is_a_loss(runtime: ProcessRuntime) -> None:
    """Nobody saw the end, but it is one: nothing runs."""
    attempt = await runtime.start(program(PAUSE))
    await until_up(attempt.stdout)
    send_signal(attempt.supervised.supervisor, signal.SIGKILL)
    assert (await attempt.wait()).kind is EndKind.LOST
    assert marked_processes({MARKER: attempt.uid, "IRIS_WORKDIR": str(attempt.folder.work)}) == ()


async def test_a_signal_of_somebody_else_is_told(runtime: ProcessRuntime) -> None:
    """With its name."""
    attempt = await runtime.start(program("import os; os.kill(os.getpid(), 11)"))
    end = await attempt.wait()
    assert (end.kind, end.signal, end.reason) == (EndKind.SIGNALLED, 11, "killed by SIGSEGV")


async def test_a_bundle_is_copied(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """What the program changes is its own copy."""
    bundle = tmp_path / "bundle"
    (bundle / "inner").mkdir(parents=True)
    (bundle / "inner" / "data").write_text("data")
    code = "p = open('inner/data', 'r+'); print(p.read()); p.write('changed')"
    attempt = await runtime.start(program(code, source=bundle))
    assert (await attempt.wait()).succeeded
    assert text_of(attempt.stdout) == "data\n"
    assert (bundle / "inner" / "data").read_text() == "data"


async def test_limits_reach_the_program(runtime: ProcessRuntime) -> None:
    """A program that opens too many files fails by itself, not by us."""
    code = "import os; [os.open('/dev/null', 0) for _ in range(100)]"
    attempt = await runtime.start(program(code, limits=Limits(open_files=32)))
    assert (await attempt.wait()).code == 1
    assert "Too many open files" in text_of(attempt.stderr)


async def test_a_result_that_is_none_is_unreadable(runtime: ProcessRuntime) -> None:
    """A link in its place is not followed."""

    def leave() -> None:
        os.symlink("/etc/passwd", ".iris/result")  # noqa: PTH211 - it is pickled by value
        os._exit(0)

    attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(leave, [], {})))
    await attempt.wait()
    with pytest.raises(ResultUnreadable):
        await attempt.result()


async def test_only_callables_have_results(runtime: ProcessRuntime) -> None:
    """A program's leavings are not read, by the next worker neither; a callable without a result is told by name."""
    left = await runtime.start(program("open('.iris/result', 'w').write('x')"))
    none = await runtime.start(AttemptSpec(facts("attempt-2"), payload=make_payload(os._exit, [0], {})))
    for attempt in (left, none):
        assert (await attempt.wait()).succeeded
    for attempts in ((left, none), await runtime.adopt()):
        assert await attempts[0].result() is None
        with pytest.raises(ResultMissing, check=that(names="attempt-2")):
            await attempts[1].result()


@pytest.fixture
def lease(tmp_path: Path):
    lease = LeaseFile(tmp_path / "lease")
    yield lease
    lease.close()


@pytest.fixture
def leased(runtime: ProcessRuntime, lease: LeaseFile) -> ProcessRuntime:
    """A runtime whose attempts have a lease."""
    return attrs.evolve(runtime, lease=lease)


async def test_attempts_end_with_the_lease(leased: ProcessRuntime) -> None:
    """A lease that is shortened reaches those that run; after its end nothing starts."""
    await leased.hold(NEVER_NS)
    attempt = await leased.start(program(PAUSE))
    await until_up(attempt.stdout)
    await leased.hold(1)
    with anyio.fail_after(60):
        end = await attempt.wait()
    assert (end.kind, end.killed) == (EndKind.LEASE_OVER, True)
    assert "lease" in end.reason
    with pytest.raises(WorkerTrouble, check=that(comes_from="process.ProcessRuntime.start", names="lease")):
        await leased.start(program(PAUSE, "late"))
    assert [each.uid for each in await leased.adopt()] == ["attempt-1"]


async def test_what_holds_reaches_the_file_before_an_attempt_starts(leased: ProcessRuntime, lease: LeaseFile) -> None:
    """An order that came after a renewal does not meet the lease from before it."""
    lease.hold(NEVER_NS)  # and it is not written yet
    attempt = await leased.start(program("pass"))
    assert (await attempt.wait()).succeeded


async def test_no_attempt_older_than_its_lease_is_adopted(leased: ProcessRuntime, tmp_path: Path) -> None:
    """Even one whose supervisor did not come to look: it has ended when the next worker sees it."""
    await leased.hold(NEVER_NS)
    attempt = await leased.start(program(PAUSE))
    await until_up(attempt.stdout)
    send_signal(attempt.supervised.supervisor, signal.SIGSTOP)
    await leased.hold(1)
    lease = LeaseFile(tmp_path / "lease")
    with anyio.fail_after(60):
        [found] = await ProcessRuntime(leased.root, lease=lease).adopt()
    assert marked_processes({MARKER: "attempt-1", "IRIS_WORKDIR": str(attempt.folder.work)}) == ()
    assert (await found.wait()).kind is EndKind.LEASE_OVER
    lease.close()


async def test_a_lease_that_cannot_be_written_has_a_name(leased: ProcessRuntime, lease: LeaseFile) -> None:
    """The worker goes on; what was written last holds."""
    lease.close()
    with pytest.raises(WorkerTrouble, check=that(comes_from="process.ProcessRuntime.hold")):
        await leased.hold(NEVER_NS)


@pytest.mark.parametrize("change", ["pathlib.Path(path).write_text('[' * 60000)", "os.mkfifo(path)", "os.mkdir(path)"])
async def test_an_attempt_that_spoils_its_files_keeps_no_worker_from_beginning(
    leased: ProcessRuntime, change: str
) -> None:
    """It is lost, and ended; those beside it are adopted, and told of their lease."""
    await leased.hold(NEVER_NS)
    code = f"""
import os, pathlib
for name in ("identity.json", "attempt.json", "exit.json", "stop"):
    path = "../" + name
    if os.path.exists(path):
        os.unlink(path)
    {change}
for path in ("../../.stray", "../../stray"):
    {change}
os.mkdir("../../half")
"""
    spoiler = await leased.start(program(code + PAUSE, "spoiler"))
    good = await leased.start(program(PAUSE, "good"))
    for attempt in (spoiler, good):
        await until_up(attempt.stdout)
    await leased.hold(NEVER_NS - 1)  # sooner: all are told, but for one that nobody can tell
    found = {attempt.uid: attempt for attempt in await ProcessRuntime(leased.root).adopt()}
    assert sorted(found) == ["good", "spoiler"]
    assert marked_processes({MARKER: "spoiler", "IRIS_WORKDIR": str(spoiler.folder.work)}) == ()
    assert not (leased.root / "half").exists()
    with anyio.fail_after(60):
        assert (await found["spoiler"].wait()).kind is EndKind.LOST
        assert (await found["good"].stop(20)).kind is EndKind.STOPPED
        await found["spoiler"].remove()
    assert not found["spoiler"].folder.path.exists()


async def test_a_lease_file_that_is_gone_is_no_trouble(leased: ProcessRuntime, lease: LeaseFile) -> None:
    """Somebody cleaned up: the next attempt starts, the one that runs goes on, and both end with the lease."""
    await leased.hold(NEVER_NS)
    first = await leased.start(program(PAUSE))
    lease.path.unlink()
    second = await leased.start(program(PAUSE, "attempt-2"))
    for attempt in (first, second):
        await until_up(attempt.stdout)
    await leased.hold(1)
    with anyio.fail_after(60):
        for attempt in (first, second):
            assert (await attempt.wait()).kind is EndKind.LEASE_OVER
