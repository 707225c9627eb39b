"""The S3 client: aiobotocore with its traps disarmed. The only module that imports it, and only from a thread.

* **One attempt is one request.** Neither botocore nor aiohttp repeats anything: aiohttp by itself sends a PUT again
  when a connection that was kept breaks, and then a write that may be done once has been tried twice without anybody
  knowing. Whoever repeats must know what came of it before (:mod:`iriscw.objects.drivers.s3_connection`).
* **No Expect: 100-continue**, with which a silent server is waited for without any time limit.
* **A body is hashed once**, and not on the loop: its SHA-256 is part of the signature, over HTTPS as well, and all
  servers check it. No checksum trailers, which not all servers take, and no MD5 digest beside it but where a bucket
  asks for one.
* **Nothing blocks the loop**: data files of botocore and certificates are read in threads.
* **Credentials** come from the environment and from shared files. Asking the machine's metadata service (seconds of
  waiting anywhere but on Amazon) and running programs are left out.

What is not caught here is no failure of the world.
"""

from __future__ import annotations

import functools
import logging
import os
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio.to_thread
import botocore.auth
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
)
from botocore.loaders import Loader, create_loader

from iriscw.objects.drivers.failure import TEXT_LENGTH, AttemptFailed, TryFailure
from iriscw.objects.drivers.s3_answers import BEGINNING
from iriscw.objects.drivers.s3_body import HashedBody
from iriscw.objects.drivers.s3_failure import answered
from iriscw.objects.drivers.s3_place import S3Limits, S3Place, wants_virtual
from iriscw.rpc.proxies import proxy_of

CREDENTIALS = (
    "env",
    "shared-credentials-file",
    "config-file",
    "assume-role-with-web-identity",
    "container-role",
)
"""Where botocore may look for credentials; the last two only where variables say so."""

TROUBLES = (BotoCoreError, ClientError, aiohttp.ClientError, OSError, TimeoutError)
"""What a call may raise when the world is at fault; :func:`judged` knows them all."""

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound)
_NEVER_CONNECTED = (ConnectTimeoutError, ProxyConnectionError)

SIGNER = "iriscw-s3v4"
"""Our signer's name among botocore's; a name of its own changes nothing for others in this process."""

log = logging.getLogger(__name__)


class _OneRequestSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore has no types
    """Sends each request once."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False  # there is no other way; a test holds aiohttp to it
        return session


class _Signer(botocore.auth.S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    """Takes the digest of a body that was hashed already."""

    def payload(self, request: Any) -> str:
        body = request.body
        return body.sha256 if isinstance(body, HashedBody) else str(super().payload(request))


botocore.auth.AUTH_TYPE_MAPS[SIGNER] = _Signer


def _our_signer(signature_version: Any, **_: Any) -> str | None:
    return SIGNER if signature_version in {"v4", "s3v4"} else None


def new_session() -> AioSession:
    """Return a session of botocore, with all that a client needs read. It reads files: call it in a thread.

    Raises:
        AttemptFailed: the environment names a profile that is not there.
    """
    session = _session()
    loader = session.get_component("data_loader")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind)
    for name in ("endpoints", "partitions", "_retry"):
        loader.load_data(name)
    return session


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """Return what reads the descriptions of services: megabytes, which all stores of a process read once."""
    return create_loader(data_path)


def _session() -> AioSession:
    session = AioSession()
    try:
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        resolver = session.get_component("credential_provider")
    except TROUBLES as error:
        raise AttemptFailed(judged(error)) from error
    resolver.providers = [each for each in resolver.providers if each.METHOD in CREDENTIALS]
    return session


async def renew(credentials: Any) -> None:
    """Read credentials again; what cannot be read stays as it is."""
    try:
        session = await anyio.to_thread.run_sync(_session)
        read = await session.get_credentials()
    except (*TROUBLES, AttemptFailed) as error:
        log.warning("the credentials for object storage cannot be read again: %s", error)
        return
    if type(read) is AioCredentials:
        credentials.access_key, credentials.secret_key, credentials.token = read.access_key, read.secret_key, read.token


async def open_client(
    stack: AsyncExitStack, session: AioSession, place: S3Place, limits: S3Limits, connector: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a client, which lives as long as the stack, and its credentials if they do not renew
    themselves.

    Args:
        stack: Closes the client.
        session: See :func:`new_session`.
        place: Whose client.
        limits: Of time and connections.
        connector: For aiohttp's connector: a resolver, in tests.

    Raises:
        AttemptFailed: there are no credentials, or the configuration cannot be used.
    """
    try:
        credentials = await session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        client = await _open(stack, session, place, limits, connector)
        if not place.addressing and wants_virtual(client.meta.endpoint_url):  # named by a shared configuration file
            virtual = S3Place(place.bucket, place.prefix, place.endpoint, place.region, "virtual")
            client = await _open(stack, session, virtual, limits, connector)
    except (*TROUBLES, ValueError) as error:  # ValueError: an endpoint that is none
        raise AttemptFailed(judged(error)) from error
    return client, credentials if type(credentials) is AioCredentials else None


async def _open(
    stack: AsyncExitStack, session: AioSession, place: S3Place, limits: S3Limits, connector: dict[str, Any]
) -> Any:
    config = AioConfig(
        connect_timeout=limits.connect_s,
        read_timeout=limits.silence_s,
        max_pool_connections=limits.requests + limits.readings,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="iriscw",
        http_session_cls=_OneRequestSession,
        connector_args={"keepalive_timeout": limits.keepalive_s, **connector},
        s3={"payload_signing_enabled": True, **({"addressing_style": place.addressing} if place.addressing else {})},
        **({"proxies": _proxies(place.endpoint)} if place.endpoint else {}),
    )
    creating = session.create_client(
        "s3", region_name=place.region or None, endpoint_url=place.endpoint or None, config=config
    )
    client = await stack.enter_async_context(creating)
    client.meta.events.register_first("choose-signer.s3", _our_signer)
    client.meta.events.register_last("before-send.s3", _without_expect)
    client.meta.events.register_last("response-received.s3", _keep_beginning)
    return client


def _proxies(endpoint: str) -> dict[str, str]:
    """Return the proxy for an endpoint.

    The library does not know networks in ``NO_PROXY``. For Amazon's names it finds the proxy itself.
    """
    proxy = proxy_of(endpoint, os.environ)
    return {} if proxy is None else {urlsplit(endpoint).scheme: proxy}


def _without_expect(request: Any, **_: Any) -> None:
    if "Expect" in request.headers:
        del request.headers["Expect"]


def _keep_beginning(response_dict: Any, parsed_response: Any, **_: Any) -> None:
    """Keep what an answer begins with, for whoever finds that it is not S3's."""
    body = response_dict.get("body") if response_dict else None
    if isinstance(body, bytes) and body and parsed_response is not None:
        text = body[:TEXT_LENGTH].decode(errors="replace")
        parsed_response.setdefault("ResponseMetadata", {})[BEGINNING] = text


def judged(error: Exception) -> TryFailure:
    """Say what an error of the client means."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(told.get("Code", ""))
        return answered(status, "" if code.isdigit() else code, str(told.get("Message", "")))
    said = f"{type(error).__name__}: {error}"[:TEXT_LENGTH]
    if isinstance(error, _NO_CREDENTIALS):
        return TryFailure(str(error)[:TEXT_LENGTH], certain=True, passing=False, credentials=True)
    if isinstance(error, ValueError):
        return TryFailure(said, certain=True, passing=False)
    if isinstance(error, _NEVER_CONNECTED):
        return TryFailure(said, certain=True)
    # botocore calls it EndpointConnectionError, too, when a connection breaks behind the request.
    cause = error.kwargs.get("error") if isinstance(error, BotoCoreError) else error
    return TryFailure(said, certain=isinstance(cause, aiohttp.ClientConnectorError))
