"""Node agents on Kubernetes: who they are is proven by the API server, from the tokens of their pods.

Theory of operation. One DaemonSet has one specification for all nodes, so no agent can be given a token of its node's.
What each of its pods has is a token of the agents' service account, for the audience of the controller and bound to
that pod; the API server says whether it is good and on which node the pod is. So an agent is believed about the node
that its pod is on, and a token is worth nothing once its pod is gone, on another node, or for anybody else.

What a token says of itself is read first, unproven: one that does not even claim to be an agent's is nobody's, and the
API server is not asked. Whoever forges one that does is bounded three ways: so many questions at once, so many who
wait, so long. Answers are remembered shortly, good ones never beyond the token's own end.

A server that does not answer is no reason to let anybody in: the agent is told (:class:`ReviewUnavailable`), and dials
again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import anyio
import attrs

from iriscw.cloud.kube.reviews import Reviewed
from iriscw.cloud.model import CloudError
from iriscw.controller.errors import AgentUnproven, ReviewUnavailable, TooManyReviews
from iriscw.controller.tokens import AgentPrincipal
from iriscw.files import decode_json
from iriscw.nodes.model import MAX_NODES, NODE_NAME
from iriscw.rpc.tokens import MAX_TOKEN_CHARS, Role

log = logging.getLogger(__name__)

MAX_ASKED = 16
"""Questions that the API server is asked at once."""

MAX_WAITING = MAX_NODES
"""Agents that wait for their turn: after a restart of the controller all of them dial."""

PATIENCE_S = 15.0
"""What an agent waits for its turn and the answer. A connection that nobody vouches for is closed after 30 s."""

REMEMBERED_S = 60.0
"""How long a good answer holds: for so long a pod's token may be taken after the pod is gone."""

REFUSED_S = 5.0
"""How long a bad one does: a token that was not good may be, where the server's caches are behind."""

MAX_REMEMBERED = 2 * MAX_NODES
"""Good answers, and as many bad ones: strangers do not drive out the agents'."""

QUOTED_CHARS = 16
"""Of a token, from its beginning: a reason that has them quotes it. A server may repeat what it could not read."""

OUTCOMES = ("accepted", "refused", "remembered", "unavailable", "turned_away")


@attrs.frozen
class TokenClaims:
    """What a token says of itself. Nobody has vouched for it."""

    user: str
    audiences: tuple[str, ...]
    expires_s: int
    """Wall clock."""


def claims_of(token: str) -> TokenClaims | None:
    """Read what a token says of itself; None if it is none of a service account."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN_CHARS or len(parts) != 3 or not all(parts) or not token.isascii():
        return None
    try:
        said = decode_json(base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        return None
    match said:
        case {"sub": str(user), "aud": [*audiences], "exp": int(expires_s)}:
            return TokenClaims(user, tuple(each for each in audiences if isinstance(each, str)), expires_s)
        case _:
            return None


def judge(said: Reviewed, account: str, audience: str) -> str:
    """Return the node whose agent a token is of.

    Raises:
        AgentUnproven: it is no agent's of ours, or its node is not known.
    """
    if not said.authenticated:
        raise AgentUnproven("the API server does not take the token: it has expired, or its pod is gone")
    if audience not in said.audiences:
        raise AgentUnproven(f"the token is not for {audience}")
    if said.user != account:
        raise AgentUnproven(f"the token is not of {account}")
    if not NODE_NAME.fullmatch(said.node):
        raise AgentUnproven(
            "the API server does not say on which node the token's pod is: the token is bound to no pod, or Kubernetes"
            " is older than 1.30"
        )
    return said.node


@attrs.frozen
class _Answer:
    """What was found, and until when (monotonic seconds) it holds."""

    until_s: float
    principal: AgentPrincipal | None = None
    why: str = ""


class AgentProofs:
    """Says which agents hold which tokens. :meth:`prove` is the callback of a server.

    Args:
        review: asks the API server about a token; raises :class:`CloudError`.
        account: the agents' service account, as a user.
        audience: for whom their tokens are.
        clock: monotonic seconds.
        wall: seconds of the wall clock, as tokens have them.
        patience_s: what an answer may take, the wait for one's turn included.
    """

    def __init__(
        self,
        review: Callable[[str], Awaitable[Reviewed]],
        account: str,
        audience: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._review = review
        self._account = account
        self._audience = audience
        self._clock = clock
        self._wall = wall
        self._patience_s = patience_s
        self._turns = anyio.CapacityLimiter(MAX_ASKED)
        self._waiting = 0
        self._good: dict[bytes, _Answer] = {}
        self._bad: dict[bytes, _Answer] = {}
        self._counts = dict.fromkeys(OUTCOMES, 0)
        self._away = False

    @property
    def counts(self) -> Mapping[str, int]:
        """Tokens that were shown, by what became of them, since the start."""
        return MappingProxyType(self._counts)

    async def prove(self, token: str) -> AgentPrincipal | None:
        """Say which node's agent holds a token; None if it does not even say that it is one's.

        Raises:
            AgentUnproven: it is not, or the API server does not say of which node.
            TooManyReviews: too many wait for an answer.
            ReviewUnavailable: the API server gave none.
        """
        claims = claims_of(token)
        if claims is None or claims.user != self._account or self._audience not in claims.audiences:
            return None
        key = hashlib.sha256(token.encode()).digest()
        answer = self._remembered(key)
        if answer is None:
            answer = await self._asked(key, token, claims)
        else:
            self._counts["remembered"] += 1
        if answer.principal is None:
            raise AgentUnproven(answer.why)
        return answer.principal

    def _remembered(self, key: bytes) -> _Answer | None:
        for answers in (self._good, self._bad):
            answer = answers.get(key)
            if answer is not None:
                if self._clock() < answer.until_s:
                    return answer
                del answers[key]
        return None

    async def _asked(self, key: bytes, token: str, claims: TokenClaims) -> _Answer:
        if self._waiting >= MAX_ASKED + MAX_WAITING:
            self._counts["turned_away"] += 1
            raise TooManyReviews(f"{self._waiting} tokens wait for the API server's answer")
        self._waiting += 1
        try:
            with anyio.move_on_after(self._patience_s):
                async with self._turns:
                    said = await self._review(token)
                self._away = False
                return self._judged(key, attrs.evolve(said, error=_without(token, said.error)), claims)
        except CloudError as error:
            raise self._unanswered(f"{type(error).__name__}: {_without(token, str(error))}") from error
        finally:
            self._waiting -= 1
        raise self._unanswered(f"no answer within {self._patience_s:g} s")

    def _judged(self, key: bytes, said: Reviewed, claims: TokenClaims) -> _Answer:
        try:
            node = judge(said, self._account, self._audience)
        except AgentUnproven as refusal:
            self._counts["refused"] += 1
            log.info("a token that says it is an agent's is refused: %s%s", refusal, said.error and f" ({said.error})")
            answer = _Answer(self._clock() + REFUSED_S, why=str(refusal))
            _keep(self._bad, key, answer)
            return answer
        self._counts["accepted"] += 1
        left_s = claims.expires_s - self._wall()
        principal = AgentPrincipal(Role.AGENT, node=node, expires_s=claims.expires_s)
        answer = _Answer(self._clock() + min(REMEMBERED_S, left_s), principal)
        _keep(self._good, key, answer)
        return answer

    def _unanswered(self, reason: str) -> ReviewUnavailable:
        self._counts["unavailable"] += 1
        # Each agent dials again every few seconds, so only the first of them is told of.
        log.log(
            logging.DEBUG if self._away else logging.WARNING, "whose an agent's token is cannot be told: %s", reason
        )
        self._away = True
        return ReviewUnavailable("the API server did not say whose the token is: dial again")


def _without(token: str, reason: str) -> str:
    """Return the server's reason, unless the token would go to the log with it."""
    return "its reason quotes the token, and is left out" if token[:QUOTED_CHARS] in reason else reason


def _keep(answers: dict[bytes, _Answer], key: bytes, answer: _Answer) -> None:
    """Remember an answer; the oldest makes room."""
    answers.pop(key, None)
    if len(answers) >= MAX_REMEMBERED:
        del answers[next(iter(answers))]
    answers[key] = answer
