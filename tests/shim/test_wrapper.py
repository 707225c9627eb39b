"""The wrapper: what it loads, where it finds the real runc, and what it writes into runc's log."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from iriscw.freeze.drivers.runtime.finding import real_runc
from iriscw.shim import agent_queries, main
from iriscw.shim.agent_queries import busy
from iriscw.shim.runc_messages import log_line
from iriscw.shim.runc_options import read
from raised import that

LOADED = """
import json, os, sys
before = {*sys.modules}
def shown(path, words):
    print(json.dumps([words, sorted({*sys.modules} - before)]))
    raise SystemExit
os.execv = shown
from iriscw.shim import main
main()
"""

HEAVY = ("anyio", "asyncio", "attr", "attrs", "betterproto2", "grpclib", "iriscw.agent", "iriscw.rpc", "logging", "ssl")


@pytest.mark.parametrize(
    "words", [("create", "--bundle", "/b", "c1"), ("--version",), ("kill", "c1", "KILL"), (), ("restore", "--help")]
)
def test_what_it_loads(tmp_path, words):
    """To be runc, and to ask an agent that is not there, it takes the standard library and little of that."""
    environment = {**os.environ, "IRISCW_RUNC_REAL": "/bin/true", "IRISCW_SHIM_SOCKET": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, "-c", LOADED, *words], env=environment, capture_output=True, check=True)
    passed_on, loaded = json.loads(done.stdout)
    assert passed_on == ["/bin/true", *words]
    assert [name for name in HEAVY if name in loaded] == []


def test_it_never_becomes_itself(tmp_path):
    """Neither by its name, nor as a link, nor as a copy of its script under runc's name."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
    (first / "iriscw-runc").write_text(f"#!{sys.executable}\nfrom iriscw.shim import main\n", encoding="utf-8")
    (first / "iriscw-runc").chmod(0o755)
    (first / "runc").symlink_to("iriscw-runc")
    (second / "runc").write_bytes((first / "iriscw-runc").read_bytes())
    (second / "runc").chmod(0o755)
    (third / "runc").write_text("#!/bin/sh\n", encoding="utf-8")
    (third / "runc").chmod(0o755)
    path = os.pathsep.join(map(str, (first, second, third)))
    assert real_runc({"PATH": path}) == str(third / "runc")
    with pytest.raises(FileNotFoundError, check=that(comes_from="finding.real_runc")):
        real_runc({"PATH": os.pathsep.join(map(str, (first, second)))})
    for named in (first / "runc", second / "runc", tmp_path / "none", "runc"):
        with pytest.raises(FileNotFoundError, check=that(comes_from="finding.real_runc")):
            real_runc({"IRISCW_RUNC_REAL": str(named), "PATH": str(third)})


def test_its_log():
    """A line is what runc's own would be, in either form, and always one line."""
    at = "2026-01-02T03:04:05Z"
    asked = read(["--log-format", "json", "checkpoint", "c1"])
    assert json.loads(log_line(asked, "error", 'a\n"b"', at)) == {"level": "error", "msg": 'a "b"', "time": at}
    assert log_line(read(["checkpoint", "c1"]), "error", 'a\n"b"', at) == f'time="{at}" level=error msg="a \\"b\\""\n'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n[]", None),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", ValueError),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", ValueError),
        (b"HTTP/1.1 200 OK\r\n\r\nno", ValueError),
        (b"", ValueError),
    ],
)
def test_answers_of_an_agent(tmp_path, answer, error):
    """One that is not a list of containers is no answer."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()

        def reply():
            channel, _ = door.accept()
            with channel:
                channel.recv(4096)
                channel.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        try:
            if error is None:
                assert busy(path) == []
            else:
                with pytest.raises(error):
                    busy(path)
        finally:
            thread.join()


def test_a_checkpoint_without_an_agent(tmp_path):
    """It fails by name, in runc's log and on standard error, with runc's code."""
    environment = {**os.environ, "IRISCW_SHIM_SOCKET": str(tmp_path / "none"), "IRISCW_RUNC_REAL": "/bin/true"}
    log = tmp_path / "log.json"
    words = ("--log", str(log), "--log-format", "json", "checkpoint", "--image-path", "/i", "c1")
    program = "import sys; from iriscw.shim import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    assert said["level"] == "error"
    assert said["msg"].startswith("AgentUnreachable: ")
    assert done.stderr.strip() == said["msg"]


class BecameRunc(Exception):
    """Instead of another program."""


def fails_to_look(monkeypatch):
    """What the agent says is nothing that anybody thought of."""

    def deep(path):
        raise RecursionError("too deep")

    monkeypatch.setattr(agent_queries, "busy", deep)


def fails_to_load(monkeypatch):
    """What asks the agent cannot be loaded."""
    monkeypatch.setitem(sys.modules, "iriscw.shim.checkpointing", None)


def fails_to_loop(monkeypatch):
    """No file can be opened for the loop in which the agent is asked."""

    def full(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("anyio.run", full)


def fails_to_tell(monkeypatch):
    """Nor can the log be written, and there is no standard error but its number."""
    fails_to_loop(monkeypatch)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr("iriscw.shim.runc_messages.open", None, raising=False)


@pytest.mark.parametrize("fails", [fails_to_look, fails_to_load, fails_to_loop, fails_to_tell])
@pytest.mark.parametrize("command", ["kill", "delete"])
def test_a_container_can_be_ended_whatever_fails(tmp_path, monkeypatch, capfd, fails, command):
    """It is told, and the wrapper becomes runc."""

    def become(path, words):
        raise BecameRunc(words)

    running = {"container_id": "box", "root": str(tmp_path), "operation": "ck-1", "kind": "freeze"}
    monkeypatch.setattr(agent_queries, "busy", lambda path: [running])
    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setenv("IRISCW_RUNC_REAL", "/bin/true")
    fails(monkeypatch)
    log = tmp_path / "log.json"
    words = ["--root", str(tmp_path), "--log", str(log), "--log-format", "json", command, "box"]
    with pytest.raises(BecameRunc):
        main(words)
    if fails is fails_to_tell:
        assert f"; {command} goes on" in capfd.readouterr().err
    else:
        said = json.loads(log.read_text(encoding="utf-8"))
        assert said["level"] == "warning"
        assert said["msg"].endswith(f"; {command} goes on")
