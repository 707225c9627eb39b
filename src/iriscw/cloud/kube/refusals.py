"""What a refusal of the API server means: Status and code in, an error of the port out.

Theory of operation. Kubernetes says most with the code, but 403 says three things: the credentials do not allow it,
a quota is used up, or a policy (an admission plugin or webhook) does not accept the object. Only the text tells them
apart. There is one sentence for rights, which authorizers share (``User "..." cannot VERB``), and as many for objects
as there are plugins: so what *is forbidden* for another reason is about the object. Whatever is not understood is
``Unavailable`` with the server's own words: repeating is harmless, and people read why.

Which errors a method may raise is its port's contract; :func:`narrowed` folds the others.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.model import (
    CloudError,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw.runtime.vocabulary import SECOND

MAX_TEXT = 1000
"""Characters of a server's message that are kept: it ends in states and traces. Longer ones quote whole objects."""

MAX_RETRY_AFTER = 3600 * SECOND
"""What a server may ask for; more is taken for a mistake of a proxy."""

QUOTA_WORDS = ("exceeded quota", "quota exceeded", "insufficient quota", "over quota")
"""``exceeded quota: NAME, requested: ...`` is the ResourceQuota plugin's; the others are webhooks'."""

NOT_SERVED = "404 page not found"
"""An API server's answer to a path of which it knows nothing: Go's own."""

TERMINATING_WORDS = ("because it is being terminated", "is being terminated")
POLICY_WORDS = ("is forbidden:", "denied the request", "denied request")
"""Admission plugins' and webhooks': about the object, unless it is a denial of rights."""

_RIGHTS = re.compile(r"""\b(user|node) ["'][^\n]*?["'][^\n]{0,200}? (cannot|can not|is attempting to grant) """)
"""A denial of rights: of the authorizers, of the guard of roles, and of the one of nodes."""


@attrs.frozen
class RefusalStatus:
    """A refusal as it was told. ``retry_after`` is in ns, ``None`` if the server did not say."""

    code: int
    reason: str = ""
    text: str = ""
    causes: tuple[str, ...] = ()
    retry_after: int | None = None

    @property
    def expired(self) -> bool:
        """Whether what was asked for (a resource version, a page) is not kept any more."""
        return self.code == 410 or self.reason in ("Expired", "Gone")

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered differently by and by."""
        return self.code in (408, 425, 429) or self.code >= 500


def status_of(code: int, body: Any, retry_after: int | None = None) -> RefusalStatus:
    """Read a refusal, whatever its body is: proxies answer in HTML. Never raises."""
    body = body if isinstance(body, dict) else {}
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    causes = details.get("causes")
    told = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(told, int) and told > 0:
        retry_after = told * SECOND
    return RefusalStatus(
        code=code,
        reason=_text(body.get("reason")),
        text=_text(body.get("message")) or f"the server answered {code}",
        causes=tuple(_text(each.get("reason")) for each in causes if isinstance(each, dict))
        if isinstance(causes, list)
        else (),
        retry_after=None if retry_after is None else min(max(0, retry_after), MAX_RETRY_AFTER),
    )


def status_of_event(body: Any) -> RefusalStatus:
    """Read the Status of a watch's ``ERROR`` event, whose code is inside. Never raises."""
    code = body.get("code") if isinstance(body, dict) else None
    return status_of(code if isinstance(code, int) else 0, body)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."


def answered(response: ApiResponse) -> RefusalStatus:
    """Read the refusal that an answer is."""
    return status_of(response.code, response.body, response.retry_after)


def names_absence(body: Any) -> bool:
    """Tell whether the body of a 404 is an API server's: a Status, or its words for a path that it does not serve.

    Proxies and other servers say 404, too; theirs is no word on whether an object exists (INV-C11).
    """
    if isinstance(body, str):
        return body.strip() == NOT_SERVED
    return isinstance(body, dict) and body.get("kind") == "Status"


def judged(status: RefusalStatus) -> CloudError:
    """Return the error that a refusal is, by code, then by reason and text."""
    match status.code:
        case 401:
            return Forbidden(f"the API does not know these credentials: {status.text}")
        case 403:
            return _forbidden(status)
        case 404:
            return Gone(status.text)
        case 409:
            return Conflict(status.text)
        case 400 | 413 | 415 | 422:
            return InvalidSpec(f"the API does not accept the request: {status.text}")
        case 429:
            return Throttled(f"the API asks for slower calls: {status.text}", status.retry_after or 0)
        case _:
            return Unavailable(f"the API could not answer: {status.text}")


def _forbidden(status: RefusalStatus) -> CloudError:
    text = status.text.lower()
    if "NamespaceTerminating" in status.causes or any(words in text for words in TERMINATING_WORDS):
        return Unavailable(f"the namespace is being deleted: {status.text}")
    if any(words in text for words in QUOTA_WORDS):
        return QuotaExceeded(f"the quota is used up: {status.text}")
    if _RIGHTS.search(text) or text.rstrip().endswith("is forbidden:"):  # an authorizer need not say why
        return Forbidden(f"the credentials do not allow it: {status.text}")
    if any(words in text for words in POLICY_WORDS):
        return InvalidSpec(f"a policy of the cluster does not accept it: {status.text}")
    return Forbidden(f"the credentials do not allow it: {status.text}")


def narrowed(error: CloudError, *allowed: type[CloudError]) -> CloudError:
    """Return ``error`` if it is one of ``allowed``, else ``Unavailable`` with its text: which is always allowed."""
    return error if isinstance(error, (Unavailable, *allowed)) else Unavailable(str(error))
