"""The token that requests to Google are signed with: whose, and until when.

Looked for, in this order: the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names; what ``gcloud auth
application-default login`` has written (in ``CLOUDSDK_CONFIG``, else ``~/.config/gcloud``). A machine's metadata
service is not asked: anywhere but on Google's machines it takes seconds to say nothing, and nobody should be found out
to be somebody.

The file is read again for each token, and when the service refuses one, every 10 s at most: it may be replaced while
iriscw runs. A token is replaced some minutes before it ends; where that fails, the old one is used until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread

from iriscw.objects.drivers.failure import AttemptFailed, TryFailure

if TYPE_CHECKING:
    from iriscw.objects.drivers.gs_credentials import Reply, Token

FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
GCLOUD_FILE = "application_default_credentials.json"

EARLY_S = 300.0
"""Before its end, from when on a token is replaced; Google's last an hour."""

RENEWAL_S = 10.0
"""Between two tries to get one although there is one: what is refused stays so for longer."""

Sender: TypeAlias = "Callable[[str, str, bytes | None, Mapping[str, str]], Coroutine[Any, Any, Reply]]"


class GsTokens:
    """Gives tokens, one at a time.

    Args:
        environment: Says where the file is; read anew each time.
        send: Makes one request; raises ``OSError`` when no answer comes.
        patience_s: For one token, all its requests together.
    """

    def __init__(self, environment: Mapping[str, str], send: Sender, patience_s: float) -> None:
        self._environment, self._send, self._patience_s = environment, send, patience_s
        self._lock = anyio.Lock()
        self._text = ""
        self._ends_at = 0.0
        self._asked_at = -RENEWAL_S

    async def token(self) -> str:
        """Return a token that is good now.

        Raises:
            AttemptFailed: there is none to be had.
        """
        if self._left() > EARLY_S:
            return self._text
        async with self._lock:
            if self._left() > EARLY_S or (self._left() > 0 and self._is_early()):
                return self._text
            try:
                await self._fetch()
            except AttemptFailed:
                if self._left() <= 0:
                    raise
            return self._text

    async def renewed(self, refused: str) -> bool:
        """Tell whether there is another token now than the one that was refused."""
        async with self._lock:
            if self._text == refused and not self._is_early():
                try:
                    await self._fetch()
                except AttemptFailed:
                    return False
            return self._text != refused

    def _left(self) -> float:
        return self._ends_at - anyio.current_time()

    def _is_early(self) -> bool:
        return anyio.current_time() - self._asked_at < RENEWAL_S

    async def _fetch(self) -> None:
        self._asked_at = anyio.current_time()
        try:
            with anyio.fail_after(self._patience_s):
                token = await anyio.to_thread.run_sync(self._fetch_in_thread, abandon_on_cancel=True)
        except TimeoutError as error:
            raise AttemptFailed(TryFailure(f"no token came within {self._patience_s:g} s", certain=True)) from error
        self._text, self._ends_at = token.text, anyio.current_time() + token.lasts_s

    def _fetch_in_thread(self) -> Token:
        # Some 100 milliseconds for the import, in which a loop should do something else.
        from iriscw.objects.drivers.gs_credentials import fetch_token

        def send(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
            return anyio.from_thread.run(self._send, method, url, body, headers)

        return fetch_token(credentials_file(self._environment), send)


def credentials_file(environment: Mapping[str, str]) -> Path:
    """Say which file has the credentials; whether it can be read is found out by whoever does so.

    Raises:
        AttemptFailed: there is none.
    """
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    folder = environment.get("CLOUDSDK_CONFIG") or (
        f"{home}/.config/gcloud" if (home := environment.get("HOME")) else ""
    )
    path = Path(folder, GCLOUD_FILE)
    if folder and path.is_file():
        return path
    said = (
        f"neither {FILE_VARIABLE} nor {path} names credentials of Google's" if folder else f"{FILE_VARIABLE} is not set"
    )
    raise AttemptFailed(TryFailure(said, certain=True, passing=False, credentials=True))
