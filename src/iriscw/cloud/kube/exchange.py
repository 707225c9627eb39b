"""What a watch and its shell say to each other: actions out, events in.

The shell carries out actions in their order, and answers with events that carry the action's token: each ``Fetch``
with one ``Fetched`` or ``FetchFailed`` (it keeps a deadline), each ``OpenWatch`` with ``WatchItem``s and at last one
``WatchEnded``, each ``Wake`` with one ``Woken`` after that time. What it says with a token that is not current any
more is ignored, so nothing has to be cancelled for correctness' sake: ``CloseWatch`` only frees the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.cloud.model import CloudError, WatchEvent
from iriscw.runtime.vocabulary import message

Token: TypeAlias = tuple[str, int]
"""Whose an action is, and its number: never used twice within one watch."""

Thing: TypeAlias = Mapping[str, Any]
"""An object as the API gave it. It has a name, a uid and a resource version."""


# What is wanted of the shell


@message
class FetchObjects:
    """Make a request."""

    token: Token
    request: ApiRequest


@message
class OpenWatch:
    """Open a watch."""

    token: Token
    request: ApiRequest


@message
class CloseWatch:
    """Hang up."""

    token: Token


@message
class WakeAfter:
    """Come back after ``after`` ns."""

    token: Token
    after: int


# What a reflector shows


@message
class Listed:
    """All objects, as they were at one moment. The first thing that is shown; what comes after are differences."""

    objects: tuple[Thing, ...]


@message
class ItemChanged:
    """An object appeared, or is different now."""

    object: Thing


@message
class Vanished:
    """An object is gone, or not selected any more: as it was last seen."""

    object: Thing


@message
class Fail:
    """It is over: what the port's contract says ends a watch."""

    error: CloudError


@message
class Show:
    """An item for whoever asked for the watch."""

    event: WatchEvent


Action: TypeAlias = FetchObjects | OpenWatch | CloseWatch | WakeAfter | Listed | ItemChanged | Vanished | Fail | Show


# What the shell tells


@message
class Fetched:
    """A request was answered, whatever the code."""

    token: Token
    response: ApiResponse


@message
class FetchFailed:
    """A request was not answered."""

    token: Token


@message
class WatchItem:
    """A watch brought something: ``{"type": ..., "object": ...}``."""

    token: Token
    item: Any


@message
class WatchEnded:
    """A watch is over: ended by the server, or, with ``error``, broken or never opened."""

    token: Token
    error: bool


@message
class Woken:
    """The time has passed."""

    token: Token


Event: TypeAlias = Fetched | FetchFailed | WatchItem | WatchEnded | Woken
