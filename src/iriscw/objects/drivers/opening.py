"""Open an object store by its URL: ``file:///var/lib/iriscw``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, and
whatever schemes installed packages bring.

A package offers a scheme under the entry point group ``iriscw.object_stores``: a function that takes the URL
and gives the store. Its module is imported only when a URL has its scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from iriscw.objects.drivers.errors import (
    AmbiguousStore,
    BrokenStore,
    InvalidStoreUrl,
    NoSuchStore,
    StoreExtraMissing,
    is_installed,
)
from iriscw.objects.ports import ObjectStore
from iriscw.plugs import Plugs

StoreFactory: TypeAlias = Callable[[str], ObjectStore]

NO_VARIABLES: Mapping[str, str] = {}


def open_file_store(url: str) -> ObjectStore:
    """Open ``file:///absolute/path``.

    Raises:
        InvalidStoreUrl: it names a host, or no absolute path.
        StoreAccessDenied, StoreUnreachable: the folder cannot be opened.
    """
    from iriscw.objects.drivers.file import FileObjectStore

    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not path.startswith("/") or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url!r} is not file:///absolute/path")
    return FileObjectStore(Path(path))


def open_s3_store(url: str, below: Mapping[str, str] = NO_VARIABLES) -> ObjectStore:
    """Open ``s3://bucket/prefix``; the environment says where and by whom. Asks nothing of the service yet.

    Args:
        url: The store's.
        below: Variables that say where it is if the environment does not.

    Raises:
        InvalidStoreUrl: the URL, or the endpoint that the environment names, is none.
        StoreExtraMissing: the extra ``s3`` is not installed.
    """
    from iriscw.objects.drivers import s3

    store = s3.open_s3_store(url, below)
    if not is_installed("aiobotocore"):
        raise StoreExtraMissing(
            "s3:// stores need the library aiobotocore: pip install '.[s3]' in a checkout of iriscw"
        )
    return store


def open_gs_store(url: str) -> ObjectStore:
    """Open ``gs://bucket/prefix``; the environment says by whom. Asks nothing of the service yet.

    Raises:
        InvalidStoreUrl: the URL, or the emulator that the environment names, is none.
        StoreExtraMissing: the extra ``gs`` is not installed.
    """
    from iriscw.objects.drivers import gs

    return gs.open_gs_store(url)


def open_store(url: str, given: Mapping[str, StoreFactory] | None = None) -> ObjectStore:
    """Open the store that ``url`` names; ``given`` drivers come before installed ones.

    Raises:
        InvalidStoreUrl: it has no scheme.
        NoSuchStore: no driver takes its scheme; the error lists those there are.
        AmbiguousStore, BrokenStore: several packages offer one, or what one offers cannot be used.
        StoreExtraMissing: its driver needs a library that is not installed.
        StoreAccessDenied, StoreUnreachable: the store cannot be opened.
    """
    scheme = urlsplit(url).scheme
    if not scheme:
        raise InvalidStoreUrl(f"{url!r} has no scheme; a folder is file:///absolute/path")
    known: dict[str, StoreFactory] = {"file": open_file_store, "gs": open_gs_store, "s3": open_s3_store}
    known.update(given or {})
    if scheme in known:
        return known[scheme](url)
    drivers = Plugs(
        group="iriscw.object_stores",
        thing="driver for the scheme",
        kind=FunctionType,
        missing=NoSuchStore,
        ambiguous=AmbiguousStore,
        broken=BrokenStore,
    )
    if scheme not in drivers.names():
        raise NoSuchStore(f"no driver takes the scheme {scheme!r}; there are: {', '.join((*known, *drivers.names()))}")
    store: ObjectStore = drivers.load(scheme)(url)
    return store


def opener(below: Mapping[str, str]) -> StoreFactory:
    """Return :func:`open_store` for a configuration that says where ``s3://`` is; see :func:`open_s3_store`."""
    return partial(open_store, given={"s3": partial(open_s3_store, below=below)})
