"""Ctrl-C once, twice, three times, and a terminal that closes: everything ends soon, and nothing is left for good."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

from iriscw.cli.demo.leftovers import processes_in
from iriscw.cloud.drivers.local.throwaway import remove_abandoned
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing

IRISCW = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
INTERRUPTED = (130, -signal.SIGINT)
"""What a shell calls 130: an exit code, or the end by the signal itself, as Python's own KeyboardInterrupt has it."""

ENDS_WITHIN_S = 60
"""A second or two, on a machine with nothing else to do; what hangs does so for ever."""

SCRIPT = """
import sys, time, anyio, asyncio, iriscw

def work():
    print("at work", flush=True)
    time.sleep(1000)

async def main():
    async with iriscw.Cluster.local(nodes=1, boot_delay=0.0) as cluster:
        job = await cluster.client.submit(work, name="w", resources=iriscw.Resources(cpu="100m", memory="64MiB"))
        async for line in job.logs(follow=True):
            print(line, flush=True)

{run}
"""


class Program:
    """A program with a folder for temporary files of its own, which is interrupted once it has said something."""

    def __init__(self, folder, *argv):
        self.temporary = folder / "tmp"
        self.temporary.mkdir(mode=0o700)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "IRISCW_CONTEXT": str(folder / "context")}
        for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_WORKDIR"):
            self.environment.pop(name, None)
        self.said = []
        self._heard = threading.Condition()
        self.process = subprocess.Popen(
            argv, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._heard:
                self.said.append(line.rstrip())
                self._heard.notify_all()

    def until(self, words):
        """Wait until it says them."""
        with self._heard:
            assert self._heard.wait_for(lambda: any(words in line for line in self.said), ENDS_WITHIN_S), self.said

    def interrupt(self, delays, number=signal.SIGINT):
        """Send a signal, and one more after each delay; give the exit code."""
        self.process.send_signal(number)
        for delay in delays:
            time.sleep(delay)
            self.process.send_signal(number)  # nothing happens if it has ended
        return self.ended()

    def ended(self):
        """Wait for the end; one that hangs shows its output."""
        try:
            code = self.process.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"it hangs; it said {self.said}")
        self._reader.join()
        return code

    def close(self):
        """Leave nothing of it, whatever happened."""
        self.process.kill()
        self._reader.join()
        self.process.stdout.close()
        for line in processes_in(self.temporary):
            with contextlib.suppress(ProcessLookupError):  # it ended with another
                os.kill(int(line.split()[0]), signal.SIGKILL)

    def left(self):
        """Name what is left: processes and folders."""
        return processes_in(self.temporary), [path.name for path in self.temporary.glob("iriscw-*")]

    def removed_by_the_next(self, monkeypatch):
        """Do what the next cluster begins with; give what is left then.

        What a process that is ending still writes to cannot be removed; it stays for the cluster after.
        """
        monkeypatch.setattr("tempfile.tempdir", str(self.temporary))
        for _ in range(3):
            anyio.run(remove_abandoned)
            if self.left() == ([], []):
                break
            time.sleep(0.5)
        return self.left()


@pytest.fixture
def start(tmp_path):
    """Start a program, and wait until it says some words."""
    programs = []

    def started(words, *argv):
        programs.append(Program(tmp_path, *argv))
        programs[0].until(words)
        return programs[0]

    yield started
    for program in programs:
        program.close()


RUNS = {
    "asyncio": "asyncio.run(main())",
    "anyio": "anyio.run(main)",
    "stack": """
async def stacked():
    from contextlib import AsyncExitStack
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(anyio.create_task_group())
        await stack.enter_async_context(iriscw.Cluster.local(nodes=1, boot_delay=0.0))
        print("at work", flush=True)
        await anyio.sleep_forever()

anyio.run(stacked)""",
}


@pytest.mark.slow
@pytest.mark.sampled(3, by="run")
@pytest.mark.parametrize(
    ("run", "delays"),
    [
        ("asyncio", []),
        pytest.param("asyncio", [0.3], marks=pytest.mark.slow),
        pytest.param("asyncio", [1.1], marks=pytest.mark.slow),
        pytest.param("anyio", [0.02], marks=pytest.mark.slow),
        pytest.param("anyio", [0.2], marks=pytest.mark.slow),
        pytest.param("stack", [0.05], marks=pytest.mark.slow),
    ],
)
def test_a_script_ends_at_the_first_or_second_ctrl_c(start, monkeypatch, run, delays):
    """A program around `Cluster.local` ends whenever the second Ctrl-C comes. The first leaves nothing.

    Python raises the second wherever it happens to be. If that cuts the end short, the next cluster removes the rest.
    """
    program = start("at work", sys.executable, "-c", SCRIPT.format(run=RUNS[run]))
    assert program.interrupt(delays) in INTERRUPTED
    if not delays:
        assert program.left() == ([], [])
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("run", "delays"),
    [("asyncio", [0.0, 2.0, 2.0]), ("asyncio", [0.02, 0.02]), ("asyncio", [0.1, 0.2]), ("anyio", [0.1, 0.1])],
)
def test_a_script_ends_at_the_third_ctrl_c(start, monkeypatch, run, delays):
    """The third Ctrl-C ends the program as it is: it does not hang, and the next cluster removes what it left.

    Where the second comes within a millisecond of the first it may hit asyncio while it wakes a task. That task is
    never woken then, whatever it waits for, and only a third one ends its loop. Two that come at once may be one to the
    kernel: so then one more is sent.
    """
    program = start("at work", sys.executable, "-c", SCRIPT.format(run=RUNS[run]))
    assert program.interrupt(delays) in INTERRUPTED
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
def test_a_start_is_interrupted(start, monkeypatch):
    """Two Ctrl-C while the cluster starts end it as well."""
    begins = "print('begins', flush=True); " + RUNS["asyncio"]
    program = start("begins", sys.executable, "-c", SCRIPT.format(run=begins))
    assert program.interrupt([0.1]) in INTERRUPTED
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("delays", [[], [0.1], [0.1, 0.1]])
def test_the_demo_is_interrupted(start, monkeypatch, delays):
    """`iriscw demo` says that it was interrupted, without a traceback, and leaves nothing for good."""
    program = start("RUNNING", *IRISCW, "demo", "--plain")
    assert program.interrupt(delays) in INTERRUPTED
    assert "Traceback" not in "\n".join(program.said)
    if len(delays) < 2:
        assert program.said[-1] == "interrupted"
        assert program.left() == ([], [])
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
@pytest.mark.sampled(3, by="moment")
@pytest.mark.parametrize("delays", [[], [0.1], [0.1, 0.1]])
@pytest.mark.parametrize("moment", ["SIGKILL to worker", "SIGKILL to controller", "has taken the cluster over"])
def test_the_demo_is_interrupted_under_either_controller(start, monkeypatch, moment, delays):
    """Whoever has the machines when Ctrl-C comes, the first controller, nobody, or the next one: they are ended."""
    program = start(moment, *IRISCW, "demo", "--plain")
    assert program.interrupt(delays) in INTERRUPTED
    assert "Traceback" not in "\n".join(program.said)
    if len(delays) < 2:
        assert program.said[-1] == "interrupted"
        assert program.left() == ([], [])
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
def test_a_demo_that_is_killed_ends_its_controller(start, monkeypatch):
    """So its machines end as well, in order; the folder is removed by the next cluster."""
    program = start("RUNNING", *IRISCW, "demo", "--plain")
    program.process.kill()
    program.ended()
    deadline = time.monotonic() + ENDS_WITHIN_S
    while processes_in(program.temporary) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_in(program.temporary) == []
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["an HTTP server fills", "it is frozen", "it is thawed"])
def test_the_second_act_is_interrupted(start, moment):
    """Ctrl-C while the server starts, is frozen or is thawed: it is told, and neither process nor memory is left."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    program = start(moment, *IRISCW, "demo", "--plain", "--act", "2", "--state", "64MiB")
    said = "\n".join(program.said)
    folder = Path(re.search(r"/dev/shm/iriscw-demo-\w+", said)[0])
    code = program.interrupt([])
    if code:  # it may be over before it hears of it
        assert code in INTERRUPTED
        assert program.said[-1] == "interrupted"
    assert "Traceback" not in "\n".join(program.said)
    assert not folder.exists()
    assert processes_in(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("delays", [[], [0.05], [0.05, 0.05]])
def test_up_is_interrupted_under_a_job(start, monkeypatch, delays):
    """`iriscw up` ends in order at the first Ctrl-C, and without grace at the second, with a job at work."""
    program = start("iriscw is up", *IRISCW, "up", "--nodes", "1")
    submit = [*IRISCW, "submit", "--cpu", "100m", "--memory", "64MiB", "--", "sleep", "1000"]
    subprocess.run(submit, env=program.environment, check=True, capture_output=True, timeout=ENDS_WITHIN_S)
    code = program.interrupt(delays)
    assert code in (0, *INTERRUPTED)
    if not delays:
        assert (code, program.said[-1]) == (0, "stopped; nothing is left running")
    if len(delays) < 2:
        assert program.left() == ([], [])
    assert program.removed_by_the_next(monkeypatch) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("command", [("up", "--nodes", "1"), ("demo", "--plain")])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_ends_it_in_order(start, command, number):
    """SIGHUP, sent twice as by kernel and shell, and SIGTERM end `up` and `demo` as Ctrl-C does."""
    program = start("127.0.0.1:", *IRISCW, *command)
    code = program.interrupt([0.01] if number == signal.SIGHUP else [], number)
    assert code == {"up": 0, "demo": 130}[command[0]]
    assert program.left() == ([], [])


@pytest.mark.slow
def test_nohup_is_respected(start):
    """Who starts `up` with SIGHUP ignored means it to outlive the terminal."""
    program = start("iriscw is up", "nohup", *IRISCW, "up", "--nodes", "1")
    program.process.send_signal(signal.SIGHUP)
    assert program.interrupt([]) == 0
    assert "stopping" in program.said[-2]


def test_an_interrupt_during_the_imports_is_one_line(start, tmp_path):
    """Ctrl-C before the command line is loaded says that, and no traceback."""
    (tmp_path / "click.py").write_text("import time; print('importing', flush=True); time.sleep(1000)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from iriscw.cli import main; sys.exit(main())"
    program = start("importing", sys.executable, "-c", code)
    assert program.interrupt([]) == 130
    assert program.said == ["importing", "interrupted"]
