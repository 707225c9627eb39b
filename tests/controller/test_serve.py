"""The controller as a process: an ordered stop, named errors in one line, and a kill that loses nothing."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
from controller_world import CLIENTS, submission

from iriscw.cli.serve import controller
from iriscw.controller.__main__ import main
from iriscw.controller.serve import serve
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.pacing import short_turned_loop
from iriscw.rpc.tokens import read_token_file

CONFIG = "name: test\nplatform: {local: {}}\ncontroller: {local: {port: 0}}\nscale_groups: {}\n"


class Process:
    """A controller's process; its log tells when it serves."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.state = folder / "state"
        config = folder / "cluster.yaml"
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "iriscw.controller", "serve", "--config", str(config)]
        environment = {**os.environ, "PYTHONWARNINGS": "default"}
        self.popen = subprocess.Popen(
            [*command, "--state-dir", str(self.state), *more], stderr=subprocess.PIPE, text=True, env=environment
        )
        self.lines: list[dict] = []
        self.raw: list[str] = []
        self.serving = threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.raw.append(line)
            if line.startswith("{"):
                self.lines.append(json.loads(line))
                if "serving on" in self.lines[-1]["message"]:
                    self.serving.set()
        self.serving.set()

    def channel(self) -> RpcChannel:
        """A channel to it, as its admin."""
        assert self.serving.wait(30)
        (said,) = [line["message"] for line in self.lines if "serving on" in line["message"]]
        return RpcChannel(said.rpartition(" ")[2], read_token_file(self.state / "secrets" / "admin-token"))

    def end(self, number: int) -> int:
        """Send a signal, wait for the end, give the exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(30)
        self.reader.join()
        assert self.popen.stderr is not None
        self.popen.stderr.close()
        return code


async def submit(process: Process, key: str) -> v1.SubmitJobResponse:
    """Submit a job that nothing can run."""
    async with process.channel() as channel:
        return await channel.unary(CLIENTS + "SubmitJob", submission(key, name=key), v1.SubmitJobResponse)


async def test_killed_controller_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """After SIGKILL the next controller on the folder has every acknowledged job, under the same key and address."""
    first = Process(tmp_path)
    jobs = [(await submit(first, f"k{number}")).job_id for number in range(3)]
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    second = Process(tmp_path)
    try:
        async with second.channel() as channel:
            page = await channel.unary(CLIENTS + "ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse)
        assert [job.job_id for job in page.jobs] == jobs[::-1]
        again = await submit(second, "k1")
        assert (again.job_id, again.created) == (jobs[1], False)
    finally:
        code = second.end(signal.SIGTERM)
    assert code == 0
    assert "stopping on SIGTERM" in second.lines[-1]["message"]
    serving = [line["message"] for each in (first, second) for line in each.lines if "serving on" in line["message"]]
    assert serving[0] == serving[1], "workers that lived on find it where it was"


async def test_what_was_there_before_is_not_looked_at_by_collections(tmp_path: Path) -> None:
    """When it serves, all that there is is set aside: a collection looks at what came since."""
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    looked_at: list[int] = []

    def ready(_: object) -> None:
        looked_at.append(len(gc.get_objects()))
        os.kill(os.getpid(), signal.SIGTERM)

    await serve(tmp_path / "cluster.yaml", state_dir=tmp_path / "state", ready=ready)
    assert looked_at[0] < gc.get_freeze_count() / 100


@pytest.mark.slow
def test_port_in_use(tmp_path: Path) -> None:
    """A port that is taken is one line that names it, and an exit code."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = Process(tmp_path, "--port", str(port))
        assert process.popen.wait(30) == 3
        process.end(0)
    errors = [line for line in process.raw if not line.startswith("{")]
    assert len(errors) == 1
    assert errors[0].startswith("AddressInUse: ")
    assert str(port) in errors[0]


@pytest.mark.parametrize("text", ["platform: {lokal: {}}\n", "}{"])
def test_configuration_that_cannot_be(tmp_path: Path, text: str, monkeypatch, capsys) -> None:
    """A configuration that cannot be used ends the process with the code of a wrong call."""
    config = tmp_path / "cluster.yaml"
    config.write_text(text)
    monkeypatch.setattr("iriscw.controller.__main__.configure", lambda: None)
    assert main(["serve", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert "cluster.yaml" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_closed_terminal_stops_it(tmp_path: Path) -> None:
    """SIGHUP stops it as SIGTERM does."""
    process = Process(tmp_path)
    assert process.serving.wait(30)
    assert process.end(signal.SIGHUP) == 0
    assert "stopping on SIGHUP" in process.lines[-1]["message"]


@pytest.mark.parametrize("by", ["python -m iriscw.controller", "iriscw controller"])
def test_its_loop_has_short_turns(by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whichever way a controller is started, its loop serves a few sockets in a turn."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG)
    options = []
    monkeypatch.setattr(anyio, "run", lambda *of, backend_options=None: options.append(backend_options))
    monkeypatch.setattr("iriscw.controller.__main__.configure", lambda: None)
    monkeypatch.setattr("iriscw.controller.logging.configure", lambda: None)
    arguments = ["serve", "--config", str(config)]
    if by == "iriscw controller":
        controller.main(arguments, standalone_mode=False)
    else:
        main(arguments)
    assert options == [{"loop_factory": short_turned_loop}]
