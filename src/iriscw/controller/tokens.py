"""Who may call the controller: admins, workers bound to one incarnation, agents bound to one node, attempts of jobs,
and who reads figures.

One secret of the cluster lies in the controller's folder. Everything else follows from it: a worker's token is an
HMAC of the worker's id and incarnation, as a job's is of its attempt, so a restarted controller knows all tokens it
ever gave without a table. A worker's token therefore opens the stream of that one incarnation and of no other, and an
agent's that of agents of its node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import attrs

from iriscw.cloud.model import PodSpec
from iriscw.files import StateUnusable, make_private_folder
from iriscw.rpc.errors import InvalidTokenFile
from iriscw.rpc.tokens import (
    ClusterTokens,
    Principal,
    Role,
    Secret,
    SignedNames,
    digest_of,
    mint_token,
    read_token_file,
    write_token_file,
)

METRICS_VARIABLE = "IRISCW_METRICS_TOKEN_SHA256"
"""Where a worker finds the digest of the token that reads its figures."""

_WORKER_PREFIX = "iww1"
_WORKER_DOMAIN = b"iriscw worker token 1\0"
_AGENT_PREFIX = "iwa1"
_AGENT_DOMAIN = b"iriscw agent token 1\0"
_CALL_PREFIX = "iwc1"
_CALL_DOMAIN = b"iriscw call capability 1\0"


@attrs.frozen
class WorkerPrincipal(Principal):
    """A worker process that proved which incarnation of which worker it is."""

    worker_id: str = ""
    incarnation: str = ""

    def __str__(self) -> str:
        """A short text for logs."""
        return f"worker {self.worker_id}#{self.incarnation}"


@attrs.frozen
class AgentPrincipal(Principal):
    """A node agent that proved of which node it may speak."""

    node: str = ""
    expires_s: int = 0
    """When what proved it ends (wall clock); its stream ends then, and the agent dials anew. 0: never."""

    def __str__(self) -> str:
        """A short text for logs."""
        return f"agent of {self.node}"


class ControllerTokens:
    """The tokens of one controller; :meth:`authenticate` is the callback of its doors.

    Args:
        cluster_secret: what all other tokens are derived from.
        admins: tokens that may do everything a client may.
        metrics: the token that reads figures; None: there is none.
    """

    def __init__(self, cluster_secret: Secret, admins: Iterable[Secret], metrics: Secret | None = None) -> None:
        self._workers = SignedNames(cluster_secret, _WORKER_PREFIX, _WORKER_DOMAIN)
        self._agents = SignedNames(cluster_secret, _AGENT_PREFIX, _AGENT_DOMAIN)
        self._calls = SignedNames(cluster_secret, _CALL_PREFIX, _CALL_DOMAIN)
        self._cluster = ClusterTokens(cluster_secret, admins=admins, metrics=() if metrics is None else (metrics,))
        self.told = {} if metrics is None else {METRICS_VARIABLE: digest_of(metrics)}
        """What workers are told of the token for metrics, in their environment: how to know it, and not what it is."""

    def worker_token(self, worker_id: str, incarnation: str) -> Secret:
        """Derive the token of one incarnation of a worker.

        Raises:
            InvalidArgument: a name is empty or longer than 256 bytes.
        """
        return self._workers.token(worker_id, incarnation)

    def token_of_pod(self, spec: PodSpec) -> Secret:
        """Derive the token of the worker in a pod, as platforms ask for it."""
        return self.worker_token(spec.environment["IRIS_WORKER_ID"], spec.environment["IRIS_INCARNATION"])

    def agent_token(self, node: str) -> Secret:
        """Derive the token of the agents of a node.

        Raises:
            InvalidArgument: the name is empty or longer than 256 bytes.
        """
        return self._agents.token(node)

    def job_token(self, job_id: str, attempt_uid: str) -> Secret:
        """Derive the token of one attempt; see :meth:`ClusterTokens.job_token`."""
        return self._cluster.job_token(job_id, attempt_uid)

    def call_capability(self, job_uid: str) -> Secret:
        """Sign what lets a caller of a hosted actor in; see :mod:`iriscw.controller.doors.hosted`."""
        return self._calls.token(job_uid)

    def callable_job(self, capability: str) -> str:
        """Return the uid of the job whose actor a capability is for; empty: nobody here has signed it."""
        names = self._calls.names(capability)
        return "" if names is None else names[0]

    def authenticate(self, token: str) -> Principal | None:
        """Say who holds ``token``, or None."""
        worker, agent = self._workers.names(token), self._agents.names(token)
        if worker is not None:
            worker_id, incarnation = worker
            return WorkerPrincipal(Role.WORKER, worker_id=worker_id, incarnation=incarnation)
        if agent is not None:
            (node,) = agent
            return AgentPrincipal(Role.AGENT, node=node)
        return self._cluster.authenticate(token)


def keep_token(path: Path) -> Secret:
    """Return the token in the file ``path``; mint and write one (0600) if there is none. Blocks on the disk.

    Raises:
        StateUnusable: the file holds no token, cannot be read or written, or another user could have put it there.
    """
    try:
        make_private_folder(path.parent)
        _check_owner(path.parent)
        if path.exists():
            _check_owner(path)
            return read_token_file(path)
        token = mint_token()
        write_token_file(path, token)
    except InvalidTokenFile as error:
        raise StateUnusable(str(error)) from error
    except OSError as error:
        raise StateUnusable(f"{path}: {error.strerror or error}") from error
    return token


def _check_owner(path: Path) -> None:
    """Refuse what another user could have put there: whoever chose the token may do everything with the cluster.

    A group that may write is let be: Kubernetes gives a volume to a group of the pod's own.
    """
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & stat.S_IWOTH:
        raise StateUnusable(f"{path} belongs to another user, or others can write it: choose another folder")
