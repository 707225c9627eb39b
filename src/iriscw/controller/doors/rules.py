"""Who may call which method of the controller, and what each of his messages may take: the whole table.

Judged before a message is read (:mod:`iriscw.rpc.rules`). The methods themselves judge what the roles do not say:
whether an attempt still lives, and which jobs it may see. Messages without bounds of their own are questions of a few
fields. A part takes some 3 us, so that the worst message keeps the controller for 50 ms.
"""

from __future__ import annotations

from iriscw.rpc.rules import Bounds, MethodRule, MethodRules
from iriscw.rpc.tokens import Role

KIB, MIB = 1 << 10, 1 << 20

CHUNK_BYTES = 256 * KIB
"""The wire's bound on one piece of a log, of a result or of a bundle."""

MAX_HELD_ATTEMPTS = 512
"""Attempts of one worker, as workers count them; 256 of them run."""

_ROOM_BYTES = KIB
"""Beside a piece, for what says where it belongs."""

_ADMINS = (Role.ADMIN, Role.LOCAL)
_CLIENTS = (Role.ADMIN, Role.LOCAL, Role.JOB)

CLIENT_RULES: MethodRules = {
    # A callable takes 4 MiB, a command 128 KiB in words of which there may be thousands, an environment 64 KiB.
    "SubmitJob": MethodRule(roles=_CLIENTS, request=Bounds(max_bytes=5 * MIB, max_parts=10_000)),
    "GetJob": MethodRule(roles=_CLIENTS),
    "ListJobs": MethodRule(roles=_ADMINS),
    "ListTasks": MethodRule(roles=_CLIENTS),
    "TerminateJob": MethodRule(roles=_ADMINS),
    "WatchJob": MethodRule(roles=_CLIENTS),
    "WatchEndpoints": MethodRule(roles=_CLIENTS),
    # Cursors of 4 parts and some 30 bytes each: of 2,400 attempts.
    "FetchLogs": MethodRule(roles=_CLIENTS, request=Bounds(max_bytes=256 * KIB, max_parts=10_000)),
    "GetResults": MethodRule(roles=_CLIENTS),
    "PutBundle": MethodRule(roles=_CLIENTS, request=Bounds(max_bytes=CHUNK_BYTES + _ROOM_BYTES, max_parts=16)),
}
"""Of ``ControllerService``: jobs, and what is stored."""

CLUSTER_RULES: MethodRules = {
    "ListSlices": MethodRule(roles=_ADMINS),
    "ListPools": MethodRule(roles=_ADMINS),
    "ReopenPool": MethodRule(roles=_ADMINS),
    "GetClusterStatus": MethodRule(roles=_ADMINS),
}

COMMAND_RULES: MethodRules = {
    # As a submission's command: 128 KiB in words of which there may be thousands.
    "ExecTask": MethodRule(roles=_ADMINS, request=Bounds(max_bytes=256 * KIB, max_parts=10_000)),
}

NODE_RULES: MethodRules = {
    "ListNodes": MethodRule(roles=_ADMINS),
    "ListNodeCheckpoints": MethodRule(roles=_ADMINS),
    "CheckpointTask": MethodRule(roles=_ADMINS),
    "SuspendTask": MethodRule(roles=_ADMINS),
    "ResumeTask": MethodRule(roles=_ADMINS),
    "RestoreCheckpoint": MethodRule(roles=_ADMINS),
    "DeleteCheckpoint": MethodRule(roles=_ADMINS),
    "WatchOrder": MethodRule(roles=_ADMINS),
    "CancelOrder": MethodRule(roles=_ADMINS),
    "GetAgentToken": MethodRule(roles=_ADMINS),
    "ForgetNode": MethodRule(roles=_ADMINS),
}

AGENT_RULES: MethodRules = {
    # A report says 32 things at most; a checkpoint has 64 labels of 5 parts and 512 characters.
    "Connect": MethodRule(
        roles=(Role.AGENT,),
        proven=True,  # on Kubernetes by the API server
        request=Bounds(
            max_bytes=4 * MIB,
            max_parts=14_000,
            field_bytes={"hello": 256 * KIB, "heartbeat": _ROOM_BYTES, "goodbye": 16 * KIB},
        ),
    ),
}

WORKER_RULES: MethodRules = {
    # The set of all that a worker holds: 512 attempts of 30 parts, a named port, and 4 Ki characters of a fault.
    "Connect": MethodRule(
        roles=(Role.WORKER,),
        request=Bounds(
            max_bytes=8 * MIB,
            max_parts=17_000,
            field_bytes={
                "hello": 64 * KIB,
                "heartbeat": _ROOM_BYTES,
                "observed": 128 * KIB,
                "log": CHUNK_BYTES + _ROOM_BYTES,
                "result": CHUNK_BYTES + _ROOM_BYTES,
                "goodbye": 16 * KIB,
            },
        ),
    ),
    "GetBundle": MethodRule(roles=(Role.WORKER, Role.ADMIN)),
}
