"""The port to an API server, for shells that wait: what HTTP needs, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse


class KubeApi(Protocol):
    """How a shell reaches an API server."""

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Make a request, and give the answer, whatever its code.

        Raises:
            ApiUnreachable: there was none.
        """
        ...

    def watch(self, request: ApiRequest) -> AsyncIterator[Mapping[str, Any]]:
        """Return the events of a watch, ``{"type": ..., "object": ...}``, until the server ends it.

        A refusal comes as one event of type ``ERROR`` whose object is the ``Status``, as servers send it themselves
        once the stream has begun. Leaving the iteration closes the connection.

        Raises:
            ApiUnreachable: the connection could not be made, or broke.
        """
        ...
