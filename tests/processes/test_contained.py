"""A supervisor as the first process of a container: orders, reports and stops are files; signals, orphans, leases.

The container here is a PID namespace, as in a real one: what ends the first process ends all of it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.processes.contained import (
    ORDER,
    TAKEN,
    FoundStart,
    StartReport,
    command,
    is_ordered_to_stop,
    look,
    named_gpus,
    provide_supervisor,
    withdraw,
    write_order,
)
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.status import write_stop
from iriscw.processes.supervised import BinaryRefused, LeaseOver, MissingBinary, Program, WorkdirMissing

PATIENCE_S = 60
UNTIL_TERM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", os.getppid(), flush=True)
while True:
    signal.pause()
"""
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print("up", flush=True)
while True:
    signal.pause()
"""
NO_ORDER_CODE = 66


def can_unshare():
    """Tell whether this machine lets us have PID namespaces."""
    return subprocess.run(["unshare", *NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


NAMESPACE = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Container:
    """A folder, what is to run there, and the process that stands for the container."""

    def __init__(self, folder, namespace):
        self.folder, self.prefix = folder, ["unshare", *NAMESPACE] if namespace else []
        self.folder.mkdir()
        self.supervisor = provide_supervisor(folder.parent / "shown")
        self.lease = LeaseFile(folder.parent / "shown" / "lease")
        self.hold(NEVER_NS)
        self.process = None

    def hold(self, until_ns):
        """Move the lease."""
        self.lease.hold(until_ns)
        self.lease.write()

    def order(self, code, **changes):
        """Write an order for a line of Python."""
        values = {
            "argv": (sys.executable, "-I", "-S", "-c", code), "folder": self.folder, "workdir": self.folder,
            "stdout": self.folder / "log", "stderr": self.folder / "log", "markers": {}, "lease": self.lease.path,
        }  # fmt: skip
        write_order(Program(**{**values, **changes}))

    def begin(self, **variables):
        """Start the container."""
        argv = [*self.prefix, *command(sys.executable, self.supervisor, self.folder)]
        self.process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], "FROM_THE_IMAGE": "yes", **variables})
        return self.process

    def found(self):
        """Return what the folder says."""
        return look(self.folder, ("program",), self.folder)

    async def until_up(self):
        """Wait until the program has said that its handlers are in place; then the supervisor's are, too."""
        with anyio.fail_after(PATIENCE_S):
            while "up" not in self.said() or self.found().report is None:  # noqa: ASYNC110 - a file has no event
                await anyio.sleep(0.01)

    def said(self):
        """Return what the program printed."""
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    async def ended(self):
        """Wait until nothing of the container runs; give its exit code."""
        with anyio.fail_after(PATIENCE_S):
            return await anyio.to_thread.run_sync(self.process.wait)

    def first_process(self):
        """Return the number of the supervisor as it is seen from out here: unshare waits for it."""
        if not self.prefix:
            return self.process.pid
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])


@pytest.fixture(params=["process", pytest.param("namespace", marks=pytest.mark.slow)])
async def container(request, tmp_path):
    if request.param == "namespace" and not can_unshare():
        pytest.skip("this machine allows no PID namespaces (unshare --user --pid)")
    made = Container(tmp_path / "attempt", request.param == "namespace")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    made.lease.close()


async def test_a_program_runs_and_its_end_is_told(container):
    """Report, end, output; its environment is the image's below the order's."""
    environment = {"MINE": "1", "FROM_THE_IMAGE": "no"} if container.prefix else {"MINE": "1"}
    said = "import os; print(os.environ['MINE'], os.environ['FROM_THE_IMAGE'], os.getcwd()); raise SystemExit(3)"
    container.order(said, environment=environment)
    container.begin()
    assert await container.ended() == 0
    found = container.found()
    assert (found.report, found.began, found.stopping) == (StartReport(), True, False)
    assert (found.ending.code, found.ending.stopped) == (3, False)
    assert container.said() == f"1 {'no' if container.prefix else 'yes'} {container.folder}\n"


async def test_the_gpus_of_a_container_are_told(container):
    """As whoever made the container says, which is not what the order says."""
    container.order("pass", environment={"NVIDIA_VISIBLE_DEVICES": "GPU-9"})
    container.begin(NVIDIA_VISIBLE_DEVICES="GPU-1,GPU-2")
    assert await container.ended() == 0
    assert container.found().report == StartReport(gpus=("GPU-1", "GPU-2"))


@pytest.mark.parametrize("text", ["", "all", "void", "none", "0,1", "GPU-1,all", "GPU-", ",", "GPU-1," * 65])
def test_what_names_no_gpus_by_uuid_says_nothing(text):
    """Words and numbers; one of those beside a UUID as well."""
    assert named_gpus(text) == ()
    assert named_gpus("GPU-1, MIG-a/b-1,GPU-1") == ("GPU-1", "MIG-a/b-1")


async def test_a_stop_is_a_file(container):
    """No signal from outside reaches it: the kernel tells of the file, and the program is asked to end."""
    container.order(UNTIL_TERM)
    container.begin()
    await container.until_up()
    assert not is_ordered_to_stop(container.folder)
    write_stop(container.folder, 30)
    await container.ended()
    found = container.found()
    assert (found.ending.code, found.ending.stopped, found.ending.killed) == (7, True, False)
    assert found.stopping


async def test_the_first_process_is_asked_by_a_signal(container):
    """As a kubelet does it: SIGTERM is not lost on process 1, and the end's code is kept."""
    container.order(UNTIL_TERM)
    container.begin()
    await container.until_up()
    os.kill(container.first_process(), signal.SIGTERM)
    assert await container.ended() == 0
    found = container.found()
    assert (found.ending.code, found.ending.stopped, found.stopping) == (7, True, False)


async def test_what_does_not_end_is_killed_with_its_orphans(container):
    """A grandchild in a session of its own that ignores SIGTERM; then the container is over."""
    container.order(STUBBORN)
    container.begin()
    await container.until_up()
    write_stop(container.folder, 0.05)
    assert await container.ended() == 0
    assert (container.found().ending.killed, container.found().ending.signal) == (True, signal.SIGKILL)


async def test_a_second_order_shortens_the_grace(container):
    """Never the other way round."""
    container.order(STUBBORN)
    container.begin()
    await container.until_up()
    for grace_s in (3600, 0.05):
        write_stop(container.folder, grace_s)
    assert await container.ended() == 0
    assert container.found().ending.killed


async def test_a_lease_that_ends_sooner_ends_it(container):
    """Nobody signals: the file is watched, also when it was replaced."""
    container.order(STUBBORN)
    container.begin()
    await container.until_up()
    container.lease.path.unlink()
    container.hold(0)
    assert await container.ended() == 0
    assert container.found().ending.lease_over


async def test_an_order_is_carried_out_once(container):
    """A second container of the same attempt finds none, and touches nothing."""
    container.order("print('once')")
    container.begin()
    await container.ended()
    before = sorted(path.name for path in container.folder.iterdir())
    container.begin()
    assert await container.ended() == NO_ORDER_CODE
    assert container.said() == "once\n"
    assert sorted(path.name for path in container.folder.iterdir()) == before
    assert not withdraw(container.folder)


async def test_a_withdrawn_order_is_never_carried_out(container):
    """However late the container starts."""
    container.order("print('never')")
    assert withdraw(container.folder)
    assert withdraw(container.folder)
    container.begin()
    assert await container.ended() == NO_ORDER_CODE
    assert container.found() == FoundStart()
    assert container.said() == ""


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"argv": ("no-such-program",)}, MissingBinary),
        ({"argv": ("/",)}, BinaryRefused),
        ({"workdir": Path("/no/such/folder")}, WorkdirMissing),
    ],
)
async def test_a_program_that_does_not_start_is_told_by_name(tmp_path, change, error):
    """Nothing of it was executed, and the container is over."""
    container = Container(tmp_path / "attempt", namespace=False)
    container.order("", **change)
    container.begin()
    assert await container.ended() == 0
    found = container.found()
    assert isinstance(found.report.failure, error)
    assert (found.began, found.ending) == (False, None)
    container.lease.close()


async def test_a_lease_that_is_over_starts_nothing(tmp_path):
    """It may run elsewhere by now."""
    container = Container(tmp_path / "attempt", namespace=False)
    container.hold(0)
    container.order("print('never')")
    container.begin()
    assert await container.ended() == 0
    assert isinstance(container.found().report.failure, LeaseOver)
    assert container.said() == ""
    container.lease.close()


@given(names=st.lists(st.sampled_from(["take", "withdraw"]), min_size=1, max_size=6))
def test_either_side_gets_the_order(tmp_path_factory, names):
    """Whoever comes first, and for good: taken is never withdrawn, withdrawn is never taken."""
    folder = tmp_path_factory.mktemp("attempt")
    (folder / ORDER).write_text("{}")
    answers = []
    for name in names:
        if name == "withdraw":
            answers.append(withdraw(folder))
            continue
        try:
            (folder / ORDER).rename(folder / TAKEN)
        except FileNotFoundError:
            continue
    first = names[0] == "withdraw"
    assert answers == [first] * len(answers)
    assert (folder / TAKEN).exists() is not first


@given(spoilt=st.binary(max_size=200), name=st.sampled_from(["report.json", "identity.json", "exit.json", "stop"]))
def test_a_spoilt_file_costs_the_program_only(tmp_path_factory, spoilt, name):
    """Whatever a program writes there, reading it raises nothing."""
    folder = tmp_path_factory.mktemp("attempt")
    (folder / name).write_bytes(spoilt)
    found = look(folder, (), folder)
    assert found.ending is None
    assert found.report in (None, StartReport())


@pytest.mark.parametrize("name", ["report.json", "stop", "exit.json", "identity.json"])
@pytest.mark.parametrize("kind", ["folder", "loop", "pipe"])
def test_what_is_no_file_costs_the_program_only(tmp_path, name, kind):
    """Neither does something that cannot be read as one: the attempt could never end otherwise."""
    path = tmp_path / name
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        os.mkfifo(path)
    found = look(tmp_path, (), tmp_path)
    assert (found.ending, found.stopping) == (None, False)
    assert found.report in (None, StartReport())
