"""``connect``: a program that finds a controller in a served simulation, and a way that stays open for others."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio.from_thread
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from reach_world import TOKEN, reach_world

from iriscw.cli import connect as connect_module
from iriscw.client.discovery import write_context
from iriscw.rpc.tokens import Secret

COMMAND = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
HOST = "iris-controller-svc.iris.svc.cluster.local"
CONFIG = """\
name: research
platform: { coreweave: { region: LGA1 } }
controller: { coreweave: { instance_type: cd-gp-i64-erapids } }
scale_groups:
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    slice_template: { coreweave: { instance_type: cd-gp-a192-genoa } }
"""


@pytest.fixture
def portal():
    """An event loop in a thread of its own."""
    with anyio.from_thread.start_blocking_portal() as made:
        yield made


@pytest.fixture
def world(portal, tmp_path, monkeypatch):
    """A cluster with a controller's Service and Secrets; the environment names it."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with portal.wrap_async_context_manager(reach_world(tmp_path)) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        portal.call(made.install)
        yield made


@pytest.fixture
def controller(portal, world):
    """A controller that serves there."""
    with portal.wrap_async_context_manager(world.controller("one")) as running:
        yield running


def told(tmp_path):
    """Return the variables that a program was given, and what the files held that they name."""
    variables = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines() if "=" in line)
    return {name: value for name, value in variables.items() if name.startswith("IRIS")}


def test_a_program_finds_the_controller(iriscw, controller, tmp_path, monkeypatch):
    """By its environment, in which nothing of another controller is left; its exit code is the command's."""
    monkeypatch.setenv("IRIS_WORKDIR", "/of/a/task")
    monkeypatch.setenv("IRISCW_INSECURE_PLAINTEXT", "1")
    script = f"env > {tmp_path}/told; cp $IRIS_TOKEN_FILE $IRIS_CA_FILE {tmp_path}; stat -c %a $IRIS_TOKEN_FILE"
    code, out, err = iriscw("connect", "--", "sh", "-c", f"{script} > {tmp_path}/mode; exit 7")
    assert (code, out) == (7, "")
    assert "connected to one: iris-controller-svc in iris" in err
    variables = told(tmp_path)
    folder = Path(variables["IRIS_TOKEN_FILE"]).parent
    address = variables.pop("IRIS_CONTROLLER_ADDRESS")
    assert address.startswith("https://127.0.0.1:")
    assert variables == {
        "IRISCW_CONTEXT": os.environ["IRISCW_CONTEXT"],
        "IRIS_TOKEN_FILE": str(folder / "token"),
        "IRIS_CA_FILE": str(folder / "ca.crt"),
        "IRIS_SERVER_NAME": HOST,
    }
    assert (tmp_path / "token").read_text() == f"{TOKEN}\n"
    assert (tmp_path / "mode").read_text() == "600\n"
    assert not folder.exists()
    assert TOKEN not in err


def test_words_of_the_program_are_its_own(iriscw, controller, tmp_path):
    """Whatever they look like; `--` among them, too."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG)
    script = f'printf "%s " "$@" > {tmp_path}/told'
    assert iriscw("connect", str(config), "--", "sh", "-c", script, "sh", "--port", "--", "-o")[0] == 0
    assert (tmp_path / "told").read_text() == "--port -- -o "


def test_a_program_that_is_killed(iriscw, controller):
    """Its code is the one that shells give."""
    assert iriscw("connect", "--", "sh", "-c", "kill -9 $$")[0] == 137


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--", "/no/such/program"), 2, "/no/such/program cannot be started: No such file"),
        (("--",), 2, "no program behind --"),
        (("--namespace", "nowhere"), 3, "NoInstallation: there is no controller of iriscw in the namespace nowhere"),
        (("--namespace", "x", "CONFIG"), 2, "CONFIG says it"),
        (("--context", "other"), 2, "no 'other' among its contexts"),
    ],
)
def test_what_cannot_be(iriscw, controller, tmp_path, arguments, code, says):
    """Is said in one line, after the cluster's address at most."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG)
    given = [str(config) if word == "CONFIG" else word for word in arguments]
    found, out, err = iriscw("connect", *given)
    assert (found, out) == (code, "")
    assert says in err.splitlines()[-1]


def test_a_controller_that_does_not_serve(iriscw, world):
    """It says what it waits for, and that it may work later."""
    code, out, err = iriscw("connect")
    assert (code, out) == (3, "")
    assert "ControllerNotReady: iris-controller-svc in iris has no pod" in err


def test_a_way_that_does_not_lead_there(iriscw, world, monkeypatch):
    """A pod that says that it is ready, and is not: the kubelet's words are told."""
    monkeypatch.setattr(connect_module, "CHECK_S", 3)
    world.pod("deaf")
    world.inside.ports["deaf"] = 1
    code, out, err = iriscw("connect", "--", "true")
    assert (code, out) == (3, "")
    assert "TunnelLost: there is no way to iris-controller-svc in iris: " in err.splitlines()[-1]
    assert "connection refused" in err.splitlines()[-1]


def test_files_instead_of_secrets(iriscw, controller, world, tmp_path):
    """Who brings authority and token reads no Secret; a wrong token is refused by the controller."""
    (tmp_path / "ca").write_bytes(world.authority.cert_pem.bytes())
    (tmp_path / "t").write_text(TOKEN)
    world.put("DELETE", "/api/v1/namespaces/iris/secrets/iris-ca")
    world.put("DELETE", "/api/v1/namespaces/iris/secrets/iris-controller-secrets")
    given = ("--ca-file", str(tmp_path / "ca"), "--token-file", str(tmp_path / "t"))
    assert iriscw("connect", *given, "--", "true")[0] == 0
    (tmp_path / "t").write_text("another")
    code, _, err = iriscw("connect", *given, "--", "true")
    assert code == 2
    assert "token" in err


def start(*arguments):
    """Start the command, apart from the terminal of the tests."""
    return subprocess.Popen(
        [*COMMAND, "connect", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def document(process):
    """Read the JSON that it says; then it is ready for signals."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return json.loads("".join(lines))
    raise AssertionError(process.stderr.read())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_way_that_stays_open(iriscw, controller, number):
    """The other commands find it as long as it does; then nothing of it is left."""
    context = Path(os.environ["IRISCW_CONTEXT"])
    with start("-o", "json") as process:
        try:
            said = document(process)
            assert said["server_name"] == HOST
            assert context.stat().st_mode & 0o777 == 0o600
            assert iriscw("jobs")[:2] == (0, "ID  NAME  STATE  TASKS  AGE  REASON\n")
        finally:
            process.send_signal(number)
            err = process.communicate(timeout=60)[1]
    assert (process.returncode, "Ctrl-C ends it" in err) == (0, True)
    assert not context.exists()
    assert not Path(said["token_file"]).parent.exists()


@pytest.mark.slow
def test_what_a_killed_one_left_goes_with_the_next(iriscw, controller):
    """The token of a way that was killed is not left for ever; one that is open keeps its own."""
    with start("-o", "json") as open_one, start("-o", "json") as process:
        try:
            token = Path(document(process)["token_file"])
            others = Path(document(open_one)["token_file"])
            process.kill()
            process.wait(timeout=60)
            assert token.exists()
            code, _, err = iriscw("connect", "--", "true")
            assert (code, token.parent.exists(), others.exists()) == (0, False, True)
            assert f"removed {token.parent}, which process {process.pid} had left" in err
        finally:
            process.kill()
            open_one.terminate()
            open_one.communicate(timeout=60)


@pytest.mark.slow
def test_a_cluster_that_is_up_stays_the_others(iriscw, controller):
    """Its context is not overwritten; what is printed leads to this one."""
    context = Path(os.environ["IRISCW_CONTEXT"])
    write_context(context, "127.0.0.1:7", Secret("t"), context.parent)
    with start() as process:
        try:
            lines = [process.stdout.readline() for _ in range(4)]
            assert [line.split("=")[0] for line in lines] == [
                "export IRIS_CONTROLLER_ADDRESS",
                "export IRIS_TOKEN_FILE",
                "export IRIS_CA_FILE",
                "export IRIS_SERVER_NAME",
            ]
        finally:
            process.terminate()
            err = process.communicate(timeout=60)[1]
    assert "other commands go on to use 127.0.0.1:7" in err
    assert context.exists()


@pytest.mark.slow
def test_a_signal_goes_to_the_program(controller):
    """Which ends as it likes; a program of Python finds the controller by its environment."""
    program = (
        "import signal, sys, time; from iriscw import blocking\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "with blocking.connect() as client:\n"
        "    print(client.status().name, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with start("--", sys.executable, "-c", program) as process:
        try:
            assert process.stdout.readline() == "one\n"
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 9
