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
    "SubmitJob": MethodRule(roles=_CLIENTS, does="submit jobs", request=Bounds(max_bytes=5 * MIB, max_parts=10_000)),
    "GetJob": MethodRule(roles=_CLIENTS, does="look at jobs"),
    "ListJobs": MethodRule(roles=_ADMINS, does="list the jobs"),
    "WatchJobs": MethodRule(roles=_ADMINS, does="watch the jobs"),
    "ListTasks": MethodRule(roles=_CLIENTS, does="look at the tasks of jobs"),
    "TerminateJob": MethodRule(roles=_CLIENTS, does="end jobs"),
    "WatchJob": MethodRule(roles=_CLIENTS, does="wait for jobs"),
    "WatchEndpoints": MethodRule(roles=_CLIENTS, does="look where jobs listen"),
    # Cursors of 4 parts and some 30 bytes each: of 2,400 attempts.
    "FetchLogs": MethodRule(
        roles=_CLIENTS, does="read the logs of jobs", request=Bounds(max_bytes=256 * KIB, max_parts=10_000)
    ),
    "GetResults": MethodRule(roles=_CLIENTS, does="read the results of jobs"),
    "PutBundle": MethodRule(
        roles=_CLIENTS, does="send bundles", request=Bounds(max_bytes=CHUNK_BYTES + _ROOM_BYTES, max_parts=16)
    ),
}
"""Of ``ControllerService``: jobs, and what is stored."""

CLUSTER_RULES: MethodRules = {
    "ListSlices": MethodRule(roles=_ADMINS, does="list the slices"),
    "ListPools": MethodRule(roles=_ADMINS, does="list the scale groups"),
    "ReopenPool": MethodRule(roles=_ADMINS, does="reopen scale groups"),
    "GetClusterStatus": MethodRule(roles=_ADMINS, does="ask how the cluster is"),
}

HOSTED_RULES: MethodRules = {
    "WatchHostedActor": MethodRule(roles=_CLIENTS, does="call hosted actors"),
}

NAMES_RULES: MethodRules = {
    "ResolveActors": MethodRule(roles=_CLIENTS, does="find hosted actors"),
}

ACTOR_STATE_RULES: MethodRules = {
    "PutActorState": MethodRule(
        roles=(Role.JOB,), does="keep snapshots", request=Bounds(max_bytes=CHUNK_BYTES + _ROOM_BYTES, max_parts=16)
    ),
    "GetActorState": MethodRule(roles=(Role.JOB,), does="read snapshots"),
}
"""Of a hosted actor about itself."""

COMMAND_RULES: MethodRules = {
    # As a submission's command: 128 KiB in words of which there may be thousands.
    "ExecTask": MethodRule(
        roles=_ADMINS, does="run commands beside tasks", request=Bounds(max_bytes=256 * KIB, max_parts=10_000)
    ),
}

NODE_RULES: MethodRules = {
    "ListNodes": MethodRule(roles=_ADMINS, does="list the nodes"),
    "ListNodeCheckpoints": MethodRule(roles=_ADMINS, does="list the checkpoints"),
    "CheckpointTask": MethodRule(roles=_ADMINS, does="checkpoint tasks"),
    "SuspendTask": MethodRule(roles=_ADMINS, does="suspend tasks"),
    "ResumeTask": MethodRule(roles=_ADMINS, does="resume tasks"),
    "RestoreCheckpoint": MethodRule(roles=_ADMINS, does="restore checkpoints"),
    "DeleteCheckpoint": MethodRule(roles=_ADMINS, does="delete checkpoints"),
    "MoveCheckpoint": MethodRule(roles=_ADMINS, does="move checkpoints"),
    "VerifyCheckpoint": MethodRule(roles=_ADMINS, does="verify checkpoints"),
    "ListRepository": MethodRule(roles=_ADMINS, does="have repositories listed"),
    "WatchOrder": MethodRule(roles=_ADMINS, does="follow orders to nodes"),
    "CancelOrder": MethodRule(roles=_ADMINS, does="cancel orders to nodes"),
    "GetAgentToken": MethodRule(roles=_ADMINS, does="ask for the tokens of agents"),
    "ForgetNode": MethodRule(roles=_ADMINS, does="forget nodes"),
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
                "progress": MAX_HELD_ATTEMPTS * _ROOM_BYTES,
            },
        ),
    ),
    "GetBundle": MethodRule(roles=(Role.WORKER, Role.ADMIN)),
}
