"""The object stores: opened and used, with what the controller does there.

Theory of operation. Nothing that a store says of itself tells whether it works: an object is written, written again,
read, deleted and looked for. The second writing is what the journal's second copy rests on: it is for a new object
only, so it has to be refused. A store that takes it lets two controllers write the same commit. The object has a random
name below ``doctor/`` and is deleted whatever happens; what cannot be deleted is named.

The store is reached from here, with this machine's credentials: that says everything of its address and its rules,
and of the pods' credentials only as far as they are the same.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import anyio

from iriscw._errors import IriscwError, OperationError
from iriscw.config.model import ControllerVmConfig
from iriscw.doctor.findings import Finding, ok, warning, wrong
from iriscw.objects.drivers.errors import InvalidStoreUrl, NoSuchStore
from iriscw.objects.drivers.failure import NoStoreCredentials
from iriscw.objects.drivers.opening import open_store
from iriscw.objects.ports import (
    IfAbsent,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
)

STORE_S: Final = 60.0
"""For all that is done to one store; an answer takes milliseconds."""

CLEANUP_S: Final = 15.0
"""For deleting the object where something went wrong before."""

FOLDER: Final = "doctor"
CONTENT: Final = b"written by `iriscw doctor`, and to be deleted by it\n"
OTHER_CONTENT: Final = b"what must not be written over it\n"

ELSEWHERE: Final = (
    "a folder belongs to the machine or pod it is on, where it may be fine; what all reach is an s3:// or gs:// one"
)

REPOSITORY_KEY: Final = "agent.repository"

Opener = Callable[[str], ObjectStore]


class StoreMisbehaves(OperationError):
    """A store does not do what it says, or what iriscw needs."""


async def look_at_stores(
    controller: ControllerVmConfig, opener: Opener = open_store, *, repository: str = ""
) -> list[Finding]:
    """Try each store that the configuration names, the agents' ``repository`` too, one finding each."""
    named: dict[str, list[str]] = {}
    said = {"bundle_prefix": controller.bundle_prefix, "replica_prefix": controller.replica_prefix}
    for key, url in {**said, REPOSITORY_KEY: repository}.items():
        if url:
            named.setdefault(url, []).append(key)
    if not named:
        return [ok("storage", "none is configured: bundles are kept beside the journal")]
    return [await look_at_store(url, " and ".join(keys), opener) for url, keys in named.items()]


async def look_at_store(url: str, keys: str, opener: Opener = open_store) -> Finding:
    """Try one store.

    Args:
        url: Where it is.
        keys: Which keys of the configuration name it, for people.
        opener: Opens it.
    """
    check = f"storage {url}"
    if _is_elsewhere(url):
        return warning(check, "there is no such folder on this machine", ELSEWHERE)
    try:
        with anyio.fail_after(STORE_S):
            async with _opened(url, opener) as store:
                await exercise(store)
    except TimeoutError:
        return wrong(check, f"no answer within {STORE_S:g} s", f"look at the address in {keys}, and the network")
    except (IriscwError, OSError) as error:
        return _judge(url, check, keys, error)
    return ok(check, f"{keys}: written, written once only, read and deleted, with this machine's credentials")


@asynccontextmanager
async def _opened(url: str, opener: Opener) -> AsyncIterator[ObjectStore]:
    store = opener(url)
    try:
        yield store
    finally:
        with anyio.move_on_after(CLEANUP_S, shield=True):
            await store.aclose()


async def exercise(store: ObjectStore) -> None:
    """Do with a store what the controller does, and leave nothing there.

    Raises:
        StoreMisbehaves: it does not do what is needed; the text says what.
        StoreAccessDenied, StoreFull, StoreUnreachable: see the port.
    """
    key = f"{FOLDER}/{secrets.token_hex(8)}"
    try:
        denied = await _write_once(store, key)
        if denied is None:
            await _read_back(store, key)
            await store.delete(key)
    except BaseException:
        await _clean_up(store, key)
        raise
    if denied is not None:  # nothing can be left, so nothing is deleted
        raise denied
    try:
        await store.stat(key)
    except ObjectNotFound:
        return
    raise StoreMisbehaves(f"{key} is there after it was deleted")


async def _write_once(store: ObjectStore, key: str) -> StoreAccessDenied | None:
    """Write the object, and see that it is not written over. Give the denial if nothing can have been written."""
    try:
        await store.put(key, CONTENT, condition=IfAbsent())
    except StoreAccessDenied as error:
        try:
            await store.put(key, CONTENT)
        except StoreAccessDenied as denied:
            return denied
        raise StoreMisbehaves(f"conditional writes are not supported: {error}") from error
    except StoreUnreachable as error:
        await store.put(key, CONTENT)  # if this works, it was the condition
        raise StoreMisbehaves(f"conditional writes are not supported: {error}") from error
    try:
        await store.put(key, OTHER_CONTENT, condition=IfAbsent())
    except ObjectExists:
        return None
    raise StoreMisbehaves("conditional writes are not supported: an object that was there was written over")


async def _read_back(store: ObjectStore, key: str) -> None:
    async with store.get(key) as reading:
        read = b"".join([chunk async for chunk in reading])
    if read != CONTENT:
        raise StoreMisbehaves("what is read is not what was written")


async def _clean_up(store: ObjectStore, key: str) -> None:
    """Delete the object after a failure, which is what is told; that this failed, too, adds a note to it."""
    with anyio.move_on_after(CLEANUP_S, shield=True):
        try:
            await store.delete(key)
        except (IriscwError, OSError) as error:
            raise StoreMisbehaves(f"{key} may be left there, since it cannot be deleted: {error}") from error


def _is_elsewhere(url: str) -> bool:
    """Tell whether a store is a folder that is not here: opening it would make it, in the wrong place."""
    parts = urlsplit(url)
    return parts.scheme == "file" and not parts.netloc and not Path(unquote(parts.path)).is_dir()


def _judge(url: str, check: str, keys: str, error: Exception) -> Finding:
    text = " ".join(str(error).split()) or type(error).__name__
    match error:
        case StoreAccessDenied() | StoreUnreachable() if urlsplit(url).scheme == "file":
            return warning(check, f"it cannot be used from here: {text}", ELSEWHERE)
        case StoreAccessDenied() if keys == REPOSITORY_KEY:  # whoever asks need not be who may
            advice = "the agents may have credentials of their own (agent.storage_secret): look at their log, too"
            return warning(check, f"it cannot be used from here: {text}", advice)
        case NoStoreCredentials():
            advice = f"give them ({_credentials_of(url)}); pods may have others"
            return wrong(check, f"there are no credentials here: {text}", advice)
        case StoreAccessDenied():
            advice = f"look at the credentials ({_credentials_of(url)}), and what they may do there"
            return wrong(check, f"access is denied: {text}", advice)
        case StoreUnreachable() if urlsplit(url).scheme == "gs":
            advice = "look at the network and its proxy (HTTPS_PROXY), and at STORAGE_EMULATOR_HOST if that is set"
            return wrong(check, f"it does not answer: {text}", advice)
        case StoreUnreachable():
            advice = (
                "look at the endpoint (platform.coreweave.object_storage_endpoint), the region and the addressing; "
                "outside of CoreWeave set AWS_ENDPOINT_URL_S3=https://cwobject.com"
            )
            return wrong(check, f"it does not answer: {text}", advice)
        case StoreFull():
            return wrong(check, f"it has no room: {text}", "make room, or raise its quota")
        case InvalidStoreUrl():
            return wrong(check, text, f"write {keys} as s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        case NoSuchStore():
            return wrong(check, text, "install what brings the driver")
        case StoreMisbehaves():
            return wrong(check, text, f"use another store for {keys}")
        case _:
            return wrong(check, f"{type(error).__name__}: {text}", f"look at {keys}")


def _credentials_of(url: str) -> str:
    if urlsplit(url).scheme == "gs":
        return "the file that GOOGLE_APPLICATION_CREDENTIALS names"
    return "AWS_* or the shared credentials file"
