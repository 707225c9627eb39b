"""Whether a store can be used at all: asked once, when it is opened, so that missing access is no surprise later.

Opening a store asks nothing of the service. Who is going to depend on it asks here, and gets an error that names what
is missing, before work is taken on. A denial is waited out for a while if the caller says so: CoreWeave's new access
keys are denied until all of its servers know them.
"""

from __future__ import annotations

import logging
import uuid

import anyio

from iriscw.objects.drivers.failure import NoStoreCredentials, NoSuchBucket
from iriscw.objects.ports import IfAbsent, ObjectExists, ObjectStore, StoreAccessDenied, StoreUnreachable

NEW_KEY_S = 60.0
"""Within which CoreWeave's access keys work: its Terraform provider waits as long."""

AGAIN_S = 2.0
"""Between two tries."""

PROBE = "iriscw-check/"
"""What the keys of objects that are written to try writing begin with."""

log = logging.getLogger(__name__)


class ConditionsIgnored(StoreAccessDenied):
    """The store writes although the condition does not hold. What relies on it (a journal's second copy) must not."""


async def check_store(
    store: ObjectStore, *, writes: bool = False, patience_s: float = 0.0, again_s: float = AGAIN_S
) -> None:
    """Make sure that a store can be used: one request, and three more if it is going to be written to.

    Args:
        store: The store.
        writes: Whether to try a write, that its condition counts, and a deletion.
        patience_s: How long a denial and silence are waited out; the store's own tries come on top.
        again_s: Between two tries.

    Raises:
        NoStoreCredentials: there are none; not waited for.
        NoSuchBucket: there is no bucket of this name; not waited for.
        ConditionsIgnored: see there.
        StoreAccessDenied, StoreUnreachable: the store still refuses, or is still silent.
        StoreFull: it has no room.
    """
    gives_up = anyio.current_time() + patience_s
    while True:
        try:
            await _try(store, writes=writes)
        except (NoStoreCredentials, NoSuchBucket, ConditionsIgnored):
            raise
        except (StoreAccessDenied, StoreUnreachable) as error:
            if anyio.current_time() + again_s > gives_up:
                raise
            log.warning("%r cannot be used yet, trying again: %s", store, error)
        else:
            return
        await anyio.sleep(again_s)


async def _try(store: ObjectStore, *, writes: bool) -> None:
    await store.list(limit=1)
    if not writes:
        return
    key = f"{PROBE}{uuid.uuid4().hex}"
    await store.put(key, b"", condition=IfAbsent())
    try:
        await store.put(key, b"", condition=IfAbsent())
    except ObjectExists:
        return
    else:
        raise ConditionsIgnored(f"{store!r} wrote an object that was to be written only if there is none")
    finally:
        await store.delete(key)
