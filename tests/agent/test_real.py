"""The node agent as a process with the real CRIU: through its socket, and killed in the middle of its work."""

import contextlib
import json
import signal
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_agent, real_trees

from real_agent import Serving
from real_trees import PATIENCE_S, Command, Counting, why_not

from iriscw.freeze.proc_text import parse_status
from iriscw.processes.identity import ProcessGone, identify, read_stat
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from waiting import block_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def criu():
    """Skip where nothing can be frozen, and say why."""
    if why_not():
        pytest.skip(why_not())


@pytest.fixture
def agent(tmp_path, criu):
    """An agent with a state of its own."""
    made = Serving(tmp_path)
    yield made
    made.end()


@pytest.fixture
def counting(tmp_path):
    """A function that starts a tree; all of them are ended afterwards."""
    started = []

    def start(**words):
        folder = tmp_path / f"tree-{len(started)}"
        folder.mkdir()
        started.append(Counting(folder, **words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


class Through:
    """The command line, through an agent."""

    def __init__(self, agent):
        self.agent = agent
        self.command = Command(agent.folder)

    def start(self, name, *arguments):
        """Start a command; its standard error is read line by line."""
        return self.command.start(name, "--agent", str(self.agent.socket), *arguments)

    def __call__(self, name, *arguments):
        """Run a command to its end; give its code, what it says and what went wrong."""
        process = self.start(name, *arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def listed(self):
        """Return what lies on disk: memory is shared with other tests."""
        code, out, err = self("checkpoints", "-o", "json")
        assert code == 0, err
        return [each for each in json.loads(out) if each["tier"] == "disk"]


def test_a_tree_goes_and_comes_back(agent, counting):
    """Frozen and thawed by the agent, the tree outlives it, too."""
    iriscw = Through(agent)
    tree = counting(children=2)
    code, out, err = iriscw("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "--label", "a=b", "-o", "json")
    assert code == 0, err
    assert "writes the images" in err
    done = json.loads(out)
    assert (done["outcome"], done["processes"], done["pid"], done["tier"]) == ("frozen", 3, tree.pid, "disk")
    assert done["size_bytes"] > 0
    assert {"dumping", "sealing", "ending"} <= {*done["phases"]}
    assert not tree.alive()
    assert [each["artifact"] for each in iriscw.listed()] == [done["checkpoint"]]
    code, _, err = iriscw("restore", done["checkpoint"])
    assert code == 0, err
    tree.counts_on()
    agent.kill()
    tree.counts_on()
    assert tree.unbroken()


def test_a_full_tier_is_emptied_and_the_tree_thawed_from_below(tmp_path, criu, counting):
    """An agent that balances: what is frozen to RAM goes to the disk, and comes back from there by itself."""
    options = ("--balance", "--watermarks", "ram=0-5", "--ram-budget", "200MiB")
    agent = Serving(tmp_path, options=options, IRISCW_RAM_DIR=str(tmp_path / "ram"))
    try:
        iriscw, tree = Through(agent), counting(children=2)
        code, out, err = iriscw("checkpoint", "--pid", str(tree.pid), "--tier", "ram", "-o", "json")
        assert code == 0, err
        made = json.loads(out)["checkpoint"]
        assert not tree.alive()
        gone, come = (tmp_path / tier / "artifacts" / made for tier in ("ram", "state/checkpoints"))
        block_until(lambda: come.exists() and not gone.exists(), "it never went to the disk")
        code, _, err = iriscw("restore", made)
        assert code == 0, err
        tree.counts_on()
        assert tree.unbroken()
    finally:
        agent.end()


def test_two_trees_at_once(agent, counting):
    """One agent freezes both at the same time, and thaws both."""
    iriscw = Through(agent)
    trees = [counting(children=1), counting(children=1)]
    freezes = [iriscw.start("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json") for tree in trees]
    said = [process.communicate(timeout=PATIENCE_S) for process in freezes]
    assert [process.returncode for process in freezes] == [0, 0], said
    assert not any(tree.alive() for tree in trees)
    thaws = [iriscw.start("restore", json.loads(out)["checkpoint"]) for out, _ in said]
    said = [process.communicate(timeout=PATIENCE_S) for process in thaws]
    assert [process.returncode for process in thaws] == [0, 0], said
    for tree in trees:
        tree.counts_on()
        assert tree.unbroken()


def test_an_interrupted_command(agent, counting, tmp_path):
    """Ctrl-C of the command has the agent undo the freeze before the command ends."""
    iriscw = Through(agent)
    tree = counting()
    hook = tmp_path / "hook"
    hook.mkdir()
    process = iriscw.start("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "--hook-dir", str(hook))
    for line in process.stderr:
        if "come to rest" in line:
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert [path.name for path in hook.iterdir()] == ["thawed"]
    tree.counts_on()
    assert tree.unbroken()
    assert iriscw.listed() == []


def killed_at(agent, step, process):
    """Kill the agent when a command through it says that it takes this step."""
    for line in process.stderr:
        if step in line:
            agent.kill()
            break
    _, err = process.communicate(timeout=PATIENCE_S)
    assert agent.process.returncode == -signal.SIGKILL, err


@pytest.mark.parametrize("step", ["writes the images", "gives every byte a digest", "publishes"])
def test_a_freeze_whose_agent_is_killed(agent, counting, step):
    """SIGKILL of the agent at any step: the next one undoes it or finishes it, and nothing is lost."""
    iriscw = Through(agent)
    tree = counting(children=1, ballast_mib=32)
    killed_at(agent, step, iriscw.start("checkpoint", "--pid", str(tree.pid), "--tier", "disk"))
    agent.start()
    agent.nothing_owed()
    found = iriscw.listed()
    if found:
        block_until(lambda: not tree.alive(), "the frozen tree has ended")
        code, _, err = iriscw("restore", found[0]["artifact"])
        assert code == 0, err
    tree.counts_on()
    assert tree.unbroken()


def test_a_thaw_whose_agent_is_killed(agent, counting):
    """SIGKILL of the agent while CRIU brings a tree back: it runs whole, or nothing of it does and it can be thawed."""
    iriscw = Through(agent)
    tree = counting(children=1, ballast_mib=32)
    code, out, err = iriscw("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json")
    assert code == 0, err
    name = json.loads(out)["checkpoint"]
    assert not tree.alive()  # which reaps it: a zombie of ours would keep its number
    killed_at(agent, "brings the tree back", iriscw.start("restore", name))
    agent.start()
    agent.nothing_owed()
    assert [each["artifact"] for each in iriscw.listed()] == [name]
    if not tree.alive():
        code, _, err = iriscw("restore", name)
        assert code == 0, err
    tree.counts_on()
    assert tree.unbroken()


def test_a_thaw_into_a_namespace_whose_agent_is_killed(agent, counting):
    """SIGKILL of the agent while CRIU works in there: the tree runs whole, or nothing of it does."""
    iriscw = Through(agent)
    tree = counting(children=1, ballast_mib=32)
    number = tree.pid
    code, out, err = iriscw("checkpoint", "--pid", str(number), "--tier", "disk", "-o", "json")
    assert code == 0, err
    name = json.loads(out)["checkpoint"]
    assert not tree.alive()
    killed_at(agent, "brings the tree back", iriscw.start("restore", name, "--pids", "fresh"))
    agent.start()
    agent.nothing_owed()
    assert [(each["artifact"], each["pinned_by"]) for each in iriscw.listed()] == [(name, [])]
    found = seen_as(number)
    if not found:
        code, _, err = iriscw("restore", name, "--pids", "fresh")
        assert code == 0, err
        found = seen_as(number)
    (tree.pid,) = found
    tree.counts_on()
    assert tree.unbroken()


def seen_as(number):
    """Return the processes that have a number in a PID namespace which is not ours."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessGone, FileNotFoundError, ProcessLookupError):
            inside = parse_status((each / "status").read_text()).inner_pid
            if inside == number and not read_stat(int(each.name)).ended:
                found.append(int(each.name))
    return found


@pytest.mark.parametrize("step", ["lets the tree run", "brings its pages"])
def test_a_lazy_thaw_whose_agent_is_killed(agent, counting, step):
    """SIGKILL of the agent while pages come: they come all the same, and the next agent finishes the thaw.

    If it was not written down yet that all of the tree runs, the next agent ends it, and it can be thawed again.
    """
    iriscw = Through(agent)
    tree = counting(children=1, ballast_mib=64)
    code, out, err = iriscw("checkpoint", "--pid", str(tree.pid), "--tier", "disk", "-o", "json")
    assert code == 0, err
    name = json.loads(out)["checkpoint"]
    assert not tree.alive()
    killed_at(agent, step, iriscw.start("restore", name, "--lazy"))
    agent.start()
    agent.nothing_owed()
    assert [(each["artifact"], each["pinned_by"]) for each in iriscw.listed()] == [(name, [])]
    if tree.alive():
        tree.counts_on()
        assert tree.unbroken()
        return
    assert step == "lets the tree run"
    code, _, err = iriscw("restore", name, "--lazy")
    assert code == 0, err
    assert tree.alive()
    tree.counts_on()


def test_a_container_goes_and_comes_back(agent, counting, tmp_path):
    """By its runtime's state, into a folder that the caller names; after a restart of the agent, too."""
    tree = counting(children=1)
    me = identify(tree.pid)
    folder = tmp_path / "runc" / "box"
    folder.mkdir(parents=True)
    folder.chmod(0o700)  # whatever the umask
    state = {"id": "box", "init_process_pid": me.pid, "init_process_start": me.start_ticks}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "state.json").chmod(0o600)
    place = tmp_path / "root" / "chk-1"

    async def ask(message, reply):
        name = type(message).__name__.removesuffix("Request")
        with anyio.fail_after(PATIENCE_S):
            async with RpcChannel(f"unix:{agent.socket}") as channel:
                return await channel.unary(f"/iriscw.v1.ShimService/{name}", message, reply)

    request = v1.CheckpointRequest(container_id="box", destination_path=str(place))
    frozen = anyio.run(ask, request, v1.CheckpointResponse)
    assert not tree.alive()
    assert frozen.size_bytes > 0
    assert (place / "artifacts" / frozen.checkpoint_id / "manifest.jsonl").is_file()
    agent.kill()
    agent.start()
    back = v1.RestoreRequest(container_id="box", source_path=str(place))
    thawed = anyio.run(ask, back, v1.RestoreResponse)
    assert (thawed.checkpoint_id, thawed.pid) == (frozen.checkpoint_id, tree.pid)
    tree.counts_on()
    assert tree.unbroken()


POD = ("unshare", "--mount", "--ipc", "--uts", "--propagation", "private", "--")
"""The namespaces that the agent's pod has of its own: the node's processes and network it sees."""

OPEN_ANEW = 'exec "$@" </dev/null >/dev/null 2>&1'
"""A file that was opened elsewhere lies on a mount of there."""


def test_an_agent_in_a_pod_takes_in_what_it_can_bring_back(tmp_path, counting, criu):
    """A process with other mounts than the agent runs on, and the way out is said; one with the agent's comes back."""
    agent = Serving(tmp_path, POD)
    try:
        through = Through(agent)
        outside = counting()
        code, _, err = through("checkpoint", "--pid", str(outside.pid))
        assert code == 3
        assert "target: " in err
        assert "mounts of its own" in err
        assert f"nsenter --target {outside.pid} --mount" in err
        outside.counts_on()
        number = str(agent.process.pid)
        enter = ("nsenter", "--target", number, "--mount", "--ipc", "--uts", "--")
        inside = counting(within=(*enter, "sh", "-c", OPEN_ANEW, "sh"))
        code, out, err = through("checkpoint", "--pid", str(inside.pid), "-o", "json")
        assert code == 0, err
        assert not inside.alive()
        code, _, err = through("restore", json.loads(out)["checkpoint"])
        assert code == 0, err
        inside.counts_on()
        assert inside.unbroken()
        assert outside.unbroken()
    finally:
        agent.end()
