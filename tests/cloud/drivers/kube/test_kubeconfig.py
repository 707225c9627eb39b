"""Kubeconfigs as people have them: contexts, certificates, logins; what cannot be done safely is refused."""

import asyncio
import base64
import json
import logging
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
import trustme

from iriscw.cloud.drivers.kube import credentials
from iriscw.cloud.drivers.kube.access import InsecureAccess
from iriscw.cloud.drivers.kube.credentials import InvalidAccess
from iriscw.cloud.drivers.kube.kubeconfig import FILE_BYTES, from_kubeconfig
from raised import that

TOKEN = "CW-SECRET-not-to-be-seen"
AUTHORITY = trustme.CA()
CLUSTER = {"server": "https://api.example:6443"}


def encoded(data):
    return base64.b64encode(data).decode()


def write(path, cluster=CLUSTER, user=None, context=None, **more):
    """Write a kubeconfig with one of each; JSON is YAML."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
        **more,
    }
    path.write_text(json.dumps(config))
    return path


async def header(access):
    found = await access.credentials.header()
    return None if found is None else found.reveal()


async def refused(*paths, context=None):
    """Return why it is refused; whatever is said quotes no secret."""
    with pytest.raises(InvalidAccess) as problem:
        await from_kubeconfig(paths, context, {})
    assert TOKEN not in f"{problem.value!r}"
    assert problem.value.__suppress_context__ or problem.value.__context__ is None
    return str(problem.value)


@pytest.fixture
def path(tmp_path):
    """Where the kubeconfig is."""
    return tmp_path / "config"


async def test_a_token(path):
    """The usual case, as CoreWeave's console writes it."""
    access = await from_kubeconfig([write(path, context={"namespace": "iris"})], environ={})
    assert (access.url, access.namespace, await header(access)) == (CLUSTER["server"], "iris", f"Bearer {TOKEN}")
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert access.proxy is access.tls_name is None
    assert TOKEN not in repr(access)


async def test_a_library_that_is_not_installed(path, monkeypatch):
    """It is named, with the extra that brings it, where a login needs it; a token needs nothing."""
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)
    write(path, user={"token": "t"})
    assert await header(await from_kubeconfig([path], environ={})) == "Bearer t"
    write(path, user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}})
    assert "pip install '.[kubernetes]' in a checkout" in await refused(path)


async def test_contexts(path):
    """The one that is named, else the current one; one that is not there is named."""
    others = [{"name": "d", "cluster": {"server": "https://other.example"}}]
    contexts = [{"name": "y", "context": {"cluster": "d"}}, {"name": "z", "context": {"cluster": "e"}}]
    write(path, **{"clusters": others, "contexts": contexts, "current-context": "y"})
    assert (await from_kubeconfig([path], environ={})).url == "https://other.example"
    assert "'w'" in await refused(path, context="w")
    assert "'e'" in await refused(path, context="z")
    write(path, **{"current-context": ""})
    assert "no current context" in await refused(path)


async def test_several_files(tmp_path):
    """The first file with a name wins, and paths are relative to the file that they stand in."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ca.pem").write_bytes(AUTHORITY.cert_pem.bytes())
    first = {"users": [{"name": "u", "user": {"tokenFile": "token"}}], "current-context": "x"}
    others = {"users": [{"name": "u", "user": {"token": "from-b"}}], "current-context": "none"}
    (tmp_path / "a" / "config").write_text(json.dumps(first))
    (tmp_path / "a" / "token").write_text("from-a")
    write(tmp_path / "b" / "config", {**CLUSTER, "certificate-authority": "ca.pem"}, **others)
    missing = tmp_path / "c"
    access = await from_kubeconfig([missing, tmp_path / "a" / "config", tmp_path / "b" / "config"], environ={})
    assert await header(access) == "Bearer from-a"
    assert len(access.tls.get_ca_certs()) == 1


async def test_an_authority_and_a_certificate(path):
    """Within the file; the key is in no other file afterwards."""
    issued = AUTHORITY.issue_cert("somebody@example")
    user = {
        "client-certificate-data": encoded(issued.cert_chain_pems[0].bytes()),
        "client-key-data": encoded(issued.private_key_pem.bytes()),
    }
    cluster = {**CLUSTER, "certificate-authority-data": encoded(AUTHORITY.cert_pem.bytes()), "tls-server-name": "k"}
    access = await from_kubeconfig([write(path, cluster, user)], environ={})
    assert (await header(access), access.tls_name) == (None, "k")
    assert len(access.tls.get_ca_certs()) == 1
    del user["client-key-data"]
    assert "takes its key" in await refused(write(path, cluster, user))
    user["client-key-data"] = encoded(trustme.CA().private_key_pem.bytes())
    assert "cannot be used" in await refused(write(path, cluster, user))
    user["client-key-data"] = "%%%"
    assert "base64" in await refused(write(path, cluster, user))


async def test_keys_are_written_privately(path, monkeypatch):
    """OpenSSL reads them from a file, which only we can read, and which is gone then."""
    issued = AUTHORITY.issue_cert("somebody@example")
    seen = []

    def load(self, where, *_args):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (Path(where), Path(where).parent)]
        seen.append((Path(where), *modes))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    user = {
        "client-certificate-data": encoded(issued.cert_chain_pems[0].bytes()),
        "client-key-data": encoded(issued.private_key_pem.bytes()),
    }
    await from_kubeconfig([write(path, user=user)], environ={})
    ((where, mode, folder),) = seen
    assert (mode, folder) == (0o600, 0o700)
    assert not where.parent.exists()


async def test_tls_cannot_be_turned_off(path):
    """Neither by not verifying nor by plain HTTP to another machine."""
    with pytest.raises(InsecureAccess, check=that(comes_from="kubeconfig.from_kubeconfig")):
        await from_kubeconfig([write(path, {**CLUSTER, "insecure-skip-tls-verify": True})], environ={})
    with pytest.raises(InsecureAccess, check=that(comes_from="access.checked_url")):
        await from_kubeconfig([write(path, {"server": "http://api.example"})], environ={})
    assert (await from_kubeconfig([write(path, {"server": "http://127.0.0.1:1/t/x/"})], environ={})).tls is None


async def test_proxies(path):
    """The file's comes before the environment's."""
    environ = {"HTTPS_PROXY": "http://e:1"}
    assert (await from_kubeconfig([write(path)], environ=environ)).proxy == "http://e:1"
    write(path, {**CLUSTER, "proxy-url": f"http://u:{TOKEN}@p:1"})
    access = await from_kubeconfig([path], environ=environ)
    assert access.proxy == f"http://u:{TOKEN}@p:1"
    assert TOKEN not in repr(access)


async def test_a_name_and_a_password(path):
    """Basic authentication, for those who have a proxy that wants it."""
    access = await from_kubeconfig([write(path, user={"username": "me", "password": TOKEN})], environ={})
    assert await header(access) == f"Basic {encoded(f'me:{TOKEN}'.encode())}"


@pytest.mark.parametrize("name", ["as", "as-groups", "as-uid", "as-user-extra"])
async def test_impersonation_is_refused(path, name):
    """Acting as ourselves instead would be worse than not acting."""
    assert name in await refused(write(path, user={"token": TOKEN, name: ["x"]}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        f"users: {TOKEN}",
        f"- {TOKEN}",
        f'"{TOKEN}": \t%',
        f"clusters: [{{{TOKEN}: 1}}]",
        f"{{current-context: x, contexts: [{{name: x, context: {TOKEN}}}]}}",
        f"{{current-context: x, contexts: [{{name: x, context: {{cluster: {TOKEN[:3]}}}}}]}}",
        "!!python/object/apply:os.system ['true']",
    ],
)
async def test_what_is_no_kubeconfig(path, text):
    """Is refused, without quoting it: it may have tokens anywhere."""
    path.write_text(text)
    await refused(path)


async def test_files_that_are_not_there_or_too_long(tmp_path, path):
    """Are named."""
    assert str(tmp_path / "none") in await refused(tmp_path / "none")
    path.write_bytes(b"#" * (FILE_BYTES + 1))
    assert "longer" in await refused(path)


def test_the_library_is_loaded_when_it_is_needed():
    """It costs hundreds of milliseconds and tens of megabytes, which pods with a service account save."""
    code = "import sys, iriscw.cloud.drivers.kube.drivers; sys.exit('kubernetes_asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Programs


PROGRAM = """
import json, os, sys
from pathlib import Path
calls = Path(__file__).with_name("calls")
count = len(calls.read_text()) if calls.exists() else 0
calls.write_text("x" * (count + 1))
status = {"token": f"CW-SECRET-{count}"}
if len(sys.argv) > 1:
    status["expirationTimestamp"] = sys.argv[1]
if os.environ.get("FAIL"):
    sys.exit("CW-SECRET-not-to-be-seen")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def program(folder, *arguments, **environment):
    """Return a user who logs in with a program, which counts its runs."""
    script = folder / "login.py"
    script.write_text(PROGRAM)
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script), *arguments],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    return {"exec": command}


def runs(folder):
    return len((folder / "calls").read_text())


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, credentials_):
        self.now = 0.0
        credentials_._monotonic = self
        credentials_._renewed = 0.0

    def __call__(self):
        return self.now


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # the library's own
async def test_a_program_that_says_when_its_token_ends(tmp_path, path):
    """It is run again when that is near."""
    soon = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    access = await from_kubeconfig([write(path, user=program(tmp_path, soon))], environ={})
    clock = Clock(access.credentials)
    assert [await header(access) for _ in range(3)] == ["Bearer CW-SECRET-0"] * 3
    clock.now += credentials.RENEW_S
    assert await header(access) == "Bearer CW-SECRET-1"
    assert runs(tmp_path) == 2


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # the library's own
@pytest.mark.parametrize("ends", [(), ("2099-01-01T00:00:00Z",)], ids=["does not say", "far away"])
async def test_a_program_whose_token_lasts(tmp_path, path, ends):
    """It is run again only after a refusal."""
    access = await from_kubeconfig([write(path, user=program(tmp_path, *ends))], environ={})
    clock = Clock(access.credentials)
    clock.now += credentials.RENEW_S
    assert await header(access) == "Bearer CW-SECRET-0"
    access.credentials.refused()
    clock.now += credentials.RENEW_S
    assert await header(access) == "Bearer CW-SECRET-1"
    assert runs(tmp_path) == 2


async def test_a_program_that_fails(tmp_path, path, caplog):
    """What it said is not passed on, nor written to a log: who wants to see it is told how."""
    caplog.set_level(logging.DEBUG)
    said = await refused(write(path, user=program(tmp_path, FAIL="1")))
    assert "login failed" in said
    assert "run its program by hand" in said
    assert TOKEN not in caplog.text


async def test_a_login_that_somebody_else_gave_up(tmp_path, path, monkeypatch):
    """A cancelled look-up of the library's is a login that failed; our own cancellation passes."""
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    async def given_up(loader, configuration):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    monkeypatch.setattr(KubeConfigLoader, "load_and_set", given_up)
    assert "login failed (CancelledError)" in await refused(write(path, user=program(tmp_path)))
    monkeypatch.setattr(KubeConfigLoader, "load_and_set", lambda *about: anyio.sleep_forever())
    with anyio.move_on_after(0.01) as scope:
        await from_kubeconfig([path], environ={})
    assert scope.cancelled_caught


async def test_a_program_that_is_none(path):
    """As with one that fails."""
    assert "login failed" in await refused(write(path, user={"exec": {"command": "/none", "apiVersion": "v1"}}))
    assert "login failed" in await refused(write(path, user={"exec": {"command": TOKEN}}))
