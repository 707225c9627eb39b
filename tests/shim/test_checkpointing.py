"""A restore by the runtime: which container it is told to forget when the thaw did not come to a good end."""

import json
import os
import sys

import anyio
import anyio.to_thread
import pytest

from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import RpcUnavailable
from iriscw.shim import checkpointing
from iriscw.shim.runc_options import read

RUNC = """#!{python}
import os, sys
at = sys.argv.index("restore") if "restore" in sys.argv else 0
with open("{folder}/calls", "a") as calls:
    print("restore" if at else " ".join(sys.argv[-4:]), file=calls)
if at:
    os.makedirs("{folder}/state/box", exist_ok=True)
    with open("{folder}/restored", "w") as told:
        told.write("x")
"""


class Agent:
    """An agent that thaws a container, and ends that in a certain way once the runtime has restored it."""

    def __init__(self, folder, ending):
        self._folder = folder
        self._ending = ending

    def __call__(self, socket):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def restore(self, request):
        """Yield views."""
        view = v1.OperationView(operation_id="th-1", kind="thaw", steps=[v1.OperationStep(phase="restoring")])
        turn = v1.RuntimeTurn(str(self._folder), str(self._folder / "images"), {})
        yield v1.ContainerView(operation=view, turn=turn)
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync((self._folder / "restored").read_text, abandon_on_cancel=True)
        if self._ending == "lost":
            raise RpcUnavailable("it went away")
        if self._ending:
            view.end = v1.OperationEnd(outcome=self._ending, kind="CudaFailed", text="as it is")
            yield v1.ContainerView(operation=view, turn=turn)


@pytest.mark.parametrize(
    ("ending", "there_before", "said", "forgotten"),
    [
        ("failed", False, "ThawFailed", True),
        ("failed", True, "ThawFailed", False),
        ("left", False, "TreeLeft", False),
        ("lost", False, "AgentUnreachable", False),
        ("", False, "AgentUnreachable", False),
        ("aside", False, "OperationPutAside", False),
        ("thawed", False, "", False),
    ],
)
def test_what_the_runtime_forgets(tmp_path, monkeypatch, ending, there_before, said, forgotten):
    """Only what it made itself and the agent says that it has killed; what may run on is left to the next agent."""
    runc = tmp_path / "runc"
    runc.write_text(RUNC.format(python=sys.executable, folder=tmp_path), encoding="utf-8")
    runc.chmod(0o755)
    os.mkfifo(tmp_path / "restored")
    if there_before:
        (tmp_path / "state" / "box").mkdir(parents=True)
    monkeypatch.setenv("IRISCW_RUNC_REAL", str(runc))
    monkeypatch.setattr(checkpointing, "ShimCaller", Agent(tmp_path, ending))
    log = tmp_path / "log.json"
    words = ["--root", str(tmp_path / "state"), "--log", str(log), "--log-format", "json"]
    assert checkpointing.restore(read([*words, "restore", "--image-path", str(tmp_path), "box"])) == (1 if said else 0)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls == ["restore", *(["delete --force -- box"] if forgotten else [])]
    if said:
        assert json.loads(log.read_text(encoding="utf-8").splitlines()[-1])["msg"].startswith(f"{said}: ")
