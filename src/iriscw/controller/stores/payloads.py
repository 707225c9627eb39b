"""What jobs run, kept outside of their records: entrypoints in the object store, named by their hash.

The journal holds facts, not data: a job's record has the SHA-256 of its *run document*, an encoded
``TaskSpecification`` of which only the entrypoint, the bundle, the image, ``freezable`` and the setup are set. It lies
at ``<prefix>/payloads/<sha256>``, was written before the job was accepted, and is put together with the rest of the
specification when a worker is told to run the job.
"""

from __future__ import annotations

import collections
import hashlib
import shlex

from iriscw.controller.errors import SubmissionTooLarge
from iriscw.jobs.model import Entrypoint, EntrypointKind
from iriscw.objects.ports import IfAbsent, ObjectExists, ObjectStore, StoreUnreachable
from iriscw.proto.iriscw.v1 import Entrypoint as WireEntrypoint, Setup, TaskSpecification

MAX_DOCUMENT_BYTES = 8 << 20
"""The wire's bound on a specification."""

MAX_NAME_CHARS = 1 << 20
"""Of what a job is said to run: what our client lets a command have (128 KiB), quoted. A status is one message."""

CACHE_BYTES = 64 << 20
"""Documents that were read lately: a job's tasks start on many workers within seconds."""


class Payloads:
    """The run documents of one controller.

    Args:
        store: where they lie.
        prefix: of their keys.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._cache: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        self._cached_bytes = 0

    async def keep(
        self,
        entrypoint: WireEntrypoint,
        bundle_id: str,
        image: str = "",
        *,
        freezable: bool = False,
        setup: Setup | None = None,
    ) -> Entrypoint:
        """Store what a job runs; give what its record says of it.

        Raises:
            SubmissionTooLarge: it is larger than a specification may be.
            StoreAccessDenied, StoreUnreachable, StoreFull: see ``ObjectStore.put``.
        """
        run = TaskSpecification(
            entrypoint=entrypoint, bundle_id=bundle_id, image=image, freezable=freezable, setup=setup
        )
        document = bytes(run)
        if len(document) > MAX_DOCUMENT_BYTES:
            raise SubmissionTooLarge(f"the entrypoint takes {len(document)} bytes, more than {MAX_DOCUMENT_BYTES}")
        sha256 = hashlib.sha256(document).hexdigest()
        if sha256 not in self._cache:
            try:
                await self._store.put(self._key(sha256), document, condition=IfAbsent())
            except ObjectExists:
                pass
            self._remember(sha256, document)
        called = entrypoint.callable
        if called is None:
            return Entrypoint(EntrypointKind.COMMAND, sha256)
        return Entrypoint(EntrypointKind.CALLABLE, sha256, called.python_version)

    async def load(self, sha256: str) -> TaskSpecification:
        """Return a run document.

        Raises:
            ObjectNotFound: the store has lost it.
            StoreAccessDenied, StoreUnreachable: see ``ObjectStore.get``; damage counts as unreachable.
        """
        document = self._cache.get(sha256)
        if document is None:
            async with self._store.get(self._key(sha256)) as reading:
                document = b"".join([chunk async for chunk in reading])
            if hashlib.sha256(document).hexdigest() != sha256:
                raise StoreUnreachable(f"the object {self._key(sha256)} is damaged")
            self._remember(sha256, document)
        else:
            self._cache.move_to_end(sha256)
        return TaskSpecification.parse(document)

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}/payloads/{sha256}".lstrip("/")

    def _remember(self, sha256: str, document: bytes) -> None:
        self._cache[sha256] = document
        self._cached_bytes += len(document)
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= len(oldest)


def display_name(document: TaskSpecification) -> str:
    """Say what a job runs: a callable's name, or a command as a shell would take it, all of it."""
    entrypoint = document.entrypoint
    if entrypoint is None:
        return ""
    if entrypoint.callable is not None:
        return entrypoint.callable.display_name
    return shlex.join(entrypoint.command.argv)[:MAX_NAME_CHARS] if entrypoint.command is not None else ""
