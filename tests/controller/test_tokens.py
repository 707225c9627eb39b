"""Tokens: bound to one incarnation, the same after a restart, worthless elsewhere."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.controller.tokens import AgentPrincipal, ControllerTokens, WorkerPrincipal, keep_token
from iriscw.files import StateUnusable
from iriscw.rpc.tokens import Role, Secret

TOKENS = ControllerTokens(Secret("cluster"), [Secret("admin")])


@given(worker_id=st.text(min_size=1, max_size=60), incarnation=st.text(min_size=1, max_size=60))
def test_worker_token(worker_id: str, incarnation: str) -> None:
    """A worker's token says which incarnation of which worker it is, to its own cluster only."""
    token = TOKENS.worker_token(worker_id, incarnation).reveal()
    found = TOKENS.authenticate(token)
    assert found == WorkerPrincipal(Role.WORKER, worker_id=worker_id, incarnation=incarnation)
    assert ControllerTokens(Secret("other"), []).authenticate(token) is None


@given(node=st.text(min_size=1, max_size=60))
def test_agent_token(node: str) -> None:
    """An agent's token says of which node it may speak, to its own cluster only, and is not a worker's."""
    token = TOKENS.agent_token(node).reveal()
    assert TOKENS.authenticate(token) == AgentPrincipal(Role.AGENT, node=node)
    assert ControllerTokens(Secret("other"), []).authenticate(token) is None
    assert TOKENS.authenticate(token.replace("iwa1", "iww1", 1)) is None


@given(st.text(max_size=80))
def test_garbage(text: str) -> None:
    """No text is a token by chance."""
    assert TOKENS.authenticate(text) is None
    token = TOKENS.worker_token("w", "i").reveal()
    assert TOKENS.authenticate(token + text) is None or not text


def test_other_roles() -> None:
    """Admins and attempts are told apart from workers."""
    admin, job = TOKENS.authenticate("admin"), TOKENS.authenticate(TOKENS.job_token("job-x", "u").reveal())
    assert admin is not None
    assert job is not None
    assert (admin.role, job.role, job.job_id, job.attempt_uid) == (Role.ADMIN, Role.JOB, "job-x", "u")


@pytest.mark.parametrize("names", [("", "i"), ("w", ""), ("w" * 257, "i")])
def test_names(names: tuple[str, str]) -> None:
    """A token is made for names that fit."""
    with pytest.raises(InvalidArgument):
        TOKENS.worker_token(*names)


def test_kept_token(tmp_path: Path) -> None:
    """A token that was minted is the same next time, in a file nobody else reads."""
    path = tmp_path / "secrets" / "token"
    first = keep_token(path)
    assert keep_token(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.write_text("two words")
    with pytest.raises(StateUnusable) as caught:
        keep_token(path)
    assert "two words" not in str(caught.value)
