"""A service without generated code: for features whose methods are questions with one answer each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from iriscw.rpc.rules import MethodRule, MethodRules


@attrs.frozen
class UnaryMethod:
    """A method: ``function`` takes a ``request`` and returns a ``reply``, both of them betterproto2 messages."""

    function: Callable[[Any], Awaitable[Any]]
    request: type[Any]
    reply: type[Any]
    rule: MethodRule


class UnaryService:
    """A service of an :class:`~iriscw.rpc.server.RpcServer`.

    Args:
        name: ``package.Service``.
        methods: by name.
    """

    def __init__(self, name: str, methods: Mapping[str, UnaryMethod]) -> None:
        self._name = name
        self._methods = methods
        self.method_rules: MethodRules = {name: method.rule for name, method in methods.items()}

    def __mapping__(self) -> dict[str, Handler]:
        """Return grpclib's table."""
        return {
            f"/{self._name}/{name}": Handler(_answering(each), Cardinality.UNARY_UNARY, each.request, each.reply)
            for name, each in self._methods.items()
        }


def _answering(method: UnaryMethod) -> Callable[[Stream[Any, Any]], Awaitable[None]]:
    async def answer(stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        assert request is not None
        await stream.send_message(await method.function(request))

    return answer
