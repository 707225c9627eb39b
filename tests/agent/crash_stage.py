"""A stage for one plan of ``crash_plans.py``: the program, who freezes and thaws it, the crash, and who takes it up."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import attrs

from waiting import block_until

sys.path.insert(0, str(Path(__file__).parents[1] / "freeze" / "drivers" / "criu"))  # for frozen_states
sys.path.insert(0, str(Path(__file__).parents[1] / "freeze" / "drivers" / "cuda"))  # for stand_in

from crash_plans import CALLER, CRIU, DURING_HELPER, HELPER, OPERATOR, STAY, THAW
from frozen_states import after
from stand_in import GIB, StandIn

from iriscw._errors import IriscwError
from iriscw.agent.client import AgentCaller
from iriscw.cli.freeze_shown import STEPS
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.processes.reading import with_all_below
from iriscw.freeze.model import TaskIdentity
from iriscw.processes.identity import ProcessGone, identify, read_stat, send_signal

LAUNCHER = Path(__file__).with_name("crash_launcher.py")
PROGRAM = Path(__file__).parents[1] / "freeze" / "drivers" / "criu" / "frozen_program.py"
PATIENCE_S = 300.0
"""For anything: a machine with much else to do."""

DEVICE_BYTES = 64 << 20
FREE_BYTES = 8 * GIB
"""Of the GPU that stands in, while the program holds what it does."""


class Life:
    """One process of ours: a command, or an agent. Its words go to a file, so it never waits for a reader."""

    def __init__(self, stage, at, *arguments):
        self.name = f"{next(stage.numbers):02d}-{arguments[0]}"
        self.out, self.err = (stage.folder / f"{self.name}.{kind}" for kind in ("out", "err"))
        order = {
            "at": at,
            "memory": str(stage.memory),
            "state": str(stage.state),
            "library": str(stage.standin.library) if stage.standin is not None else "",
            "said": str(stage.folder / "said"),
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("IRISCW_")}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(LAUNCHER), json.dumps(order), *arguments],
                env={**environment, "IRISCW_STATE_DIR": str(stage.state)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        stage.lives.append(self)

    @property
    def ended(self):
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait(self):
        """Wait for its end; give its exit code. It ends well, says why it does not, or was killed."""
        code = self.process.wait(PATIENCE_S)
        said = self.err.read_text()
        assert "Traceback" not in said, f"{self.name} has no name for what went wrong"
        assert code in (0, 3, -signal.SIGKILL), f"{self.name} ended with {code}"
        return code

    def kill(self):
        """Kill it, and wait for its end."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Stage:
    """Folders, a program and those who freeze it, for one plan.

    Args:
        plan: the plan.
        compiled: the library that stands in for NVIDIA's driver.
    """

    def __init__(self, plan, compiled):
        self.plan = plan
        self.folder = Path(tempfile.mkdtemp(prefix="crash-"))
        self.memory = Path(tempfile.mkdtemp(prefix="iriscw-crash-", dir="/dev/shm"))
        self.state, self.socket = self.folder / "state", self.folder / "s" / "agent.sock"
        self.numbers, self.lives = itertools.count(), list[Life]()
        self.agent = None
        self.hanging = None
        self.said = dict[str, object]()
        """What the program said last."""
        self.kept = dict[str, object]()
        """What it had said when it was frozen."""
        self.artifact = ""
        self.standin = None
        if plan.cuda:
            (self.folder / "gpu").mkdir()
            self.standin = StandIn(self.folder / "gpu", compiled)
        self.process = self._started()
        self.root = identify_task(self.process.pid)
        if self.standin is not None:
            self.standin.put(str(self.root.pid), f"0 {DEVICE_BYTES} 0")
            self.standin.put("on-gpu", f"{self.root.pid} {DEVICE_BYTES}\n")
        self.said = self._asked()
        self.tree = with_all_below([self.root])  # once all of it has answered it is whole

    def _started(self):
        with socket.socket(socket.AF_UNIX) as ready, (self.folder / "errors").open("w") as errors:
            ready.bind(str(self.folder / "ready"))
            ready.listen()
            ready.settimeout(PATIENCE_S)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(self.folder), *self.plan.features],
                start_new_session=True,
                env={"PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            ready.accept()[0].close()
        return process

    # The program

    def _asked(self):
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(PATIENCE_S)
            channel.connect(str(self.folder / "ask"))
            return json.loads(b"".join(iter(lambda: channel.recv(1 << 16), b"")))

    def goes_on(self, since):
        """Ask it: it makes progress, and says what it has to after what it said then."""
        self.said = self._asked()
        expected = after(since)
        for name, found in self.said.items():
            assert found == expected[name], f"{name} is not what it was: {found} instead of {expected[name]}"

    def alive(self):
        """Whether the first process lives, be it the original or one that was thawed."""
        self.process.poll()
        try:
            return not read_stat(self.root.pid).ended
        except ProcessGone:
            return False

    def living(self):
        """Return all of the tree that lives; a zombie of ours is reaped."""
        return with_all_below([identify_task(self.root.pid)]) if self.alive() else ()

    def numbers_are_free(self):
        """Whether nobody of the tree has its number still; a zombie of ours is reaped once its threads are gone."""
        self.process.poll()
        return not any(Path(f"/proc/{task.pid}").exists() for task in self.tree)

    def end_tree(self):
        """Kill it, as somebody else would."""
        kill_all(self.living())
        self.process.poll()

    def lies_frozen(self):
        """The GPU is as the images have it: what was killed holds nothing of it."""
        if self.standin is not None:
            self.standin.put(str(self.root.pid), f"2 {DEVICE_BYTES} 0")
            self.standin.put("free", FREE_BYTES + DEVICE_BYTES)

    # Who does it

    def live(self, at, *arguments):
        """Begin a life; its instant, if it has one, as an order."""
        return Life(self, at, *arguments)

    def begin_agent(self, at=None):
        """Begin an agent, and wait until it listens or has ended."""
        options = ("--socket", str(self.socket), "--lock-patience", f"{PATIENCE_S:g}s")
        self.agent = self.live(at, "agent", "serve", *options)
        block_until(lambda: self.agent.ended or "iriscw agent at" in self.agent.err.read_text(), "the agent listens")

    def asked_for(self, at, *arguments):
        """Begin a command, or an agent with somebody who asks it; give who is waited for."""
        if not self.plan.by_agent:
            return self.live(at, *arguments)
        if self.agent is None or self.agent.ended or at is not None:
            self.end_agent()
            self.begin_agent(at)
        return self.live(None, *arguments, "--agent", str(self.socket))

    def end_agent(self):
        """Have it end, if there is one that lives."""
        if self.agent is not None and not self.agent.ended:
            self.agent.process.terminate()
            assert self.agent.wait() == 0

    def do(self, *arguments):
        """Have something done by whoever does it in this plan, to its end; give what is said of it."""
        life = self.asked_for(None, *arguments, "-o", "json")
        assert life.wait() == 0, life.err.read_text()
        return json.loads(life.out.read_text())

    # What the plan says

    def order(self):
        """Return what is asked for as a command line."""
        if self.plan.operation == THAW:
            return ("restore", self.artifact)
        more = ("--leave-running",) if self.plan.operation == STAY else ()
        return ("checkpoint", "--pid", str(self.root.pid), "--tier", self.plan.tier, *more)

    def prepare(self):
        """Freeze what is to be thawed."""
        self.kept = self.said
        if self.plan.operation == THAW:
            done = self.do("checkpoint", "--pid", str(self.root.pid), "--tier", self.plan.tier)
            self.artifact = done["checkpoint"]
            block_until(self.numbers_are_free, "the frozen tree has ended, and its numbers are free")

    def cut_off(self):
        """Begin what is asked for, and have the crash come."""
        victims = {OPERATOR: "self", CRIU: "criu"}
        at = None
        if self.plan.victim in victims:
            at = {**attrs.asdict(self.plan.at), "victim": victims[self.plan.victim]}
        if self.plan.call is not None:
            verb, when = self.plan.call
            self.standin.put(f"{verb}.{when}", "")
        asking = self.asked_for(at, *self.order())
        if self.plan.call is not None:
            self._during_call(asking, *self.plan.call)
        elif self.plan.victim == CALLER:
            block_until(lambda: asking.ended or STEPS[self.plan.at.phase] in asking.err.read_text(), "it is this far")
            asking.kill()
        code = asking.wait()
        if self.plan.victim == OPERATOR:
            operator = self.agent if self.plan.by_agent else asking
            assert operator.process.wait(PATIENCE_S) == -signal.SIGKILL, "it was not killed"
        assert at is None or (self.folder / "said").exists(), "the instant never came"
        return code

    def _during_call(self, asking, verb, when):
        hangs = self.standin.folder / f"{verb}.hangs"
        block_until(lambda: asking.ended or hangs.exists(), f"{verb} hangs")
        assert hangs.exists(), f"nobody called {verb}"
        self.standin.remove(f"{verb}.{when}")
        self.hanging = identify(int(hangs.read_text()))
        if self.plan.victim == HELPER:
            send_signal(self.hanging, signal.SIGKILL)
            return
        (self.agent if self.plan.by_agent else asking).kill()
        if self.plan.seed % 2:
            self.end_hanging()

    def end_hanging(self):
        """End the call that hangs, if it does still: it outlives who began it."""
        if self.hanging is not None:
            with contextlib.suppress(ProcessGone):
                send_signal(self.hanging, signal.SIGKILL)

    def recover(self):
        """Have it taken up: first by one who may be killed as well, then by one who is not."""
        again = {**attrs.asdict(self.plan.again), "victim": "self"} if self.plan.again is not None else None
        if self.plan.by_agent:
            if self.agent.ended:
                self.begin_agent(again)
            if not self._nothing_owed():
                assert self.agent.wait() == -signal.SIGKILL, "an agent ended by itself"
                self.begin_agent()
                assert self._nothing_owed(), "an agent ended by itself"
        else:
            if again is not None:
                self.live(again, "checkpoints").wait()
            # What a killed command had just forked may hold its journal for a moment.
            block_until(self._takes_up_all, "nothing is owed")
        self.end_hanging()

    def _takes_up_all(self):
        assert self.live(None, "checkpoints").wait() == 0
        return [*(self.state / "operations").iterdir()] == []

    def _nothing_owed(self):
        """Wait until the agent owes nothing; say no if it ends before."""
        if self.agent.ended:  # it is reaped: its number may mean somebody else
            return False

        async def wait():
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(end_of_agent, tasks.cancel_scope)
                    async with AgentCaller(self.socket) as caller:
                        for view in await caller.operations():
                            async for _ in caller.watch(view.asked.operation):
                                pass
                    tasks.cancel_scope.cancel()

        async def end_of_agent(scope):
            with open_pidfd(self.agent.process.pid) as descriptor:
                await anyio.wait_readable(descriptor)
            scope.cancel()

        try:
            anyio.run(wait)
        except* IriscwError:
            block_until(lambda: self.agent.ended, "an agent that does not answer has ended")
        return not self.agent.ended

    # Afterwards

    def report(self):
        """Say all there is to see."""
        lines = [self.plan.text, "", *self._words(), "", "processes:"]
        for pid in sorted(users_of(self.folder, self.memory)):
            with contextlib.suppress(OSError, ProcessGone):
                stat = read_stat(pid)
                lines.append(f"  {pid} {stat.name} {stat.state}, below {stat.parent_pid}")
        for root in (self.state, self.memory):
            lines += ["", *(f"{path.stat().st_mode:o} {path}" for path in sorted(root.rglob("*")) if path.exists())]
        for log in sorted((*self.state.rglob("*.log"), *self.memory.rglob("*.log"))):
            lines += ["", f"the end of {log}:", *log.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(lines)

    def _words(self):
        said = self.folder / "said"
        yield from said.read_text().splitlines() if said.exists() else ("nobody was killed by an order",)
        for life in self.lives:
            yield f"{life.name} ended with {life.process.poll()}"
            yield from (f"  {line}" for path in (life.err, life.out) for line in path.read_text().splitlines()[-30:])

    def close(self):
        """End all that is of it, and remove its folders."""
        for life in self.lives:
            life.kill()
        while found := [pid for pid in users_of(self.folder, self.memory) if pid != os.getpid()]:
            kill_all([TaskIdentity(each.pid, each.start_ticks, each.boot_id) for each in _identified(found)])
        self.process.wait(PATIENCE_S)
        for folder in (self.folder, self.memory):
            shutil.rmtree(folder)


@contextlib.contextmanager
def open_pidfd(pid):
    """Open a pidfd of a child of ours."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _identified(pids):
    for pid in pids:
        with contextlib.suppress(ProcessGone):
            yield identify(pid)


def kill_all(tasks):
    """Kill processes, and wait until they have ended."""
    for task in tasks:
        with contextlib.suppress(ProcessGone):
            send_signal(identify(task.pid), signal.SIGKILL)
    block_until(lambda: not any(_runs(task) for task in tasks), "what was killed has ended")


def _runs(task):
    try:
        stat = read_stat(task.pid)
    except ProcessGone:
        return False
    return not stat.ended and stat.start_ticks == task.start_ticks


def users_of(*folders):
    """Return the processes that were started with a path below these folders, work in one or have a file of it open.

    The folders are this test's own: nobody else's processes are found.
    """
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _uses(entry, tuple(map(str, folders))):
            found.add(int(entry.name))
    return found


def _uses(entry, folders):
    try:
        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        links = [(entry / "cwd").readlink(), *(each.readlink() for each in _listed(entry / "fd"))]
    except OSError:
        return False
    return any(folder in word for word in (*words, *map(str, links)) for folder in folders)


def _listed(folder):
    with contextlib.suppress(OSError):
        return [each for each in folder.iterdir() if each.is_symlink()]
    return []


__all__ = ["DEVICE_BYTES", "DURING_HELPER", "FREE_BYTES", "PATIENCE_S", "Stage", "users_of"]
