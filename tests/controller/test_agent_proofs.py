"""Agents of pods: who is believed, what is remembered, and what bounds the questions."""

import base64
import json
import logging

import anyio
import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.kube.reviews import Reviewed
from iriscw.cloud.model import Forbidden, InvalidSpec, Unavailable
from iriscw.controller.errors import AgentUnproven, ReviewUnavailable, TooManyReviews
from iriscw.controller.platforms import agent_proofs
from iriscw.controller.platforms.agent_proofs import (
    MAX_ASKED,
    REFUSED_S,
    REMEMBERED_S,
    AgentProofs,
    TokenClaims,
    claims_of,
    judge,
)
from iriscw.controller.tokens import AgentPrincipal
from iriscw.rpc.tokens import Role
from raised import that

ACCOUNT, US = "system:serviceaccount:iris:iris-agent", "us"
GOOD = Reviewed(True, ACCOUNT, (US,), "n1")
PATIENCE_S = 60


def encoded(value):
    """Write a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token(name="a", **claims):
    """Return a token that says this of itself; another name, another token."""
    said = {"sub": ACCOUNT, "aud": [US], "exp": 10_000, "jti": name, **claims}
    return f"{encoded({'alg': 'RS256'})}.{encoded(said)}.c2lnbmF0dXJl"


def test_what_a_token_says_of_itself():
    """Its user, its audiences, its end."""
    assert claims_of(token(aud=[US, "them", 7])) == TokenClaims(ACCOUNT, (US, "them"), 10_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "iwa1.bjE.c2ln",
        "a.b",
        f"{token()}.more",
        token().replace(".", "..", 1),
        token(exp="soon"),
        token(aud=US),
        token(sub=None),
        f"a.{encoded([1])}.c",
        "a." + base64.urlsafe_b64encode(b"[" * 2000).decode() + ".c",
        token(pad="x" * 5000),
        "ä.ö.ü",
    ],
)
def test_what_is_no_token_of_an_account(text):
    """It is nobody's, and the API server is not asked."""
    assert claims_of(text) is None


@given(st.text() | st.binary().map(lambda data: f"a.{base64.urlsafe_b64encode(data).decode()}.c"))
def test_no_text_breaks_the_reading(text):
    """Whatever strangers send."""
    assert claims_of(text) is None or text.count(".") == 2


def test_the_agent_of_a_node():
    """A token that the server takes, for us, of the agents' account, with a node."""
    assert judge(GOOD, ACCOUNT, US) == "n1"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"authenticated": False}, that(comes_from="agent_proofs.judge")),
        ({"audiences": ()}, that(comes_from="agent_proofs.judge")),
        ({"audiences": ("https://kubernetes.default.svc",)}, that(comes_from="agent_proofs.judge")),
        (
            {"user": "system:serviceaccount:iris:iris-worker"},
            that(comes_from="agent_proofs.judge", names=ACCOUNT),
        ),
        (
            {"user": "system:serviceaccount:other:iris-agent"},
            that(comes_from="agent_proofs.judge", names=ACCOUNT),
        ),
        ({"user": f"{ACCOUNT}2"}, that(comes_from="agent_proofs.judge", names=ACCOUNT)),
        ({"node": ""}, that(comes_from="agent_proofs.judge", names="1.30")),
        ({"node": "../n1"}, that(comes_from="agent_proofs.judge", names="1.30")),
    ],
)
def test_nobody_else_is_an_agent(said, why):
    """Each is refused by name, with its reason."""
    with pytest.raises(AgentUnproven, check=why):
        judge(attrs.evolve(GOOD, **said), ACCOUNT, US)


class Server:
    """Plays the API server, and the clocks."""

    def __init__(self, **more):
        self.said, self.shown, self.now, self.wall = GOOD, [], 0.0, 9_000.0
        self.asking, self.most = 0, 0
        self.open = anyio.Event()
        self.open.set()
        more = {"patience_s": PATIENCE_S, **more}
        self.proofs = AgentProofs(self.review, ACCOUNT, US, clock=lambda: self.now, wall=lambda: self.wall, **more)

    async def review(self, shown):
        """Answer when it is time."""
        self.shown.append(shown)
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            await self.open.wait()
        finally:
            self.asking -= 1
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def counted(self):
        """Return what was counted."""
        return {outcome: count for outcome, count in self.proofs.counts.items() if count}


N1 = AgentPrincipal(Role.AGENT, node="n1", expires_s=10_000)


async def test_an_agent_is_proven_and_remembered():
    """For a minute, whatever the server says then; no longer."""
    server = Server()
    assert await server.proofs.prove(token()) == N1
    server.said, server.now = Reviewed(False), REMEMBERED_S - 1
    assert await server.proofs.prove(token()) == N1
    server.now = REMEMBERED_S
    with pytest.raises(AgentUnproven):
        await server.proofs.prove(token())
    assert len(server.shown) == 2
    assert server.counted() == {"accepted": 1, "remembered": 1, "refused": 1}


async def test_nothing_is_remembered_beyond_the_tokens_end():
    """Nor at all where that has come by our clock."""
    server = Server()
    server.wall = 10_000 - 20
    await server.proofs.prove(token())
    server.now = 20
    await server.proofs.prove(token())
    server.wall, server.now = 10_001, 50
    await server.proofs.prove(token())
    await server.proofs.prove(token())
    assert len(server.shown) == 4


async def test_a_refusal_is_remembered_shortly():
    """A pod that the server's caches had not heard of is let in soon after."""
    server = Server()
    server.said = Reviewed(False, error="no such pod")
    for _ in range(2):
        with pytest.raises(AgentUnproven):
            await server.proofs.prove(token())
    assert len(server.shown) == 1
    server.said, server.now = GOOD, REFUSED_S
    assert await server.proofs.prove(token()) == N1


@pytest.mark.parametrize(
    "text", ["", "nonsense", token(sub="system:serviceaccount:iris:default"), token(aud=["https://kubernetes"])]
)
async def test_who_does_not_even_claim_to_be_one_costs_no_question(text):
    """Such a token is nobody's."""
    server = Server()
    assert await server.proofs.prove(text) is None
    assert server.shown == []


@pytest.mark.parametrize("trouble", [Unavailable("away"), Forbidden("no right")])
async def test_a_server_without_an_answer_lets_nobody_in(trouble, caplog):
    """It is told by name and once in the log, and nothing is remembered of it."""
    server = Server()
    server.said = trouble
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(ReviewUnavailable):
                await server.proofs.prove(token())
    assert [type(trouble).__name__ in each.getMessage() for each in caplog.records] == [True]
    assert token() not in caplog.text
    server.said = GOOD
    assert await server.proofs.prove(token()) == N1
    assert server.counted() == {"unavailable": 3, "accepted": 1}


@pytest.mark.parametrize("said", [InvalidSpec, lambda text: Reviewed(False, error=text)])
async def test_a_reason_that_quotes_the_token_is_left_out(said, caplog):
    """As of a server, or of who stands before it, that repeats what it could not read, or the beginning of that."""
    server = Server()
    server.said = said(f'cannot read {{"spec":{{"token":"{token()[:60]}...')
    with caplog.at_level(logging.INFO), pytest.raises((AgentUnproven, ReviewUnavailable)) as refused:
        await server.proofs.prove(token())
    assert "quotes the token" in caplog.text
    assert token()[:60] not in caplog.text + str(refused.value)


async def test_a_server_that_hangs_is_not_waited_for():
    """Neither by those who wait for their turn; all places are free then."""
    server = Server(patience_s=0.05)
    server.open = anyio.Event()
    names = [str(number) for number in range(MAX_ASKED + 5)]

    async def shown(name):
        with pytest.raises(ReviewUnavailable):
            await server.proofs.prove(token(name))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(shown, name)
    assert server.most <= MAX_ASKED
    server.open.set()
    assert await server.proofs.prove(token()) == N1


async def test_questions_and_those_who_wait_are_bounded(monkeypatch):
    """Beyond both an agent is turned away by name; the others are served in their turn."""
    monkeypatch.setattr(agent_proofs, "MAX_WAITING", 4)
    server = Server()
    server.open = anyio.Event()
    found, refused = [], []

    async def shown(name):
        try:
            found.append(await server.proofs.prove(token(name)))
        except TooManyReviews as error:
            refused.append(error)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(MAX_ASKED + 7):
                tasks.start_soon(shown, str(number))
            await anyio.wait_all_tasks_blocked()
            assert (len(refused), server.asking) == (3, MAX_ASKED)
            server.open.set()
    assert (len(found), server.most) == (MAX_ASKED + 4, MAX_ASKED)
    assert server.counted() == {"accepted": MAX_ASKED + 4, "turned_away": 3}


async def test_strangers_do_not_drive_out_agents(monkeypatch):
    """Bad answers have places of their own, and the oldest of each kind make room."""
    monkeypatch.setattr(agent_proofs, "MAX_REMEMBERED", 3)
    server = Server()
    await server.proofs.prove(token())
    server.said = Reviewed(False)
    for number in range(5):
        with pytest.raises(AgentUnproven):
            await server.proofs.prove(token(f"forged {number}"))
    assert await server.proofs.prove(token()) == N1
    assert len(server.shown) == 6
    server.said = GOOD
    for number in range(3):
        await server.proofs.prove(token(f"new {number}"))
    await server.proofs.prove(token())
    assert len(server.shown) == 10
