"""How long a command tries to reach a controller."""

from contextlib import asynccontextmanager

import pytest

from iriscw.cli.connection import with_client
from iriscw.cli.outcome import REFUSED
from iriscw.client import calls, client, contact, discovery
from iriscw.client.discovery import ControllerEndpoint

FOR_EVER_S = 100_000.0
"""Longer than the test runner waits."""


def test_where_nobody_listens_a_command_ends_early(iriscw, tmp_path, free_tcp_port, monkeypatch):
    """With the error that it had when its patience was over, and the way out."""
    monkeypatch.setattr(contact, "REFUSED_S", 0.05)
    monkeypatch.setattr(calls, "CALL_TIMEOUT_S", FOR_EVER_S)
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    code, _, err = iriscw("jobs", "--address", f"127.0.0.1:{free_tcp_port}", "--token-file", str(token))
    assert code == REFUSED
    assert "RpcUnavailable" in err
    assert "`iriscw up` starts one here" in err


@pytest.mark.parametrize(
    ("address", "job_id", "refused_s"),
    [
        ("127.0.0.1:1", "", contact.REFUSED_S),
        ("https://localhost:1", "", contact.REFUSED_S),
        ("[::1]:1", "", contact.REFUSED_S),
        ("unix:/run/iris.sock", "", contact.REFUSED_S),
        ("127.0.0.1:1", "job-1", None),
        ("10.96.0.7:10000", "", None),
        ("iris.team.svc.cluster.local:10000", "", None),
    ],
)
def test_who_may_be_moving_is_waited_for(monkeypatch, address, job_id, refused_s):
    """A task's own controller, and one of another machine: Kubernetes refuses until its pod is ready. What only a
    process of this machine could listen to is not, where somebody sits and waits.
    """
    told = []

    @asynccontextmanager
    async def connected_to(found, **words):
        told.append(words)
        yield None

    async def nothing(_client):
        return 7

    monkeypatch.setattr(discovery, "discover", lambda *_: ControllerEndpoint(address, None, job_id=job_id))
    monkeypatch.setattr(client, "connected_to", connected_to)
    assert with_client(None, None, nothing) == 7
    assert told == [{"refused_s": refused_s}]
