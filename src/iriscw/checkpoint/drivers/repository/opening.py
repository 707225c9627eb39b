"""Opens the repository that a machine is told to use."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from iriscw.checkpoint.drivers.repository.cutting import PageCuts
from iriscw.checkpoint.drivers.repository.protection import PLAIN, Protection
from iriscw.checkpoint.drivers.repository.repository import ObjectRepository
from iriscw.objects.ports import ObjectStore


def open_repository(
    url: str, page_cuts: PageCuts, opener: Callable[[str], ObjectStore], protection: Protection = PLAIN
) -> ObjectRepository:
    """Open the repository at a URL. Asks nothing of the store yet.

    Args:
        url: of an object store.
        page_cuts: see :class:`ObjectRepository`.
        opener: opens an object store, as :func:`iriscw.objects.drivers.opening.open_store` does.
        protection: the keys of this machine.

    Raises:
        InvalidStoreUrl, NoSuchStore, AmbiguousStore, BrokenStore, StoreExtraMissing: the URL is of no store that can
            be had.
        StoreAccessDenied, StoreUnreachable: the store cannot be opened.
    """
    return ObjectRepository(opener(url), shown_place(url), page_cuts, protection=protection)


def shown_place(url: str) -> str:
    """Return a URL as people see it: without the name and the password that it may have."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
