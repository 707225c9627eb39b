"""Containers of the real runc, frozen and brought back through the wrapper with the words of containerd's shim."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_agent, real_containers, real_trees

from real_agent import Serving
from real_containers import COUNTING_AND_TALKING, Box, Runc, find_runc, runs
from real_trees import PATIENCE_S, why_not

from iriscw.agent.client import AgentCaller
from iriscw.freeze.drivers.criu.finding import find_criu
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from raised import that
from waiting import block_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program():
    """Skip where no container can be frozen, and say why; give the real runc."""
    found, trouble = find_runc()
    if not found:
        pytest.skip(trouble)
    if why_not():
        pytest.skip(why_not())
    return found


@pytest.fixture
def runc(program, tmp_path):
    """A runc with a state of its own."""
    made = Runc(program, tmp_path)
    done = made("list")
    if done.returncode:
        pytest.skip(f"runc does not run here: {done.stderr.strip()}")
    return made


@pytest.fixture
def agent(runc, tmp_path):
    """An agent that knows this runc."""
    made = Serving(tmp_path, IRISCW_RUNC_REAL=runc.program)
    yield made
    made.end()


@pytest.fixture
def box(runc):
    """A function that starts a container; all of them are removed afterwards."""
    started = []

    def start(name="box", **words):
        started.append(Box(runc, name, **words))
        return started[-1]

    yield start
    for each in started:
        each.remove()


@pytest.fixture
def slow_agent(runc, tmp_path):
    """An agent whose CRIU waits until a file is there, so that an operation stands still while it dumps or restores."""
    gate, slow = tmp_path / "go-on", tmp_path / "slow-criu"
    waits = f'case " $* " in *" swrk "*) while [ ! -e {gate} ]; do sleep 0.05; done;; esac'
    slow.write_text(f'#!/bin/sh\n{waits}\nexec {find_criu()} "$@"\n', encoding="utf-8")
    slow.chmod(0o700)
    made = Serving(tmp_path, IRISCW_RUNC_REAL=runc.program, IRISCW_CRIU=str(slow))
    made.gate = gate
    yield made
    gate.touch()
    made.end()


def stands_in(agent, phase, process):
    """Wait until the agent's one operation has entered a phase, or who began it has ended."""

    async def wait():
        with anyio.fail_after(PATIENCE_S):
            async with AgentCaller(agent.socket) as caller:
                found = []
                while not found and process.poll() is None:
                    found = await caller.operations()
                if not found:
                    return
                async for view in caller.watch(found[0].asked.operation):
                    if phase in [step.phase for step in view.steps]:
                        return

    anyio.run(wait)


@pytest.fixture
def place(tmp_path):
    """A folder that checkpoints may be put into, which is not there yet."""
    return tmp_path / "root" / "chk-1"


def frozen(runc, container, place, *more):
    """Freeze a container, and see that nothing of it runs and runc has forgotten it."""
    pid = container.pid
    done = runc.wrapped(*container.checkpoint_words(place, *more))
    assert done.returncode == 0, (done.stderr, runc.logged())
    assert not runs(pid)
    assert container.status() == ""
    return container.counts()


def brought_back(runc, container, place, *more):
    """Bring a container back, and see that it counts on where it was."""
    done = runc.wrapped(*container.restore_words(place, *more), stdout=subprocess.DEVNULL)
    assert done.returncode == 0, runc.logged()
    assert container.status() == "running"
    container.counts_on()
    assert container.unbroken()


def test_a_container_goes_and_comes_back(agent, runc, box, place):
    """With namespaces of its own and two processes: the state is the same, and runc knows the container again."""
    container = box(children=1)
    counted = frozen(runc, container, place)
    assert container.counts() == counted
    brought_back(runc, container, place)
    assert json.loads(runc("state", "box").stdout)["pid"] == container.pid
    assert runc.wrapped("kill", "box", "KILL").returncode == 0
    block_until(lambda: container.status() == "stopped", "it has ended")
    assert runc.wrapped("delete", "box").returncode == 0
    assert container.status() == ""


def test_a_container_that_runs_on(agent, runc, box, place):
    """With ``--leave-running`` it counts on, and what was frozen can be brought back when it has ended."""
    container = box()
    done = runc.wrapped(*container.checkpoint_words(place, "--leave-running"))
    assert done.returncode == 0, runc.logged()
    counted = container.counts()[0]
    container.counts_on()
    assert container.status() == "running"
    assert container.unbroken()
    refused = runc.wrapped(*container.restore_words(place)[:-1], "other", stdout=subprocess.DEVNULL)
    assert refused.returncode == 1
    assert "still runs: there would be two of it" in runc.logged()[-1]["msg"]
    assert runc("state", "other").returncode == 1  # no runtime was started for it
    assert runc.wrapped("delete", "--force", "box").returncode == 0
    done = runc.wrapped(*container.restore_words(place), stdout=subprocess.DEVNULL)
    assert done.returncode == 0, runc.logged()
    block_until(lambda: container.counts()[0] < counted or container.counts()[0] > 0, "it writes")
    container.counts_on()
    assert container.status() == "running"


@pytest.mark.parametrize("copied", [False, True])
def test_a_terminal_in_a_container(agent, runc, box, place, copied):
    """What waits in it is there when it runs on, and when it comes back."""
    container = box(program=COUNTING_AND_TALKING)
    if copied:
        done = runc.wrapped(*container.checkpoint_words(place, "--leave-running"))
        assert done.returncode == 0, runc.logged()
    else:
        frozen(runc, container, place)
        brought_back(runc, container, place)
    (container.data / "tell").touch()
    said = container.data / "said"
    block_until(lambda: said.exists() and said.read_text().endswith("\n"), "it has told")
    assert said.read_text() == r"(b'one', b'two\n', True, [True, True])" + "\n"


def test_a_paused_container(agent, runc, box, place):
    """As ``ctr tasks checkpoint`` has it: what was paused is so afterwards, and counts on when it is resumed."""
    container = box()
    assert runc.wrapped("pause", "box").returncode == 0
    before = container.counts()
    done = runc.wrapped(*container.checkpoint_words(place, "--leave-running"))
    assert done.returncode == 0, runc.logged()
    assert container.status() == "paused"
    assert container.counts() == before
    assert runc.wrapped("resume", "box").returncode == 0
    container.counts_on()
    assert container.unbroken()
    runc.wrapped("delete", "--force", "box")
    done = runc.wrapped(*container.restore_words(place), stdout=subprocess.DEVNULL)
    assert done.returncode == 0, runc.logged()
    container.counts_on()


def test_its_standard_output(agent, runc, box, place, tmp_path):
    """It is a pipe, as under containerd's shim: who brings the container back holds the other end of a new one."""
    container = box()
    container.start_anew()
    config = json.loads((container.bundle / "config.json").read_text(encoding="utf-8"))
    loud = "import itertools, time\nfor each in itertools.count():\n print(each, flush=True)\n time.sleep(0.005)"
    config["process"]["args"][2:] = ["-c", loud]
    (container.bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def through_a_pipe(*words):
        reads, writes = os.pipe()
        try:
            assert runc.wrapped(*words, stdout=writes).returncode == 0, runc.logged()
        finally:
            os.close(writes)
        return os.fdopen(reads, encoding="utf-8")

    words = ("run", "--detach", "--bundle", str(container.bundle), "--pid-file", str(container.pid_file), "box")
    with through_a_pipe(*words) as output:
        first = [int(output.readline()) for _ in range(20)]
        assert first == [*range(20)]
        done = runc.wrapped(*container.checkpoint_words(place))
        assert done.returncode == 0, runc.logged()
        last = int(output.read().split()[-1])
    with through_a_pipe(*container.restore_words(place)) as output:
        assert [int(output.readline()) for _ in range(20)] == [*range(last + 1, last + 21)]


def test_a_container_that_cannot_be_frozen(agent, runc, box, place, tmp_path):
    """CRIU says no, because its standard output is a file from outside: it counts on, and the log says why."""
    container = box()
    container.start_anew()
    with (tmp_path / "outside").open("w", encoding="utf-8") as outside:
        words = ("run", "--detach", "--bundle", str(container.bundle), "--pid-file", str(container.pid_file), "box")
        assert runc.wrapped(*words, stdout=outside).returncode == 0
    done = runc.wrapped(*container.checkpoint_words(place))
    assert done.returncode == 1
    last = runc.logged()[-1]
    assert last["level"] == "error"
    assert "CRIU could not freeze the tree" in last["msg"]
    assert done.stderr.strip() == last["msg"]
    assert container.status() == "running"
    container.counts_on()
    assert container.unbroken()
    assert not (place / "artifacts").exists() or not any((place / "artifacts").iterdir())


def test_what_is_refused(agent, runc, box, place, tmp_path):
    """What cannot be had, a folder that is none of the agent's, a container that is not there: each by its name."""
    container = box()
    for words, said in (
        (container.checkpoint_words(place, "--pre-dump"), "--pre-dump"),
        (container.checkpoint_words(place, "--parent-path", "x"), "--parent-path"),
        (container.checkpoint_words(place, "--empty-ns", "mount"), "'mount' cannot come back empty"),
        (container.checkpoint_words(tmp_path / "elsewhere"), "PathNotAllowed"),
        ((*container.checkpoint_words(place)[:-1], "nobody"), "ContainerUnknown"),
        (container.restore_words(place), "PathNotAllowed"),
    ):
        done = runc.wrapped(*words)
        assert done.returncode == 1, words
        assert said in runc.logged()[-1]["msg"], words
    assert container.status() == "running"
    container.counts_on()


def test_an_operation_and_other_commands(slow_agent, runc, box, place):
    """While an operation runs, pausing is refused; killing has it undone first, and kills."""
    container = box()
    freeze = runc.start(*container.checkpoint_words(place))
    stands_in(slow_agent, "dumping", freeze)
    for command in ("pause", "resume"):
        assert runc.wrapped(command, "box").returncode == 1
        assert "TargetBusy" in runc.logged()[-1]["msg"]
    assert container.status() == "running"
    assert runc.wrapped("state", "box").returncode == 0  # what changes nothing is not held up
    slow_agent.gate.touch()
    assert runc.wrapped("kill", "box", "KILL").returncode in (0, 1)  # 1: it was frozen before it could be undone
    _, said = freeze.communicate(timeout=PATIENCE_S)
    block_until(lambda: container.status() in ("", "stopped"), "it has ended")
    assert freeze.returncode in (0, 1), said
    assert not runs(container.pid)


def test_a_container_is_killed_while_it_is_frozen(slow_agent, runc, box, place):
    """The freeze stands still with CRIU; a kill has it given up, does not wait for it to go on, and kills."""
    container = box()
    freeze = runc.start(*container.checkpoint_words(place))
    stands_in(slow_agent, "dumping", freeze)
    done = runc.wrapped("kill", "box", "KILL")
    assert done.returncode == 0, runc.logged()
    freeze.communicate(timeout=PATIENCE_S)
    assert freeze.returncode == 1
    assert any("Cancelled" in each["msg"] or "its container is to end" in each["msg"] for each in runc.logged())
    block_until(lambda: not runs(container.pid), "it has ended")


@pytest.mark.parametrize("patience", ["gone", "stands still"])
def test_without_an_agent(agent, runc, box, place, patience):
    """Nothing is frozen and that is said; but a container can be killed and deleted, whatever the agent does."""
    container = box()
    if patience == "gone":
        agent.kill()
        done = runc.wrapped(*container.checkpoint_words(place))
        assert done.returncode == 1
        assert "AgentUnreachable" in runc.logged()[-1]["msg"]
        assert container.status() == "running"
        assert runc.wrapped("pause", "box").returncode == 0
        assert runc.wrapped("resume", "box").returncode == 0
    else:
        runc.look_for(2.0)  # it is asked three times
        agent.process.send_signal(signal.SIGSTOP)
        assert runc.wrapped("pause", "box").returncode == 1
        assert "does not say what runs" in runc.logged()[-1]["msg"]
    assert runc.wrapped("kill", "box", "KILL").returncode == 0
    block_until(lambda: container.status() == "stopped", "it has ended")
    assert runc.wrapped("delete", "box").returncode == 0
    if patience != "gone":
        agent.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("phase", ["dumping", "sealing", "publishing", "ending"])
def test_a_freeze_whose_agent_is_killed(agent, runc, box, place, phase):
    """SIGKILL of the agent at any step: the container runs on, or its checkpoint is whole: one of the two."""
    container = box(children=1)
    freeze = runc.start(*container.checkpoint_words(place))
    stands_in(agent, phase, freeze)
    agent.kill()
    freeze.communicate(timeout=PATIENCE_S)
    agent.start()
    agent.nothing_owed()
    whole = [*(place / "artifacts").glob("*/manifest.jsonl")] if place.exists() else []
    if whole:
        block_until(lambda: not runs(container.pid), "the frozen container has ended")
        runc("delete", "--force", "box")
        brought_back(runc, container, place)
    else:
        assert container.status() == "running"
        container.counts_on()
        assert container.unbroken()


def test_a_freeze_whose_agent_is_killed_while_criu_waits(slow_agent, runc, box, place):
    """The same, when CRIU has not begun: the container never notices."""
    container = box()
    freeze = runc.start(*container.checkpoint_words(place))
    stands_in(slow_agent, "dumping", freeze)
    slow_agent.kill()
    freeze.communicate(timeout=PATIENCE_S)
    assert freeze.returncode == 1
    assert "AgentUnreachable" in runc.logged()[-1]["msg"]
    slow_agent.gate.touch()
    slow_agent.start()
    slow_agent.nothing_owed()
    assert container.status() == "running"
    container.counts_on()
    assert container.unbroken()
    shutil.rmtree(place)
    frozen(runc, container, place)


def test_a_criu_that_is_killed(slow_agent, runc, box, place):
    """CRIU is killed while it holds the container's control group: the container counts on."""
    container = box()
    slow_agent.gate.touch()
    freeze = runc.start(*container.checkpoint_words(place))
    stands_in(slow_agent, "dumping", freeze)
    record = next(iter(place.glob("work/*/criu-run.json")), None)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # then it was quicker than we
        if record is not None:
            os.kill(json.loads(record.read_text(encoding="utf-8"))["criu"]["pid"], signal.SIGKILL)
    freeze.communicate(timeout=PATIENCE_S)
    if freeze.returncode == 0:
        return  # it was quicker than we
    assert container.status() == "running"
    container.counts_on()
    assert container.unbroken()


def test_a_restore_whose_agent_is_killed(slow_agent, runc, box, place):
    """SIGKILL of the agent while CRIU brings a container back: nothing of it is left, and it can be brought back."""
    container = box()
    slow_agent.gate.touch()
    frozen(runc, container, place)
    slow_agent.gate.unlink()
    thaw = subprocess.Popen(
        [str(runc.wrapper), *runc.before(), *container.restore_words(place)],
        env=runc.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stands_in(slow_agent, "restoring", thaw)
    slow_agent.kill()
    slow_agent.gate.touch()
    assert thaw.wait(PATIENCE_S) == 1
    slow_agent.start()
    slow_agent.nothing_owed()
    runc("delete", "--force", "box")
    brought_back(runc, container, place)


def test_a_restore_that_its_runtime_refuses(agent, runc, box, place):
    """The real runc says no, because its bundle is gone: its words and code are told, and the checkpoint stays."""
    container = box()
    frozen(runc, container, place)
    aside = container.bundle.with_name("aside")
    container.bundle.rename(aside)
    container.bundle.mkdir()
    done = runc.wrapped(*container.restore_words(place), stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "config.json" in runc.logged()[-1]["msg"]
    container.bundle.rmdir()
    aside.rename(container.bundle)
    agent.nothing_owed()
    brought_back(runc, container, place)


def test_copies_of_a_checkpoint(agent, runc, box, place):
    """As containerd has it: unpacked anew for each restore, and left lying. The copy that is named comes back."""
    container = box()
    frozen(runc, container, place)
    first, second = (shutil.copytree(place, place.with_name(name)) for name in ("chk-2", "chk-3"))
    for damaged in (place, second):
        pages = next(damaged.glob("artifacts/*/images/pages-1.img"))
        pages.write_bytes(bytes(pages.stat().st_size))
    brought_back(runc, container, first)
    assert runc.wrapped("delete", "--force", "box").returncode == 0
    done = runc.wrapped(*container.restore_words(second), stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "ArtifactRefused" in runc.logged()[-1]["msg"]
    before = container.counts()
    done = runc.wrapped(*container.restore_words(first), stdout=subprocess.DEVNULL)
    assert done.returncode == 0, runc.logged()
    assert container.status() == "running"
    block_until(lambda: container.counts() != before, "it writes")


def test_a_damaged_checkpoint(agent, runc, box, place):
    """One byte is another one: the runtime is not even started."""
    container = box()
    frozen(runc, container, place)
    pages = next(place.glob("artifacts/*/images/pages-1.img"))
    data = bytearray(pages.read_bytes())
    data[len(data) // 2] ^= 1
    pages.write_bytes(data)
    done = runc.wrapped(*container.restore_words(place), stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "ArtifactRefused" in runc.logged()[-1]["msg"]
    assert container.status() == ""


def test_the_service_without_the_wrapper(agent, runc, box, place):
    """ShimService.Checkpoint finds by itself that a container has numbers of its own; Restore says who can do it."""
    container = box()

    async def ask(message, reply):
        name = type(message).__name__.removesuffix("Request")
        with anyio.fail_after(PATIENCE_S):
            async with RpcChannel(f"unix:{agent.socket}") as channel:
                return await channel.unary(f"/iriscw.v1.ShimService/{name}", message, reply)

    done = anyio.run(ask, v1.CheckpointRequest(container_id="box", destination_path=str(place)), v1.CheckpointResponse)
    assert done.size_bytes > 0
    assert container.status() == ""
    with pytest.raises(Exception, check=that(names=("GateRefused", "iriscw-runc"))):  # noqa: B017 - check says which
        anyio.run(ask, v1.RestoreRequest(container_id="box", source_path=str(place)), v1.RestoreResponse)
    brought_back(runc, container, place)
