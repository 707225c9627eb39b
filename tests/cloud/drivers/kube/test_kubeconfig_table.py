"""Kubeconfigs that kubectl takes are taken, and lead to the same requests; its answers are recorded.

Record them again with ``RECORD_KUBECONFIGS=1`` and a kubectl (``tests/kube/real/build-kubectl``).
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from kubeconfigs import CASES, ON_PURPOSE, SEVERAL, Noting

from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import InvalidAccess
from iriscw.cloud.drivers.kube.kubeconfig import from_kubeconfig
from iriscw.cloud.kube.messages import ApiRequest, ApiUnreachable

RECORDED = Path(__file__).with_name("kubeconfigs.json")
NAMES = [*CASES, *SEVERAL]


@pytest.fixture
async def noting(tmp_path, monkeypatch):
    """The server, with the files beside the kubeconfig; the working folder is another one."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    folder, elsewhere = tmp_path / "sub", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    async with Noting().serving() as server:
        server.write(folder)
        server.folder = folder
        yield server


async def ours(noting, paths):
    """Go by a kubeconfig; give what came."""
    before = len(noting.seen)
    try:
        access = await from_kubeconfig(paths, environ={})
        async with open_api(access) as api:
            await api.request(ApiRequest("GET", "/probe"))
    except (InvalidAccess, ApiUnreachable):
        return "refused"
    return noting.outcome(before)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
async def test_as_kubectl_does(noting, name):
    """The same request comes, with the same credentials; or none, and where it differs somebody meant it to."""
    kubectls = json.loads(RECORDED.read_text())[name]
    found = await ours(noting, noting.files(noting.folder, name))
    if name in ON_PURPOSE:
        assert found == ON_PURPOSE[name][0] != kubectls
    else:
        assert found == kubectls


def kubectl():
    """Find a kubectl; None without one."""
    finder = Path(__file__).parents[3] / "kube" / "real" / "build-kubectl"
    found = subprocess.run([finder, "--only-find"], capture_output=True, text=True, check=False, timeout=60)
    return None if found.returncode else found.stdout.strip()


@pytest.mark.slow
async def test_what_is_recorded_is_what_kubectl_does(noting, tmp_path):
    """All of them, by the real one."""
    program = kubectl()
    if program is None:
        pytest.skip("no kubectl was built")
    found = {}
    for name in NAMES:
        paths = noting.files(noting.folder, name)
        before = len(noting.seen)
        environment = {
            "KUBECONFIG": os.pathsep.join(map(str, paths)),
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
        }
        words = [program, "get", "--raw", "/probe", "--request-timeout=5s"]
        process = await asyncio.create_subprocess_exec(
            *words, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=-3, stderr=-3
        )
        code = await process.wait()
        found[name] = noting.outcome(before) if code == 0 else "refused"
    if os.environ.get("RECORD_KUBECONFIGS"):
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(RECORDED.read_text())
