"""The client: what its errors mean, and where it looks for credentials."""

import asyncio
import json
from contextlib import AsyncExitStack

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from iriscw.objects.drivers import s3_client
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.s3_client import CREDENTIALS, TROUBLES, judged, new_session, open_client, renew
from iriscw.objects.drivers.s3_place import S3Limits, S3Place

pytestmark = pytest.mark.usefixtures("credentials")

URL = "https://cwobject.com"


def refused(status, code):
    """Return botocore's error for an answer."""
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "PutObject")


@pytest.mark.parametrize(
    ("error", "certain", "passing"),
    [
        (refused(503, "SlowDown"), True, True),
        (refused(500, "InternalError"), False, True),
        (EndpointConnectionError(endpoint_url=URL, error=aiohttp.ClientOSError(104, "reset")), False, True),
        (ConnectTimeoutError(endpoint_url=URL, error="x"), True, True),
        (ReadTimeoutError(endpoint_url=URL, error="x"), False, True),
        (ConnectionClosedError(endpoint_url=URL, error="x"), False, True),
        (aiohttp.ClientPayloadError("torn"), False, True),
        (TimeoutError(), False, True),
        (ConnectionResetError(), False, True),
        (NoCredentialsError(), True, False),
        (ValueError("Invalid endpoint: x"), True, False),
    ],
)
def test_errors(error: Exception, certain: bool, passing: bool) -> None:
    """botocore calls a broken connection by the name of one that was never made; the cause tells them apart."""
    failure = judged(error)
    assert (failure.certain, failure.passing) == (certain, passing)
    assert isinstance(error, (*TROUBLES, ValueError))


def test_a_connection_that_was_never_made() -> None:
    """Has certainly done nothing."""

    class Key:
        ssl, host, port, is_ssl = True, "cwobject.com", 443, True

    cause = aiohttp.ClientConnectorError(Key(), OSError(111, "refused"))
    assert judged(EndpointConnectionError(endpoint_url=URL, error=cause)).certain


def test_a_refused_head_has_no_code() -> None:
    """botocore puts the status into its place."""
    assert judged(refused(404, "404")).code == ""


def test_where_credentials_come_from() -> None:
    """Not from a metadata service, which takes seconds where there is none, and not from programs."""
    found = [each.METHOD for each in new_session().get_component("credential_provider").providers]
    assert found
    assert set(found) <= set(CREDENTIALS)
    assert "iam-role" not in found


def test_a_profile_that_is_not_there(monkeypatch) -> None:
    """Has its error at once."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AttemptFailed) as caught:
        new_session().get_component("credential_provider")
    assert caught.value.failure.credentials


async def test_credentials_that_renew_themselves(monkeypatch, tmp_path) -> None:
    """A container's are botocore's own business."""

    async def give(_, writer):
        told = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": "2999-01-01T00:00:00Z"}
        body = json.dumps(told).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    server = await asyncio.start_server(give, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    async with AsyncExitStack() as stack:
        place = S3Place("bkt", "", "http://127.0.0.1:9", "", "path")
        client, credentials = await open_client(stack, new_session(), place, S3Limits(), {})
        assert client.meta.endpoint_url == "http://127.0.0.1:9"
        assert credentials is None
    server.close()
    await server.wait_closed()


async def test_what_cannot_be_read_again_stays(monkeypatch, caplog) -> None:
    """The old key goes on being refused, by name."""
    credentials = await new_session().get_credentials()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    await renew(credentials)
    assert credentials.access_key == "CWKEY"
    assert "cannot be read again" in caplog.text


@pytest.mark.parametrize(("exceptions", "proxied"), [("10.0.0.0/8", False), ("11.0.0.0/8", True)])
def test_proxies_of_an_endpoint(monkeypatch, exceptions, proxied) -> None:
    """By the rules of all our clients: the library's own know no networks."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert s3_client._proxies("https://10.1.2.3:9000") == ({"https": "http://proxy:3128"} if proxied else {})
