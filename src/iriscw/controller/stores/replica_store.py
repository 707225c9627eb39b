"""Where the journal's second copy is: an object store, for a thread that waits.

The journal's writer is a thread, and object stores are asynchronous; so the store lives on an event loop of its own,
in a thread of its own, and does not wait for the controller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from iriscw.journal.replica import NameTaken, ReplicaUnreachable
from iriscw.objects.drivers.checking import NEW_KEY_S, check_store
from iriscw.objects.ports import (
    IfAbsent,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
)

ANSWER_S = 60.0
"""How long one answer may take: a commit of the largest size over a poor line."""

Answer = TypeVar("Answer")


class ObjectVault:
    """A :class:`~iriscw.journal.replica.Vault` in an object store. Made by :func:`open_vault`.

    Args:
        portal: To the store's event loop.
        store: The store.
        where: It, for people.
        prefix: Before all names.
    """

    def __init__(self, portal: BlockingPortal, store: ObjectStore, where: str, prefix: str) -> None:
        self.where = where
        self._portal, self._store, self._prefix = portal, store, prefix

    def put_new(self, name: str, data: bytes) -> None:
        """See the port."""

        async def put() -> None:
            await self._store.put(f"{self._prefix}{name}", data, condition=IfAbsent())

        try:
            self._ask(put)
        except ObjectExists as taken:
            raise NameTaken(f"{name} is taken in {self.where}") from taken

    def get(self, name: str) -> bytes | None:
        """See the port."""

        async def get() -> bytes:
            async with self._store.get(f"{self._prefix}{name}") as reading:
                return b"".join([chunk async for chunk in reading])

        try:
            return self._ask(get)
        except ObjectNotFound:
            return None

    def has(self, name: str) -> bool:
        """See the port."""

        async def stat() -> bool:
            await self._store.stat(f"{self._prefix}{name}")
            return True

        try:
            return self._ask(stat)
        except ObjectNotFound:
            return False

    def names(self, prefix: str) -> list[str]:
        """See the port."""

        async def names() -> list[str]:
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                page = await self._store.list(f"{self._prefix}{prefix}", after=after)
                found += [each.key.removeprefix(self._prefix) for each in page.objects]
                after = page.next_after
            return found

        return self._ask(names)

    def delete(self, name: str) -> None:
        """See the port."""

        async def delete() -> None:
            await self._store.delete(f"{self._prefix}{name}")

        self._ask(delete)

    def _ask(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        async def bounded() -> Answer:
            with anyio.fail_after(ANSWER_S):
                return await ask()

        try:
            return self._portal.call(bounded)
        except (StoreUnreachable, StoreAccessDenied, StoreFull) as error:
            raise ReplicaUnreachable(f"{self.where}: {error}") from error
        except TimeoutError as error:
            raise ReplicaUnreachable(f"{self.where} did not answer for {ANSWER_S:g} s") from error


@contextmanager
def open_vault(url: str, open_store: Callable[[str], ObjectStore], prefix: str = "") -> Iterator[ObjectVault]:
    """Open a place for a second copy, until the block is left. Blocks.

    Args:
        url: Of the object store.
        open_store: Opens it, on the event loop on which it is used.
        prefix: Before all names, such as ``journal/``.

    Raises:
        InvalidStoreUrl, NoSuchStore, StoreAccessDenied, StoreUnreachable: see ``open_store``.
        ConditionsIgnored: the store writes what should not have been written: two controllers could not be kept apart.
    """
    with start_blocking_portal("asyncio", name="iriscw-vault") as portal:

        async def opened() -> ObjectStore:
            return open_store(url)

        store = portal.call(opened)

        async def checked() -> None:
            await check_store(store, writes=True, patience_s=NEW_KEY_S)

        try:
            portal.call(checked)
            yield ObjectVault(portal, store, url, prefix)
        finally:
            portal.call(store.aclose)
