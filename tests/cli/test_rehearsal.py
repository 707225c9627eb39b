"""docs/served-simulator.md: an installation that is rehearsed on a laptop goes as the page says, command by command."""

import contextlib
import re
import shlex
from pathlib import Path

import anyio.from_thread
import pytest

from iriscw.cli.sim.serve import serve
from iriscw.deploy import awaiting, removing
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings, Timing

PAGE = (Path(__file__).parents[2] / "docs" / "served-simulator.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Rehearse an installation on a laptop\n")[2].partition("\n## ")[0]
(CONFIG,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
SERVED, REHEARSED, SHORT = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
(REFUSED,) = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)


def shown(block):
    """Return the commands of a block, each with the lines that are shown of what it prints."""
    commands = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append((shlex.split(line.removeprefix("$ ")), []))
        elif line != "...":
            commands[-1][1].append(line)
    return commands


def settings_of(block):
    """Return how the command of a block serves, as the command itself reads its words."""
    (((program, _, _, *words), _),) = shown(block)
    assert program == "iriscw"
    said = serve.make_context("serve", list(words)).params
    assert (said["quick"], said["empty"]) == (True, True)
    more = {"speed": said["speed"], "quotas": dict(said["quotas"])}
    return ServeSettings(kubeconfig=said["kubeconfig"], timing=Timing.QUICK, **more)


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """A terminal in an empty folder with the configuration; waiting is looked at every few milliseconds."""
    monkeypatch.chdir(tmp_path)
    for module in (awaiting, removing):
        monkeypatch.setattr(module, "LOOK_S", 0.05)
    Path("cluster.yaml").write_text(CONFIG)


@contextlib.contextmanager
def served(block):
    """Serve the cluster of a block in a thread, and give it."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(SimServer(settings_of(block))) as server,
    ):
        yield server
        assert server.statistics().failures == 0


def test_an_installation_is_rehearsed(iriscw, terminal, monkeypatch):
    """Secrets, manifests, a doctor who finds nothing wrong, a second time that changes nothing, and away with it."""
    commands = shown(REHEARSED)
    (export, _), *commands = commands
    assert export[0] == "export"
    name, _, value = export[1].partition("=")
    monkeypatch.setenv(name, value)
    with served(SERVED):
        for (program, *words), lines in commands:
            assert program == "iriscw"
            code, out, err = iriscw(*words)
            assert code == 0, (words, out, err)
            printed = [*out.splitlines(), *err.splitlines()]
            assert [line for line in lines if line not in printed] == [], (words, printed)
            if not lines:
                assert out == "", words
    assert len(commands) >= 6


def test_trouble_is_rehearsed(iriscw, terminal, monkeypatch):
    """Without quota no node will come: that ends the waiting, and is said as the page says it."""
    monkeypatch.setenv("KUBECONFIG", str(settings_of(SHORT).kubeconfig))
    apply = next(words for (_, *words), _ in shown(REHEARSED) if "--apply" in words)
    with served(SHORT):
        assert iriscw("manifests", "cluster.yaml", "--secrets-to", "secrets")[0] == 0
        code, out, err = iriscw(*apply)
    assert code == 3
    assert "Deployment/iris-controller created" in out
    assert REFUSED.strip() in err
