"""Tokens: nobody sees them, nobody forges them."""

import errno
import logging
import os
import pickle
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.rpc.errors import InvalidTokenFile
from iriscw.rpc.tokens import (
    MAX_TOKEN_CHARS,
    ClusterTokens,
    Principal,
    Role,
    Secret,
    SignedNames,
    digest_of,
    has_digest,
    mint_token,
    read_token_file,
    write_token_file,
)
from raised import that

NAMES = st.text(min_size=1, max_size=60)
ADMIN, WORKER = Secret("admin"), Secret("worker")
CLUSTER = ClusterTokens(Secret("key"), admins=[ADMIN], workers=[WORKER])


def test_secret_never_shows(caplog: pytest.LogCaptureFixture) -> None:
    """No way of printing shows the text, nor does pickling carry it."""
    secret = Secret("hunter2")
    logging.getLogger("t").warning("%s %r", secret, [secret])
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!s:>30}", repr({"a": secret}), caplog.text):
        assert "hunter2" not in text
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        hash(secret)
    assert secret.reveal() == "hunter2"


def test_secret_equality() -> None:
    """Secrets are compared by their text, and equal nothing else."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


@pytest.mark.parametrize("text", ["", "a b", "ä", "a\nb"])
def test_invalid_secret(text: str) -> None:
    """What cannot travel in a header is not a secret; the error does not quote it."""
    with pytest.raises(InvalidArgument, check=that(comes_from="tokens.Secret.__init__")):
        Secret(text)


def test_minted_tokens_differ() -> None:
    """Minted tokens are long and never alike."""
    assert len(mint_token().reveal()) >= 43
    assert mint_token() != mint_token()


def test_fixed_tokens() -> None:
    """Admins and workers are told apart; anything else is nobody."""
    assert CLUSTER.authenticate("admin") == Principal(Role.ADMIN)
    assert CLUSTER.authenticate("worker") == Principal(Role.WORKER)
    for token in ("", "admi", "admin ", "ä", "x" * (MAX_TOKEN_CHARS + 1), "iwj1.YQ.Yg", "iwj1.YQ.Yg.", "..."):
        assert CLUSTER.authenticate(token) is None


@given(NAMES, NAMES)
def test_job_tokens_round_trip(job_id: str, attempt_uid: str) -> None:
    """A job token names its attempt, on every controller with the same secret."""
    token = CLUSTER.job_token(job_id, attempt_uid).reveal()
    other = ClusterTokens(Secret("key"))
    assert other.authenticate(token) == Principal(Role.JOB, job_id, attempt_uid)
    assert ClusterTokens(Secret("other")).authenticate(token) is None


@given(NAMES, NAMES, st.data())
def test_job_tokens_cannot_be_changed(job_id: str, attempt_uid: str, data: st.DataObject) -> None:
    """Any changed character makes the token nobody's, or leaves its meaning as it was."""
    token = CLUSTER.job_token(job_id, attempt_uid).reveal()
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_."))
    changed = token[:at] + letter + token[at + 1 :]
    assert (CLUSTER.authenticate(changed) is None) == (changed != token)


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    """Whatever a stranger sends is judged without an error."""
    assert CLUSTER.authenticate(text) in (None, Principal(Role.ADMIN), Principal(Role.WORKER))


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_job_names_are_bounded(name: str) -> None:
    """Names of impossible length are refused."""
    with pytest.raises(InvalidArgument):
        CLUSTER.job_token(name, "a")


def test_token_file(tmp_path: Path) -> None:
    """Written with mode 0600 in a folder 0700, whatever the umask, and read back."""
    path = tmp_path / "new" / "token"
    write_token_file(path, Secret("abc"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_token_file(path) == Secret("abc")


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"\xff", b"x" * 5000])
def test_bad_token_file(tmp_path: Path, content: bytes) -> None:
    """A file without a token is a named error that names the file and not what it holds."""
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InvalidTokenFile, check=that(names="token")):
        read_token_file(path)


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    """One that is not there, or is a folder, is the same named error, with the path and the reason."""
    for path, why in ((tmp_path / "none", errno.ENOENT), (tmp_path, errno.EISDIR)):
        with pytest.raises(InvalidTokenFile, check=that(names=(path, os.strerror(why)))):
            read_token_file(path)


def test_kinds_of_signed_names_are_apart() -> None:
    """Names signed as one kind, or with another secret, are no names of another kind."""
    secret = mint_token()
    ours = SignedNames(secret, "k1", b"kind 1\0")
    token = ours.token("a", "b.c", "ü").reveal()
    assert ours.names(token) == ("a", "b.c", "ü")
    for other in (SignedNames(secret, "k1", b"kind 2\0"), SignedNames(mint_token(), "k1", b"kind 1\0")):
        assert other.names(token) is None
    assert [ours.names(text) for text in ("", "k1", token[:-1], f"{token}x", "ü", "x" * 3000)] == [None] * 6


def test_a_token_for_metrics() -> None:
    """It is one role and no other: where the same text is an admin's, too, the role that may do less counts."""
    reader = Secret("reader")
    tokens = ClusterTokens(Secret("key"), admins=[ADMIN, reader], metrics=[reader])
    assert tokens.authenticate("reader") == Principal(Role.METRICS)
    assert tokens.authenticate("admin") == Principal(Role.ADMIN)
    assert CLUSTER.authenticate("reader") is None


@given(NAMES, NAMES)
def test_a_digest_knows_its_token_alone(one: str, other: str) -> None:
    """Law: of all texts only the token has it, and none has the empty one."""
    digest = digest_of(Secret("t"))
    assert has_digest("t", digest)
    assert not has_digest("t" + one, digest)
    assert not has_digest(one, "")
    assert not has_digest(one, other)
