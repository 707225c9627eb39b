"""A supervised program: started or not, ended how, and nothing of it left."""

import errno
import fcntl
import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import anyio
import pytest

from iriscw.processes import supervised
from iriscw.processes.ends import UNKNOWN_END
from iriscw.processes.identity import is_alive, pidfd_of, send_signal
from iriscw.processes.status import read_end
from iriscw.processes.supervised import (
    BinaryRefused,
    Limits,
    MissingBinary,
    Program,
    SpawnFailed,
    WorkdirMissing,
    adopt,
    launch,
)
from iriscw.processes.sweep import marked_processes, sweep
from raised import that

MARKER = "IRIS_ATTEMPT_UID"

ESCAPING = """
import os, sys, time
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("escaped", os.getpid(), flush=True)
        os.write(tell, b"x")
        time.sleep(600)
    os._exit(0)
os.wait()
os.read(told, 1)
print("parent", flush=True)
{then}
"""


@pytest.fixture
def build(tmp_path: Path):
    """Return a function that describes a program which runs some Python."""
    numbers = iter(range(100))

    def build(code: str | None = None, *argv: str, **changes) -> Program:
        folder = tmp_path / f"program-{next(numbers)}"
        values = {
            "argv": argv or (sys.executable, "-I", "-S", "-c", code),
            "folder": folder,
            "workdir": tmp_path,
            "stdout": folder / "stdout.log",
            "stderr": folder / "stderr.log",
            "markers": {MARKER: str(folder)},
            "environment": {"PATH": os.environ["PATH"]},
        }
        return Program(**{**values, **changes})

    return build


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def until_text(path: Path, text: str) -> str:
    """Wait until the file holds ``text``: the program has come that far."""
    with anyio.fail_after(20):
        while text not in text_of(path):  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)
    return text_of(path)


def secret_places(folder: Path, pid: int) -> bytes:
    """Return all that others could read of a program: its supervisor's command line, environment and files."""
    shown = [Path(f"/proc/{pid}/{kind}").read_bytes() for kind in ("cmdline", "environ")]
    return b"".join(shown + [path.read_bytes() for path in folder.iterdir()])


def left_of(program: Program) -> int:
    return len(marked_processes({MARKER: program.markers[MARKER]}))


async def test_a_program_runs_in_its_own_session_with_its_own_files(build) -> None:
    """Session leader, standard input empty, output to two files, exactly the given environment."""
    code = (
        "import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), sorted(os.environ));"
        "print('e', file=sys.stderr)"
    )
    program = build(code, environment={"LC_ALL": "C.UTF-8", MARKER: "the marker wins"})
    running = await launch(program)
    ending = await running.wait()
    assert (ending.code, ending.signal, ending.stopped, ending.killed) == (0, None, False, False)
    assert program.stdout.read_text() == f"True '' ['{MARKER}', 'LC_ALL']\n"
    assert program.stderr.read_text() == "e\n"
    assert ending.max_rss_bytes > 1 << 20
    assert stat.S_IMODE(program.stdout.stat().st_mode) == 0o600
    assert stat.S_IMODE(program.folder.stat().st_mode) == 0o700
    assert not running.alive


async def test_a_program_inherits_nothing_of_its_starters(build, tmp_path: Path) -> None:
    """Not its open files, locks and sockets, not the signals that it ignores: not the supervisor either."""
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        status = "open('/proc/self/status').read().split('SigIgn:')[1].split()[0]"
        shown = f"print(sorted(os.listdir('/proc/self/fd')), {status}, flush=True)"
        program = build(f"import os, time; {shown}; time.sleep(60)")
        running = await launch(program)
    finally:
        signal.signal(signal.SIGUSR2, before)
        os.close(lock)
        port = listener.getsockname()[1]
        listener.close()
    try:
        said = await until_text(program.stdout, "\n")
        descriptors, ignored = said.rsplit(" ", 1)
        assert descriptors == "['0', '1', '2', '3']"  # 3 is what lists them
        assert not int(ignored, 16) & 1 << signal.SIGUSR2 - 1
        with (tmp_path / "lock").open() as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it
        socket.create_server(("127.0.0.1", port)).close()  # nobody listens there
    finally:
        await running.stop(0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(7)", (7, None)),
        ("import os; os.kill(os.getpid(), 15)", (None, 15)),
        ("import os; os.abort()", (None, 6)),
    ],
)
async def test_code_and_signal_are_told_apart(build, code: str, expected: tuple[int | None, int | None]) -> None:
    """An exit code is one, a deadly signal the other."""
    ending = await (await launch(build(code))).wait()
    assert (ending.code, ending.signal) == expected
    assert not ending.stopped


async def test_what_cannot_start_has_a_name(build, tmp_path: Path) -> None:
    """No such program, not executable, no such folder: three errors, no process and no end of a run."""
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    strange = tmp_path / "strange"
    strange.write_text("no format")
    strange.chmod(0o700)
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o700)
    for argv, error, said in [
        (("no-such-program-at-all",), MissingBinary, that(names=("no-such-program-at-all", "PATH"))),
        ((str(tmp_path / "nothing"),), MissingBinary, that(names=("nothing", os.strerror(errno.ENOENT)))),
        ((str(orphan),), MissingBinary, that(names=("orphan", os.strerror(errno.ENOENT)))),
        ((str(plain),), BinaryRefused, that(names=plain)),
        ((str(strange),), BinaryRefused, that(names=strange)),
        ((str(tmp_path),), BinaryRefused, that(names=tmp_path)),
    ]:
        program = build(None, *argv)
        with pytest.raises(error, check=said):
            await launch(program)
        assert left_of(program) == 0
    with pytest.raises(WorkdirMissing):
        await launch(build("pass", workdir=tmp_path / "nowhere"))


async def test_nothing_outlives_the_program(build) -> None:
    """A grandchild in a session of its own dies with the program, before the end is reported."""
    program = build(ESCAPING.format(then="sys.exit(3)"))
    ending = await (await launch(program)).wait()
    assert ending.code == 3
    assert "escaped" in program.stdout.read_text()
    assert left_of(program) == 0


async def test_stop_asks_first(build) -> None:
    """A program that ends when asked ends with its own code, and is not killed."""
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(4));print('up', flush=True); signal.pause()"
    program = build(code)
    running = await launch(program)
    await until_text(program.stdout, "up")
    ending = await running.stop(30)
    assert (ending.code, ending.stopped, ending.killed) == (4, True, False)


async def test_stop_kills_all_after_the_grace(build) -> None:
    """A program that ignores the question is killed, with those that left its session."""
    program = build("import signal; signal.signal(15, signal.SIG_IGN)" + ESCAPING.format(then="time.sleep(600)"))
    running = await launch(program)
    await until_text(program.stdout, "parent")
    ending = await running.stop(0.05)
    assert (ending.signal, ending.stopped, ending.killed) == (signal.SIGKILL, True, True)
    assert left_of(program) == 0


async def test_a_second_order_shortens_the_grace(build) -> None:
    """Patience may be withdrawn: a stop with grace 0 overtakes one with a long grace."""
    program = build("import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()")
    running = await launch(program)
    await until_text(program.stdout, "up")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(running.stop, 600)
            await anyio.sleep(0.1)
            assert (await running.stop(0)).killed


async def test_a_restarted_starter_finds_the_program_and_its_end(build) -> None:
    """All that is needed is the folder: while it runs, and after it ended unobserved."""
    program = build("import sys, time; print('up', flush=True); time.sleep(600)")
    running = await launch(program)
    await until_text(program.stdout, "up")
    found = await adopt(program.folder, program.markers)
    assert found is not None
    assert (found.supervisor, found.target) == (running.supervisor, running.target)
    assert found.alive
    assert read_end(program.folder) is None
    assert (await found.stop(5)).signal == signal.SIGTERM
    again = await adopt(program.folder, program.markers)
    assert again is not None
    assert (await again.wait()).signal == signal.SIGTERM


async def test_adopting_a_folder_without_a_program_gives_none(build) -> None:
    """A crash before the first file leaves nothing to adopt."""
    program = build("pass")
    program.folder.mkdir()
    assert await adopt(program.folder, program.markers) is None


async def test_a_killed_supervisor_takes_all_with_it(build) -> None:
    """The end is unknown, but it is an end: nothing that carries the marker is left."""
    program = build(ESCAPING.format(then="time.sleep(600)"))
    running = await launch(program)
    await until_text(program.stdout, "parent")
    send_signal(running.supervisor, signal.SIGKILL)
    assert await running.wait() == UNKNOWN_END
    assert left_of(program) == 0
    assert running.target is not None
    assert not is_alive(running.target)


async def test_several_may_wait(build) -> None:
    """Each waiter gets the same end."""
    running = await launch(build("raise SystemExit(9)"))
    endings = []

    async def wait() -> None:
        endings.append(await running.wait())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait)
    assert [ending.code for ending in endings] == [9, 9, 9]


async def test_limits_are_enforced(build) -> None:
    """A soft and a hard limit hold in the program; without an order it leaves no core file."""
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    program = build(code, limits=Limits(open_files=64))
    await (await launch(program)).wait()
    assert program.stdout.read_text() == "(64, 64) (0, 0)\n"


async def test_the_environment_is_on_no_command_line_and_in_no_file(build) -> None:
    """What a job keeps secret is read from standard input by the supervisor and given to the program alone."""
    program = build("import signal; print('up', flush=True); signal.pause()", environment={"SECRET": "s3cr3t"})
    running = await launch(program)
    await until_text(program.stdout, "up")
    assert b"s3cr3t" not in secret_places(program.folder, running.supervisor.pid)
    assert "s3cr3t" not in repr(program)
    assert json.loads((program.folder / "identity.json").read_text())["target"]["pid"] > 1
    await running.stop(0)


async def test_sweep_leaves_others_alone(build) -> None:
    """Only the very marker counts: a longer value is another program."""
    program = build("import signal; print('up', flush=True); signal.pause()")
    running = await launch(program)
    await until_text(program.stdout, "up")
    assert await sweep({MARKER: program.markers[MARKER][:-1]}) == 0
    assert running.alive
    assert await sweep({MARKER: program.markers[MARKER]}) >= 1
    assert await running.wait() in (UNKNOWN_END, read_end(program.folder))


async def test_the_program_dies_with_its_supervisor(build) -> None:
    """At once and by itself: nobody has to sweep first."""
    program = build("import signal; print('up', flush=True); signal.pause()")
    running = await launch(program)
    await until_text(program.stdout, "up")
    assert running.target is not None
    with pidfd_of(running.target) as descriptor, anyio.fail_after(20):
        send_signal(running.supervisor, signal.SIGKILL)
        await anyio.wait_readable(descriptor)


@pytest.mark.parametrize("argv", [("no-such-program-at-all",), ("/",)])
async def test_what_was_not_started_is_not_found(build, argv: tuple[str, ...]) -> None:
    """Nothing of it was executed, and whoever looks later sees that, too."""
    program = build(None, *argv)
    with pytest.raises((MissingBinary, BinaryRefused)):
        await launch(program)
    assert await adopt(program.folder, program.markers) is None


SILENT = """
import json, os, subprocess, sys
order = json.load(sys.stdin)
null = subprocess.DEVNULL
child = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
subprocess.Popen(child, stdin=null, stdout=null, stderr=null, start_new_session=True)
if {identified}:
    stat = open("/proc/self/stat").read().rpartition(") ")[2].split()
    me = {{"pid": os.getpid(), "start_ticks": int(stat[19])}}
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with open(order["folder"] + "/identity.json", "w") as file:
        json.dump({{"boot_id": boot, "supervisor": me, "target": me}}, file)
{then}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("then", ["", "sys.stdout.write('{')", "import time; time.sleep(600)"])
@pytest.mark.parametrize("identified", [True, False])
async def test_a_supervisor_without_a_report(
    build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identified: bool, then: str
) -> None:
    """It died, or takes too long and is killed: all that it had begun is ended. Once it had written down who runs, the
    program may have been executed, and that is what is said; before, it was not.
    """
    script = tmp_path / "silent.py"
    script.write_text(SILENT.format(identified=identified, then=then))
    monkeypatch.setattr(supervised, "_SUPERVISOR", script)
    monkeypatch.setattr(supervised, "START_TIMEOUT_S", 3.0)
    program = build("pass")
    if identified:
        running = await launch(program)
        assert left_of(program) == 0
        assert await running.wait() == UNKNOWN_END
    else:
        with pytest.raises(SpawnFailed, check=that(names="supervisor.log")):
            await launch(program)
        assert left_of(program) == 0
