"""Google's library for credentials, with its doors that iriscw does not use kept shut. The only module that imports it,
and only from a thread: it is synchronous.

* **Three kinds of files** are taken, each read by the class for its kind: a service account's key, what ``gcloud auth
  application-default login`` writes, and a workload identity whose token is in a file. Kinds that run a program, ask a
  metadata service or another address for a token are refused by name.
* **No secret goes out in plain text**: the addresses that a file names are ``https``, or loopback.
* **Requests** go through a function that is given (:mod:`iriscw.objects.drivers.gs_token`): bounded in time, and the
  same way as the store's.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
from google.auth import identity_pool, transport
from google.auth.exceptions import GoogleAuthError, TransportError
from google.oauth2 import credentials as authorized_user, service_account

from iriscw.objects.drivers.failure import TEXT_LENGTH, AttemptFailed, TryFailure

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"

MAX_FILE_BYTES = 1 << 20
"""Of a file with credentials; a key has 2.4 KiB."""

LONGEST_S = 3600.0
"""For which a token is used if nobody says how long it is good."""

_ADDRESSES = ("token_uri", "token_url", "service_account_impersonation_url")


@attrs.frozen
class Reply:
    """An answer to a request of the library; with the names that it expects."""

    status: int
    headers: Mapping[str, str]
    data: bytes = attrs.field(repr=False)


Send = Callable[[str, str, bytes | None, Mapping[str, str]], Reply]
"""Makes one request: method, address, body, headers. Raises ``OSError``: there was no answer."""


@attrs.frozen
class Token:
    """What requests are signed with."""

    text: str = attrs.field(repr=False)
    lasts_s: float
    """How long it is good from now on."""


class _Requests(transport.Request):  # type: ignore[misc]  # google-auth has no types
    def __init__(self, send: Send) -> None:
        self._send = send

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Reply:
        try:
            return self._send(method, url, body, headers or {})
        except OSError as error:
            raise TransportError(f"{type(error).__name__}: {error}") from error


def fetch_token(path: Path, send: Send) -> Token:
    """Read a file with credentials, and get a token for them. It waits: call it in a thread.

    Raises:
        AttemptFailed: there is no such file, it cannot be used, or no token was given.
    """
    credentials = _read(path)
    try:
        credentials.refresh(_Requests(send))
    except TransportError as error:
        raise AttemptFailed(TryFailure(_said(path, error), certain=True)) from error
    except GoogleAuthError as error:
        if getattr(error, "retryable", False):
            raise AttemptFailed(TryFailure(_said(path, error), certain=True)) from error
        raise AttemptFailed(TryFailure(_said(path, error), status=401, certain=True, passing=False)) from error
    except (OSError, ValueError, TypeError, LookupError) as error:  # an answer that is none, or no token in the file
        raise AttemptFailed(TryFailure(_said(path, error), certain=True)) from error
    text, expiry = str(credentials.token or ""), credentials.expiry
    if not text or not text.isascii() or not text.isprintable():
        raise AttemptFailed(TryFailure(f"{path}: an answer came without a token", certain=True))
    lasts_s = (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() if expiry else LONGEST_S
    return Token(text, lasts_s)


def _read(path: Path) -> Any:
    try:
        return _credentials(json.loads(_content(path)))
    except (OSError, ValueError, TypeError, LookupError, GoogleAuthError) as error:
        raise AttemptFailed(TryFailure(_said(path, error), certain=True, passing=False, credentials=True)) from error


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
    return content


def _credentials(said: Any) -> Any:
    if not isinstance(said, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - what is wrong is the file
    for name in _ADDRESSES:
        _check_address(name, said.get(name))
    match said.get("type"):
        case "service_account":
            return service_account.Credentials.from_service_account_info(said, scopes=[SCOPE])
        case "authorized_user":
            # With the scopes that were granted, which are gcloud's: a refresh may ask for no others.
            return authorized_user.Credentials.from_authorized_user_info(said)
        case "external_account":
            source = said.get("credential_source")
            if (
                not isinstance(source, dict)
                or not isinstance(source.get("file"), str)
                or {*source} - {"file", "format"}
            ):
                raise ValueError("of workload identities, only those are taken whose token is in a file")
            return identity_pool.Credentials.from_info(said, scopes=[SCOPE])
        case kind:
            kinds = "service_account, authorized_user, external_account"
            raise ValueError(f"its type is {str(kind)[:40]!r}; what is taken: {kinds}")


def _check_address(name: str, address: Any) -> None:
    if address is None:
        return
    parts = urlsplit(str(address))
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise ValueError(f"its {name} is not https://...")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _said(path: Path, error: Exception) -> str:
    """Say what went wrong: of Google's errors the text, without the answer that they carry besides."""
    text = str(error.args[0]) if isinstance(error, GoogleAuthError) and error.args else str(error)
    return f"{path}: {type(error).__name__}: {' '.join(text.split())}"[:TEXT_LENGTH]
