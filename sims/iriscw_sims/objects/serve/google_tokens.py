"""Who gives out tokens, and knows whose they are: the three ways to one that iriscw's credentials take.

* a *service account* signs an assertion, and is its ``iss``. As with S3's signatures, nothing is checked of the
  signature but that there is one: the simulation knows no secrets;
* a *user* shows a refresh token, and is who that belongs to;
* a *workload* shows the token of another issuer, and is who that belongs to.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.serve.answers import HttpAnswer
from iriscw_sims.objects.serve.requests import HttpRequest

TOKEN_PATHS = ("/token", "/sts/v1/token")
UNKNOWN = "nobody"
"""The key of who shows a token that is none, or none any more."""


class TokenOffice:
    """Gives out tokens.

    Args:
        lasts_s: How long each is good.
    """

    def __init__(self, lasts_s: int = 3600) -> None:
        self.lasts_s = lasts_s
        self.identities: dict[str, str] = {}
        """Access keys, by what is shown for them: an account's name, a refresh token, a workload's token."""
        self.given = 0
        """How many tokens were given out."""
        self.silent = False
        """Whether requests are answered as by a server in trouble."""
        self._tokens: dict[str, tuple[str, int]] = {}

    def forget(self) -> None:
        """Let no token be good any more."""
        self._tokens.clear()

    def key_of(self, asked: HttpRequest, now: int) -> str:
        """Return whose request it is; empty: it shows no token."""
        said = asked.header("authorization")
        if not said:
            return ""
        key, ends_at = self._tokens.get(said.removeprefix("Bearer "), (UNKNOWN, now + 1))
        return key if now < ends_at else UNKNOWN

    def answer(self, asked: HttpRequest, now: int) -> HttpAnswer:
        """Return a token, or refuse."""
        if self.silent:
            return _json(503, {"error": "server_error", "error_description": "try again"})
        said = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        shown = _subject(said.get("assertion", "")) or said.get("refresh_token") or said.get("subject_token") or ""
        key = self.identities.get(shown)
        if key is None:
            return _json(400, {"error": "invalid_grant", "error_description": "nobody of that name"})
        self.given += 1
        token = f"ya29.{self.given}"
        self._tokens[token] = key, now + self.lasts_s * SECOND
        kind = "urn:ietf:params:oauth:token-type:access_token"
        told = {"access_token": token, "expires_in": self.lasts_s, "token_type": "Bearer", "issued_token_type": kind}
        return _json(200, told)


def _subject(assertion: str) -> str:
    """Return who an assertion is of; empty: it is none, or not signed."""
    parts = assertion.split(".")
    if len(parts) != 3 or not parts[2]:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return str(claims["iss"])
    except (ValueError, TypeError, LookupError):
        return ""


def _json(status: int, told: dict[str, object]) -> HttpAnswer:
    body = Content(json.dumps(told).encode())
    return HttpAnswer(status, {"Content-Type": "application/json", "Content-Length": str(len(body))}, body, len(body))
