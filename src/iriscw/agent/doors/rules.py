"""Who may call which method of the agent, and what each message may take: whoever opens the socket is its user."""

from __future__ import annotations

from iriscw.rpc.rules import Bounds, MethodRule, MethodRules
from iriscw.rpc.tokens import Role

_LOCAL = (Role.LOCAL,)

NODE_RULES: MethodRules = {
    # 64 labels of 512 characters, and a hook's arguments.
    "Freeze": MethodRule(roles=_LOCAL, request=Bounds(max_bytes=256 << 10)),
    "Thaw": MethodRule(roles=_LOCAL),
    "Move": MethodRule(roles=_LOCAL),
    "Watch": MethodRule(roles=_LOCAL),
    "Cancel": MethodRule(roles=_LOCAL),
    "ListOperations": MethodRule(roles=_LOCAL),
    "List": MethodRule(roles=_LOCAL),
    "Remove": MethodRule(roles=_LOCAL),
    "Capabilities": MethodRule(roles=_LOCAL),
}

SHIM_RULES: MethodRules = {
    "Checkpoint": MethodRule(roles=_LOCAL),
    "Restore": MethodRule(roles=_LOCAL),
    "MigrateStorage": MethodRule(roles=_LOCAL),
    "CheckpointContainer": MethodRule(roles=_LOCAL),
    "RestoreContainer": MethodRule(roles=_LOCAL),
    "ContainerOperations": MethodRule(roles=_LOCAL),
}
