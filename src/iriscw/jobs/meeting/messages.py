"""Where tasks are reached: what a job is asked about it, and what it publishes."""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class ListEndpoints:
    """Give an :class:`EndpointPage`, of the tasks from ``start`` on, ``limit`` of them at most."""

    start: int
    limit: int


@message
class EndpointRow:
    """Where an attempt that lives is reached; ``ports`` by name, in order."""

    index: int
    uid: str
    host: str
    ports: tuple[tuple[str, int], ...]


@message
class EndpointPage:
    """The answer. ``over`` names tasks of the page that will have none; ``next`` goes into the next question, or is -1.

    ``ended`` is whether the whole job is over.
    """

    rows: tuple[EndpointRow, ...]
    over: tuple[int, ...]
    next: int
    ended: bool


@message
class EndpointsChanged:
    """An attempt of the job is reached elsewhere than it was, or for the first time. Published."""

    job_id: str
