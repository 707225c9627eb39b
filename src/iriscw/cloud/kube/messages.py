"""The seam to Kubernetes: one request, one answer, and what a watch brings.

Theory of operation. Everything that the driver does to an API server is written as requests that it *wants* made, and
as what it makes of the answers; who makes them is not its business. A thin shell does: over HTTP against a real
server, or as events of a simulation, in which requests are lost, land late and are answered by nobody. So what can go
wrong between the driver and the cluster is run through in simulation with the very code that runs in production.

A *call* (:data:`Call`) is a generator: it yields an :class:`ApiRequest` and is sent the :class:`ApiResponse`, or has
:class:`ApiUnreachable` thrown in; it yields a :class:`Pause` and is resumed when that time has passed. It returns what
the port's method returns, or raises what the port's method raises. The shell owns the deadline of the whole call: when
it has passed, the shell closes the generator and raises :class:`~iriscw.cloud.model.Unavailable`, and a request that is
on its way may land all the same.

Answers are Kubernetes' own, whatever their code: a refusal is an answer too (a ``Status`` object). Only silence is an
exception, because whether the request had its effect is then unknown.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import attrs

from iriscw.cloud.model import CloudError
from iriscw.runtime.vocabulary import message

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

T = TypeVar("T")


@message
class ApiRequest:
    """One request. ``path`` has no query; ``body`` is JSON as Python has it, nobody changes it, and none is shown: it
    may be a Secret's.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = attrs.field(default=None, repr=False)
    content_type: str = JSON


@message
class ApiResponse:
    """One answer. ``retry_after`` is what the server asked for in its ``Retry-After``, in ns; None if it did not."""

    code: int
    body: Any
    retry_after: int | None = None


@message
class Pause:
    """Do nothing for ``span`` ns."""

    span: int


class ApiUnreachable(CloudError):
    """No answer: the connection could not be made, broke, or the deadline passed. It may have had its effect."""


Call: TypeAlias = Generator[ApiRequest | Pause, ApiResponse | None, T]
"""What a method of a port does, request by request: see above."""
