"""sim serve: a simulated cluster behind a port."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import click
import pytest

from iriscw.cli.sim.serve import MOST_NODES, PoolArgument, Quota, Rate

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; from iriscw.cli import main; sys.exit(main(sys.argv[1:]))",
    "sim",
    "serve",
]
PATIENCE_S = 60


@pytest.mark.parametrize(
    ("text", "pool"),
    [("gpus=4", ("gpus", 4, "")), ("a-1=0", ("a-1", 0, "")), ("x=2:gd-8xh200ib-i128", ("x", 2, "gd-8xh200ib-i128"))],
)
def test_a_pool_is_a_name_and_a_number(text, pool):
    """With an instance type behind it, if that is not the usual one."""
    assert PoolArgument().convert(text, None, None) == pool


@pytest.mark.parametrize(
    "text", ["", "gpus", "=4", "GPUS=4", "gpus=-1", "gpus=many", f"gpus={MOST_NODES + 1}", "a/b=1"]
)
def test_other_texts_are_no_pools(text):
    """The error says how one is written."""
    with pytest.raises(click.BadParameter):
        PoolArgument().convert(text, None, None)


def test_a_fault_is_a_name_and_a_rate():
    """Names have spaces."""
    assert Rate().convert("node dies early=0.25", None, None) == ("node dies early", 0.25)


def test_a_quota_is_a_type_and_a_number():
    """Of nodes."""
    assert Quota().convert("b200-8x=4", None, None) == ("b200-8x", 4)


@pytest.mark.parametrize(
    ("kind", "text"), [(Rate, "node dies"), (Rate, "x=often"), (Quota, "b200-8x"), (Quota, "=4"), (Quota, "a=-1")]
)
def test_other_texts_are_no_faults_and_no_quotas(kind, text):
    """The error says how one is written."""
    with pytest.raises(click.BadParameter):
        kind().convert(text, None, None)


@pytest.fixture
def started(tmp_path):
    """Start the command, and wait until it says that it can be reached; give the process and its kubeconfig."""
    pytest.importorskip("aiohttp")
    running = []

    def start(*arguments):
        environment = {**os.environ, "IRISCW_CONTEXT": str(tmp_path / "context.json")}
        command = [*PROGRAM, "--quick", "--speed", "100", *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        said = ""
        while "Ctrl-C ends it" not in said:
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        path = next(line.partition("KUBECONFIG=")[2].strip() for line in said.splitlines() if "KUBECONFIG=" in line)
        return process, tmp_path / path

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ask(kubeconfig, path):
    """Ask the server as the kubeconfig says."""
    found = json.loads(kubeconfig.read_text(encoding="utf-8"))
    address = found["clusters"][0]["cluster"]["server"]
    request = urllib.request.Request(f"{address}{path}")
    request.add_header("Authorization", f"Bearer {found['users'][0]['user']['token']}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_a_fleet_boots_and_goes(started):
    """Machines come; SIGTERM ends it in order, and the token's file goes with it."""
    process, kubeconfig = started("--pool", "gpus=2")
    deadline = time.monotonic() + PATIENCE_S
    while len(ask(kubeconfig, "/api/v1/nodes")["items"]) < 2:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "nothing is left running" in said
    assert not kubeconfig.exists()


def conditions(kubeconfig, pool):
    """Return the reason of each condition of a pool."""
    found = ask(kubeconfig, f"/apis/compute.coreweave.com/v1alpha1/nodepools/{pool}").get("status", {})
    return {each["type"]: each["reason"] for each in found.get("conditions", ())}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "condition", "reason"),
    [
        (("--quota", "b200-8x=1"), "Quota", "Over"),
        (("--fault", "pool without capacity=1"), "Capacity", "QueuedAwaitingCapacity"),
    ],
)
def test_quotas_and_faults_are_felt(started, arguments, condition, reason):
    """A pool that is too large waits for its quota; one without machines waits for them."""
    _, kubeconfig = started("--pool", "gpus=2:b200-8x", *arguments)
    deadline = time.monotonic() + PATIENCE_S
    while conditions(kubeconfig, "gpus").get(condition) != reason:
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_tls_is_spoken_with_a_certificate(started, tmp_path):
    """The kubeconfig trusts it."""
    certificate = pytest.importorskip("trustme").CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    files = ("--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key"))
    _, kubeconfig = started("--empty", *files)
    cluster = json.loads(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    assert cluster["server"].startswith("https://")
    assert cluster["certificate-authority-data"]


def test_a_network_needs_tls_or_trust(iriscw):
    """Off loopback, a token over plain HTTP is for all to see."""
    pytest.importorskip("aiohttp")
    code, _, err = iriscw("sim", "serve", "--host", "0.0.0.0")
    assert (code, err.count("\n")) == (2, 1)
    assert "--insecure-plaintext" in err


@pytest.mark.slow
def test_a_kubeconfig_of_ones_own_stays(started, tmp_path):
    """A file that was named, and that a simulation had left, is written anew; after Ctrl-C it stays, private."""
    path = tmp_path / "mine"
    path.write_text('{"current-context": "iriscw-sim"}', encoding="utf-8")
    process, kubeconfig = started("--empty", "--kubeconfig", str(path))
    assert kubeconfig == path
    assert ask(path, "/api/v1/nodes")["items"] == []
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_file_is_not_overwritten(iriscw, tmp_path):
    """The kubeconfig of a real cluster is never lost."""
    pytest.importorskip("aiohttp")
    path = tmp_path / "config"
    for text in ("apiVersion: v1\n", '{"current-context": "production"}', "[]"):
        path.write_text(text, encoding="utf-8")
        code, _, err = iriscw("sim", "serve", "--kubeconfig", str(path))
        assert (code, err.count("\n")) == (2, 1)
        assert "is not a kubeconfig of a simulation" in err
        assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--speed", "0"], ["--port", "70000"], ["--seed", "-1"], ["--pool", "x"], ["--speed", "nan"]),
        *(["--fault", "no such fault=1"], ["--fault", "pod fails=2"], ["--quota", "x"], ["--tls-cert", __file__]),
    ],
)
def test_nonsense_is_refused(iriscw, arguments):
    """One line, and the code for misuse."""
    pytest.importorskip("aiohttp")
    code, out, err = iriscw("sim", "serve", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
