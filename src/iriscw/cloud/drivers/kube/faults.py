"""What a network does to us, as one error: ``ApiUnreachable``, in words that hold no secret.

*Secrets stay in.* Neither the token nor the server's path, in which some have one, nor a proxy's password is in any
text that leaves: what the libraries say is not passed on, but for the operating system's and OpenSSL's own words.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import anyio
from aiohttp.http_exceptions import HttpProcessingError

from iriscw._errors import is_stray
from iriscw.cloud.drivers.kube.lines import LineTooLong
from iriscw.cloud.kube.messages import ApiUnreachable

NETWORK_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)
"""All that the transport raises because of the world; ``TimeoutError`` is an ``OSError``."""


@contextmanager
def network(counts: dict[str, int]) -> Iterator[None]:
    """Translate what a network does into ``ApiUnreachable``, and count it."""
    try:
        yield
    except ApiUnreachable:
        counts["unreachable"] += 1
        raise
    except (LineTooLong, *NETWORK_ERRORS) as error:
        counts["unreachable"] += 1
        raise ApiUnreachable(told(error)) from None  # the libraries' errors hold URLs and headers
    except asyncio.CancelledError as error:
        if not is_stray(error):
            raise
        counts["unreachable"] += 1
        raise ApiUnreachable("the request was given up inside of the HTTP client") from error


@contextmanager
def deadline(timeout_s: float, what: str) -> Iterator[None]:
    """End what takes too long with ``ApiUnreachable``, which says what did not come."""
    with anyio.move_on_after(timeout_s) as scope:
        yield
    if scope.cancelled_caught:
        raise ApiUnreachable(f"{what} did not come within {timeout_s:g} s")


def hang_up(response: aiohttp.ClientResponse) -> None:
    """Close the connection at once, without a goodbye; one whose answer was read to its end is gone already."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def told(error: BaseException) -> str:
    """Say what a network did, without what a library adds: that has URLs, and headers, in it."""
    match error:
        case LineTooLong():
            return str(error)
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            return f"the server's certificate is not accepted: {getattr(cause, 'verify_message', type(cause).__name__)}"
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as cause):
            return f"no TLS connection: {getattr(cause, 'reason', None) or type(cause).__name__}"
        case aiohttp.ClientConnectorError(os_error=cause):
            return f"no connection: {_reason(cause)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refuses: it answered {error.status}"
        case TimeoutError():
            return "no connection in time"
        case OSError():
            return f"the connection broke: {_reason(error)}"
        case _:
            return f"the connection broke: {type(error).__name__}"


def _reason(error: OSError) -> str:
    """Return the operating system's own words; those of name servers have negative numbers."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else error.strerror) or type(error).__name__
