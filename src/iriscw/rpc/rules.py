"""What a method of a service takes, and from whom: data, judged before the message is read.

A service class has its rules as ``method_rules``, by the names of its methods. The role is judged by the head of the
call, the size by the head of the message, and its parts by a walk over its bytes before anything is built
(:mod:`iriscw.rpc.anatomy`). A service without rules is bounded by :class:`~iriscw.rpc.limits.RpcLimits` alone.

Several objects can answer one service together: each is a :class:`ServicePart`, and answers the methods that its rules
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import validators

from iriscw._errors import InvalidArgument
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Principal, Role

DEFAULT_BYTES = 64 << 10
"""Of a question: a reference, a page token, a filter. gRPC's own limit, for messages of all kinds, is 4 MiB."""

DEFAULT_PARTS = 2_000
"""Of a question: 6 ms of decoding at worst."""


@attrs.frozen(kw_only=True)
class Bounds:
    """What a message may take that is received."""

    max_bytes: int = attrs.field(default=DEFAULT_BYTES, validator=validators.gt(0))
    max_parts: int = attrs.field(default=DEFAULT_PARTS, validator=validators.gt(0))
    field_bytes: Mapping[str, int] = attrs.field(factory=dict)
    """Of fields of the message itself, by name: where ``max_bytes`` is what another of them needs."""


@attrs.frozen(kw_only=True)
class MethodRule:
    """Who may call a method, and what each message may take that he sends to it."""

    roles: tuple[Role, ...]
    does: str = ""
    """What callers do with it, in their own words: "list the jobs"; empty: call the method."""
    proven: bool = False
    """Whether callers are also let in whom somebody else vouches for: a token that the door does not know is shown to
    him (:data:`~iriscw.rpc.server_calls.Prove`)."""
    request: Bounds = attrs.field(factory=Bounds)

    def admit(self, principal: Principal, method: str) -> None:
        """Let in those with one of the roles.

        Raises:
            PermissionDenied: the caller has none of them.
        """
        if principal.role not in self.roles:
            allowed = " or ".join(role.value for role in self.roles)
            raise PermissionDenied(f"{principal} may not {self.does or f'call {method}'}: {allowed} may")


MethodRules = Mapping[str, MethodRule]


class ServicePart:
    """A base of service classes that answer some methods of their service: those that ``method_rules`` name."""

    method_rules: MethodRules


def rule_of(service: Any, route: str) -> MethodRule | None:
    """Return the rule of one of a service's methods, by its route; None for a service without rules.

    Raises:
        InvalidArgument: the service has rules, and none for this method.
    """
    rules: MethodRules | None = getattr(service, "method_rules", None)
    if rules is None:
        return None
    name = route.rpartition("/")[2]
    if name not in rules:
        raise InvalidArgument(f"{type(service).__name__} has no rule for {name}")
    return rules[name]
