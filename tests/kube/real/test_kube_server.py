"""The real server of the tests is private, quiet, resets at once, and never outlives its test run."""

import os
import select
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from kube_catalogue import A
from kube_program import OpenWatch
from kube_requests import MAPS, PODS, ROLES, binding, config_map, get, patch, pod, post, role, rule
from kube_server import NoBinariesError, RealServer, find_binaries

from raised import that

HERE = Path(__file__).parent


def _build(environment, *arguments):
    return subprocess.run(
        [HERE / "build-apiserver", *arguments], check=False, env=environment, capture_output=True, text=True
    )


@pytest.fixture
def tools(tmp_path):
    """A PATH without Go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "sed", "uname", "env"):
        found = next(path for path in map(Path, os.environ["PATH"].split(":")) if (path / name).exists())
        (folder / name).symlink_to(found / name)
    return str(folder)


@pytest.fixture
def assets(tmp_path):
    """A folder that looks like one of binaries."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (folder / name).write_text("#!/bin/false\n")
        (folder / name).chmod(0o755)
    return folder


def test_given_binaries_win(tools, assets):
    """KUBEBUILDER_ASSETS is taken as it is, and complained about where it has not both."""
    environment = {"PATH": tools, "HOME": "/nowhere", "KUBEBUILDER_ASSETS": str(assets)}
    assert _build(environment).stdout.strip() == str(assets)
    (assets / "etcd").unlink()
    done = _build(environment)
    assert done.returncode == 1
    assert "KUBEBUILDER_ASSETS" in done.stderr


def test_what_is_built_is_not_built_again(tools, assets):
    """Nothing but a look: there is no Go here."""
    done = _build({"PATH": tools, "HOME": "/nowhere"}, str(assets))
    assert (done.returncode, done.stdout.strip()) == (0, str(assets))


def test_without_binaries_there_is_a_reason(tools, tmp_path, monkeypatch):
    """It is what a skipped test shows."""
    monkeypatch.setenv("PATH", tools)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(NoBinariesError, check=that(names="build-apiserver")):
        find_binaries()


def test_given_binaries_that_are_not_there_are_no_reason_to_skip(tools, tmp_path, monkeypatch):
    """Who sets KUBEBUILDER_ASSETS wants the tests to run."""
    monkeypatch.setenv("PATH", tools)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(RuntimeError, check=that(names="kube-apiserver")):
        find_binaries()


def test_a_server_that_does_not_start_says_why(assets, tmp_path):
    """With the end of its log; nothing is left running."""
    server = RealServer(assets, tmp_path / "server")
    with pytest.raises(RuntimeError, check=that(names="status")):  # etcd or the API server, whichever ends first
        server.start()
    assert server.pids == ()


@pytest.mark.slow
def test_nobody_else_gets_in(real_server):
    """Keys and tokens are the owner's alone, no token is shown, and etcd wants a certificate."""
    files = real_server.files
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    for path in (files.key, files.tokens, files.certificate):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(token in repr(real_server) for token in real_server.tokens.values())
    arguments = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in real_server.pids)
    assert not any(token in arguments for token in real_server.tokens.values())
    assert "--client-cert-auth" in arguments


@pytest.mark.slow
def test_a_program_finds_a_clean_world(real_world):
    """Finalizers, running pods and open watches of the one before do not matter."""
    for _ in range(2):
        real_world.begin()
        assert real_world.ask(post(MAPS, config_map("a", finalizers=["iriscw.dev/keep"]))).code == 201
        assert real_world.ask(post(PODS, pod("a", node="g1"))).code == 201
        assert real_world.open_watch(OpenWatch("w", PODS)).code == 200
        assert [event["type"] for event in real_world.drain("w", 1).events] == ["ADDED"]
    real_world.begin()
    assert real_world.ask(get(MAPS, resourceVersion="0")).body["items"] == []


@pytest.mark.slow
def test_what_was_granted_holds_at_once(real_world):
    """And what was withdrawn: the authorizer is not asked before it has seen the change."""
    for _ in range(5):
        memory = real_world.begin()
        bound = binding("RoleBinding", "dev", "Role", "reader")
        assert real_world.ask(get(PODS, user="dev")).code == 403
        real_world.ask(post(f"{ROLES}/namespaces/alpha/roles", role("Role", "reader", rule("list", "pods"))))
        real_world.ask(post(f"{ROLES}/namespaces/alpha/rolebindings", bound))
        assert real_world.ask(get(PODS, user="dev")).code == 200
        real_world.ask(patch(f"{ROLES}/namespaces/alpha/roles/reader", {"rules": []}))
        assert real_world.ask(get(PODS, user="dev")).code == 403
        assert memory.run > 0


@pytest.mark.slow
def test_compacted_versions_are_gone(real_world):
    """And the world goes on with the same objects."""
    real_world.begin()
    first = real_world.ask(post(MAPS, config_map("a"))).body["metadata"]["resourceVersion"]
    real_world.ask(patch(A, {"data": {"k": "1"}}))
    real_world.compact()
    exact = get(MAPS, resourceVersion=first, resourceVersionMatch="Exact")
    assert (real_world.ask(exact).code, real_world.ask(exact).body["reason"]) == (410, "Expired")
    assert real_world.ask(get(A)).body["data"] == {"k": "1"}


@pytest.mark.slow
def test_a_killed_test_run_leaves_no_server(binaries, tmp_path):
    """Not even when nothing of it could clean up."""
    program = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(HERE)!r})
        from kube_server import RealServer
        server = RealServer(Path({str(binaries)!r}), Path({str(tmp_path / "server")!r}))
        server.start()
        print(*server.pids, flush=True)
        sys.stdin.read()
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        pids = [int(word) for word in run.stdout.readline().split()]
        handles = [os.pidfd_open(pid) for pid in pids]
        run.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    for handle in handles:
        assert select.select([handle], [], [], 30)[0], "a process ended with the run that started it"
        os.close(handle)
