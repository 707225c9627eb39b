"""What a controller keeps: its journal, with or without a second copy, and stores of what jobs run, say and return."""

from __future__ import annotations

import contextlib
import functools
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.config.model import ClusterConfig, Durability
from iriscw.controller import settings
from iriscw.controller.errors import OwnershipUnclear
from iriscw.controller.ordered_exit import uncut
from iriscw.controller.stores.archive import RESULTS, STATES, Archive, folders
from iriscw.controller.stores.logs import LogLimits, LogStore
from iriscw.controller.stores.payloads import Payloads
from iriscw.controller.stores.replica_store import open_vault
from iriscw.controller.stores.results import LARGE_BYTES, ResultStore
from iriscw.controller.stores.stores import Stores
from iriscw.files import make_private_folder
from iriscw.journal.replica import Replica
from iriscw.journal.sqlite import SqliteJournal
from iriscw.objects.drivers.checking import NEW_KEY_S, check_store
from iriscw.objects.drivers.opening import StoreFactory, opener
from iriscw.objects.ports import ObjectStore

BUNDLE_PREFIX = "bundles"
"""Of the keys of bundles within the object store."""

JOURNAL_PREFIX = "journal/"
"""Of the keys of the journal's second copy."""


@attrs.frozen
class KeptState:
    """See the module."""

    journal: SqliteJournal
    replica: Replica | None
    stores: Stores

    async def require_writer(self) -> None:
        """Make sure that nobody else has taken the journal over up to now.

        Raises:
            OwnershipUnclear: see there.
            ReplicaUnreachable: the place of the journal's second copy does not answer.
        """
        replica = self.replica
        if replica is not None and not await anyio.to_thread.run_sync(replica.still_writes):
            raise OwnershipUnclear(f"it cannot be told who writes the journal in {replica.vault.where} just now")


async def open_state(
    stack: AsyncExitStack, config: ClusterConfig, folder: Path, bundle_prefix: str, log_limits: LogLimits | None
) -> KeptState:
    """Open everything; ``stack`` closes it.

    Args:
        stack: the controller's.
        config: the cluster's.
        folder: the controller's.
        bundle_prefix: the object store, as an URL; empty: beside the journal.
        log_limits: how much of logs is kept.

    Raises:
        JournalLocked, JournalCorrupt, ReplicaUnreachable: of the journal.
        InvalidStoreUrl, NoSuchStore: the bundle prefix is none.
        StoreAccessDenied, StoreUnreachable, ConditionsIgnored: an object store cannot be used.
    """
    open_store = opener(settings.store_variables(config))
    replica = await _open_replica(stack, config, open_store)
    opening = functools.partial(SqliteJournal.open, folder / "journal", replica=replica)
    journal = await anyio.to_thread.run_sync(opening)
    stack.push_async_callback(uncut, journal.close)  # bounded by the disk: what was accepted is written
    logs = await LogStore.open(folder / "logs", log_limits)
    url = bundle_prefix or _beside_journal(config, folder)
    objects = await stack.enter_async_context(_object_store(url, open_store))
    results = await _open_results(folder, replica, objects if bundle_prefix or replica is not None else None)
    head = "" if replica is None else replica.head.journal
    states = Archive(objects, await anyio.to_thread.run_sync(folders, folder, STATES, head))
    stores = Stores(logs, results, Payloads(objects, ""), objects, BUNDLE_PREFIX, states)
    return KeptState(journal, replica, stores)


async def _open_replica(stack: AsyncExitStack, config: ClusterConfig, open_store: StoreFactory) -> Replica | None:
    controller = config.controller
    if controller.durability is not Durability.REPLICATED or not controller.replica_prefix:
        return None
    vaults = contextlib.ExitStack()
    opening = open_vault(controller.replica_prefix, open_store, JOURNAL_PREFIX)
    vault = await anyio.to_thread.run_sync(vaults.enter_context, opening)
    stack.push_async_callback(uncut, vaults.close)
    return Replica(vault, f"{socket.gethostname()} {uuid.uuid4()}")


async def _open_results(folder: Path, replica: Replica | None, objects: ObjectStore | None) -> ResultStore:
    """Open the store of results: with the journal's second copy all of them go to the object store, too."""
    if objects is None:
        return await ResultStore.open(folder / "results")
    journal = "" if replica is None else replica.head.journal
    archive = Archive(objects, await anyio.to_thread.run_sync(folders, folder, RESULTS, journal))
    return await ResultStore.open(folder / "results", archive, archive_from_bytes=LARGE_BYTES if replica is None else 0)


def _beside_journal(config: ClusterConfig, state: Path) -> str:
    """Return where bundles and run documents are if nobody says it: where they live as long as the jobs do."""
    controller = config.controller
    replicated = controller.durability is Durability.REPLICATED and controller.replica_prefix
    return f"{controller.replica_prefix.rstrip('/')}/objects" if replicated else f"file://{state}/objects"


@contextlib.asynccontextmanager
async def _object_store(url: str, open_store: StoreFactory) -> AsyncIterator[ObjectStore]:
    if url.startswith("file:///"):
        await anyio.to_thread.run_sync(make_private_folder, Path(url.removeprefix("file://")))
    store = open_store(url)
    try:
        await check_store(store, patience_s=NEW_KEY_S)
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()
