"""Tokens and certificates as files: made where they are missing, never changed, good for TLS."""

import shutil
import ssl
import stat
import subprocess

import pytest

from iriscw.cli import secret_files
from iriscw.cli.secret_files import make_missing, read_files
from iriscw.deploy.errors import NoSecretMaterial
from iriscw.deploy.secrets import FILE_BYTES, SENT
from iriscw.rpc.tls import client_tls, server_tls
from iriscw.rpc.tokens import read_token_file
from raised import that

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")

NAMES = ("iris-controller-svc.iris.svc.cluster.local", "iris-controller-svc", "localhost", "127.0.0.1")
ALL = (*SENT, "ca.key")


def make(folder):
    """Make what is missing."""
    return make_missing(folder, "research", NAMES)


def contents(folder):
    """Return all files."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_everything_is_made_once(tmp_path):
    """Private, all of it; a second time nothing is missing, and nothing changes."""
    folder = tmp_path / "a" / "secrets"
    assert sorted(make(folder)) == sorted(ALL)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    before = contents(folder)
    assert sorted(before) == sorted(ALL)
    assert make(folder) == ()
    assert contents(folder) == before


def test_tokens_are_tokens(tmp_path):
    """Long, and no two alike."""
    make(tmp_path)
    tokens = {read_token_file(tmp_path / name).reveal() for name in ("cluster-secret", "admin-token", "metrics-token")}
    assert len(tokens) == 3
    assert all(len(each) >= 32 for each in tokens)


@pytest.mark.parametrize(("name", "good"), [*((name, True) for name in NAMES), ("elsewhere", False)])
def test_the_certificate_is_accepted_for_its_names(tmp_path, name, good):
    """By those who trust the authority, by the strict rules, and for no other name."""
    make(tmp_path)
    server = server_tls(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = client_tls(authority=tmp_path / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    try:
        shake_hands(client, server, name)
    except ssl.SSLCertVerificationError:
        assert not good
    else:
        assert good


def shake_hands(client, server, name):
    """Let two contexts meet, without a network."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(one, other, server_hostname=name), server.wrap_bio(other, one, server_side=True)]
    for _ in range(10):
        waiting = 0
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return
    raise AssertionError("the handshake does not end")


def test_a_certificate_is_made_anew_by_the_same_authority(tmp_path):
    """Which is how it is renewed: two files are removed, workers go on to trust."""
    make(tmp_path)
    before = contents(tmp_path)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).unlink()
    assert make(tmp_path) == ("tls.crt", "tls.key")
    after = contents(tmp_path)
    assert [name for name in ALL if before[name] != after[name]] == ["tls.crt", "tls.key"]
    shake_hands(
        client_tls(authority=tmp_path / "ca.crt"), server_tls(tmp_path / "tls.crt", tmp_path / "tls.key"), NAMES[0]
    )


def test_certificates_may_be_brought(tmp_path):
    """All three: then only tokens are made, and no authority of ours."""
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_text("theirs")
    assert make(tmp_path) == ("cluster-secret", "admin-token", "metrics-token")
    assert contents(tmp_path)["tls.crt"] == b"theirs"


@pytest.mark.parametrize(
    "there", [("tls.crt",), ("tls.crt", "tls.key"), ("ca.crt",), ("ca.key",), ("tls.key", "ca.crt")]
)
def test_half_of_them_are_refused(tmp_path, there):
    """What is there is not overwritten, and what does not belong together is not mixed."""
    for name in there:
        (tmp_path / name).write_text("theirs")
    with pytest.raises(NoSecretMaterial, check=that(names=("tls.crt", "tls.key", "ca.crt"))):
        make(tmp_path)
    assert {name: text for name, text in contents(tmp_path).items() if name in there} == dict.fromkeys(there, b"theirs")


def test_a_machine_without_openssl_is_told(tmp_path, monkeypatch):
    """With the other way there is."""
    monkeypatch.setattr(secret_files.shutil, "which", lambda _name: None)
    with pytest.raises(NoSecretMaterial, check=that(comes_from="secret_files._issue")):
        make(tmp_path)


def test_an_openssl_that_fails_is_told(tmp_path, monkeypatch):
    """In its own last words; nothing half made stays."""
    monkeypatch.setattr(secret_files, "_AUTHORITY_CONFIG", "nonsense")
    with pytest.raises(NoSecretMaterial, check=that(comes_from="secret_files._issue")):
        make(tmp_path)
    assert sorted(contents(tmp_path)) == ["admin-token", "cluster-secret", "metrics-token"]


def test_the_machines_own_openssl_configuration_is_not_used(tmp_path, monkeypatch):
    """It could put anything into a certificate."""
    (tmp_path / "odd.cnf").write_text("openssl_conf = nowhere\n[req]\nprompt = yes\n")
    monkeypatch.setenv("OPENSSL_CONF", str(tmp_path / "odd.cnf"))
    make(tmp_path / "secrets")
    said = subprocess.run(
        ["openssl", "x509", "-in", str(tmp_path / "secrets" / "tls.crt"), "-noout", "-ext", "basicConstraints"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    assert "CA:FALSE" in said.stdout


def test_a_folder_that_cannot_be_one_is_told(tmp_path):
    """By its name."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(NoSecretMaterial, check=that(names="file")):
        make(tmp_path / "file")


def test_only_what_is_sent_is_read(tmp_path):
    """The authority's own key is not, nor what else lies there; what is missing is left out, what is huge refused."""
    make(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert sorted(read_files(tmp_path)) == sorted(SENT)
    (tmp_path / "tls.crt").unlink()
    assert "tls.crt" not in read_files(tmp_path)
    (tmp_path / "ca.crt").write_bytes(b"x" * (FILE_BYTES + 1))
    with pytest.raises(NoSecretMaterial, check=that(comes_from="files.read_bounded")):
        read_files(tmp_path)
