"""What a network does, in words that hold no secret."""

import asyncio
import errno
import socket
import ssl

import aiohttp
import pytest
from raw_server import TOKEN
from yarl import URL

from iriscw.cloud.drivers.kube.faults import deadline, network, told
from iriscw.cloud.drivers.kube.lines import LineTooLong
from iriscw.cloud.kube.messages import ApiUnreachable
from raised import that

KEY = aiohttp.client_reqrep.ConnectionKey("h", 1, True, True, None, None, None, f"secret-{TOKEN}")


def info():
    url = URL(f"https://h/t/{TOKEN}/")
    return aiohttp.RequestInfo(url, "GET", {"Authorization": TOKEN}, url)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LineTooLong("a line is longer than 7 bytes"), "a line is longer than 7 bytes"),
        (TimeoutError(), "no connection in time"),
        (ConnectionResetError(errno.ECONNRESET, TOKEN), "the connection broke: Connection reset by peer"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, TOKEN)), "no connection: Connection refused"),
        (aiohttp.ClientConnectorError(KEY, socket.gaierror(-2, "Name or service not known")), "no connection: Name or"),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, TOKEN)), "no TLS connection"),
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError(1, TOKEN)), "certificate is not accepted"),
        (aiohttp.ClientHttpProxyError(info(), (), status=407, message=TOKEN), "the proxy refuses: it answered 407"),
        (aiohttp.ClientPayloadError(TOKEN), "the connection broke: ClientPayloadError"),
        (aiohttp.ServerDisconnectedError(TOKEN), "the connection broke"),
        (aiohttp.InvalidURL(TOKEN), "the connection broke: InvalidURL"),
    ],
)
def test_words(error, text):
    """The system's, never a library's: theirs have URLs and headers in them."""
    assert text in told(error)
    counts = {"unreachable": 0}
    with pytest.raises(ApiUnreachable) as unreachable, network(counts):
        raise error
    assert TOKEN not in str(unreachable.value)
    assert unreachable.value.__suppress_context__
    assert counts == {"unreachable": 1}


def test_what_is_no_networks_doing_passes():
    """Bugs are not weather; what was translated already is counted and left alone."""
    counts = {"unreachable": 0}
    with pytest.raises(ZeroDivisionError), network(counts):
        raise ZeroDivisionError
    with pytest.raises(ApiUnreachable, check=that(names="was")), network(counts):
        raise ApiUnreachable("as it was")
    assert counts == {"unreachable": 1}


async def test_a_cancellation_of_somebody_elses():
    """A look-up that another request shared and gave up is a request that failed; our own cancellation passes."""
    import anyio

    counts = {"unreachable": 0}
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    with pytest.raises(ApiUnreachable, check=that(comes_from="faults.network")), network(counts):
        await future
    with anyio.move_on_after(0) as scope, network(counts):
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert counts == {"unreachable": 1}


async def test_a_deadline_says_what_did_not_come():
    """And how long it was waited for."""
    import anyio

    with (
        pytest.raises(ApiUnreachable, check=that(comes_from="faults.deadline", names="0.05")),
        deadline(0.05, "an answer"),
    ):
        await anyio.sleep_forever()
    with deadline(20, "an answer"):
        await anyio.lowlevel.checkpoint()
