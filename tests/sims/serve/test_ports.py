"""What listens in simulated containers."""

import json

import pytest

from iriscw.cloud.model import LABEL_INCARNATION, LABEL_WORKER
from iriscw_sims.serve.ports import HEAD_BYTES, Health, listens


def pod(*ports, **labels):
    """Return a pod whose container names ports."""
    container = {"name": "main", "ports": [{"containerPort": port} for port in ports]}
    return {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [container]}}


def answer(said):
    """Return status and body of an answer."""
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_worker_is_well():
    """It answers as a real worker that knows no controller."""
    labels = {LABEL_WORKER: "w1", LABEL_INCARNATION: "i1"}
    status, body = answer(Health(pod(**labels), 2.5).receive(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert status == 200
    assert body == {
        "worker_id": "w1",
        "incarnation": "i1",
        "status": "ok",
        "connected": False,
        "live_attempts": 0,
        "uptime_s": 2.5,
    }


def test_requests_follow_each_other():
    """In pieces, or several at once, until one says that it is the last."""
    health = Health(pod(), 1)
    assert health.receive(b"GET /hea") == b""
    assert answer(health.receive(b"lth HTTP/1.1\r\n\r\n"))[0] == 200
    twice = health.receive(b"GET /a HTTP/1.1\r\n\r\n" + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert twice.count(b"HTTP/1.1 404") == twice.count(b"HTTP/1.1 200") == 1
    assert health.over
    assert health.receive(b"GET /health HTTP/1.1\r\n\r\n") == b""


@pytest.mark.parametrize(
    ("asked", "status", "over"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", 404, False),
        (b"POST /health HTTP/1.1\r\n\r\n", 405, False),
        (b"POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400, True),
        (b"GET /health HTTP/1.0\r\n\r\n", 200, True),
        (b"\x16\x03\x01\r\n\r\n", 400, True),
        (b"x" * (HEAD_BYTES + 1), 431, True),
    ],
)
def test_what_is_not_understood(asked, status, over):
    """Is told, and ends the connection where its end cannot be known."""
    health = Health(pod(), 1)
    assert answer(health.receive(asked))[0] == status
    assert health.over is over


def test_the_head_alone_can_be_asked_for():
    """It says how long the body would be."""
    said = Health(pod(), 1).receive(b"HEAD /health HTTP/1.1\r\n\r\n")
    assert said.endswith(b"\r\n\r\n")
    assert b"Content-Length: 1" in said


def test_ports_that_are_named_are_those_that_listen():
    """And all of them where none is named."""
    assert listens(pod(8080, 9090), 9090)
    assert not listens(pod(8080), 80)
    assert listens(pod(), 80)
