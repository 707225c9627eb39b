"""The platform ``coreweave`` under the controller: access, identity, drivers, and a token for each worker pod.

Theory of operation. *Identity.* Whose pools and pods are whose stands in their label ``iris-cluster``. Its value is the
uid of the namespace in which the controller lives: two installations never share one, also if both are called
``iris``, and one that was removed and made again is another one. The uid is read once, at the start, and kept in the
state folder: a controller that starts while the API is away goes on with what it knows, and one whose folder belongs to
another namespace says so instead of losing sight of its machines.

*Tokens.* The driver hands each pod its token (:mod:`iriscw.cloud.drivers.kube.handed_tokens`).

This module is imported only when a configuration names the platform.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import attrs

from iriscw.cloud.catalogue import instance_type
from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.drivers import KubeDrivers
from iriscw.cloud.drivers.kube.noticing import Noticing
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.kube.mounts import STORAGE_VARIABLES
from iriscw.cloud.kube.ports import KubeApi
from iriscw.cloud.kube.reviews import AGENT_AUDIENCE, Reviewed, review_token
from iriscw.cloud.kube.settings import GroupSettings, KubeSettings, SecretKey, Taint
from iriscw.cloud.model import Pod, Throttled, Unavailable
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from iriscw.config.model import ClusterConfig, CoreweaveSliceConfig, ScaleGroupConfig
from iriscw.controller.errors import NoSuchNamespace
from iriscw.controller.platforms.agent_proofs import PATIENCE_S, AgentProofs
from iriscw.controller.platforms.notices import PoolNotices
from iriscw.controller.settings import store_variables, task_image, worker_image
from iriscw.controller.tokens import ControllerTokens
from iriscw.files import StateUnusable, write_atomic
from iriscw.objects.drivers.s3_place import with_own
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)

WORKER_COMMAND = ("python", "-m", "iriscw.worker", "serve")
"""What worker pods run; all else they are told in their environment."""

CONFIG_MAP = "iris-cluster-config"
AUTHORITY_SECRET = "iris-ca"  # noqa: S105 - an object's name
AGENT_ACCOUNT = "iris-agent"
"""The service account of node agents."""

REVIEWS_PER_S = 100.0
REVIEWS_AT_ONCE = 200
"""Of agents' tokens, apart from all other requests: strangers who have tokens looked at hold up nothing else."""

IDENTITY_FILE = "namespace-uid"
UID_CHARS = 128
"""Of an object's uid; those of Kubernetes have 36."""


# From the configuration


def kube_settings(config: ClusterConfig, cluster: str, *, tls: bool, plaintext: bool) -> KubeSettings:
    """Return how the driver behaves towards a cluster. Pure.

    Args:
        config: the cluster's.
        cluster: the value of ``iris-cluster``.
        tls: whether the controller's door speaks TLS.
        plaintext: whether it is to be reached without, off loopback.
    """
    platform, bootstrap = config.platform.coreweave, config.defaults.bootstrap
    assert platform is not None
    return KubeSettings(
        cluster=cluster,
        cluster_name=config.name,
        namespace=platform.namespace,
        image=worker_image(config),
        command=WORKER_COMMAND,
        image_pull_secrets=(platform.image_pull_secret,) if platform.image_pull_secret else (),
        environment=with_own({**_storage(config), **store_variables(config)}, bootstrap.env_vars),
        controller_address=_dialled(bootstrap.controller_address, tls=tls),
        worker_port=bootstrap.worker_port,
        cache_dir=bootstrap.cache_dir,
        node_cache_dir=platform.node_cache_dir,
        config_map=CONFIG_MAP,
        storage_secret=platform.storage_secret,
        authority_secret=AUTHORITY_SECRET if tls else "",
        plaintext=plaintext and not tls,
        tokens=True,
        task_secrets={name: _place(text) for name, text in config.defaults.task_secrets.items()},
        priority_class=platform.priority_class,
        health_patience=config.platform.timeouts.worker_health_timeout,
        groups={group.name: _group(config, group) for group in config.scale_groups.values()},
    )


def _dialled(address: str, *, tls: bool) -> str:
    return f"https://{address}" if tls and "://" not in address else address


def _storage(config: ClusterConfig) -> dict[str, str]:
    """Name the files with credentials of the stores that are used: one that is named and absent is an error."""
    used = {urlsplit(url).scheme for url in (config.controller.bundle_prefix, config.controller.replica_prefix)}
    return dict(variable for scheme, variable in STORAGE_VARIABLES.items() if scheme in used)


def _place(text: str) -> SecretKey:
    name, _, key = text.partition("/")
    return SecretKey(name, key)


def _group(config: ClusterConfig, group: ScaleGroupConfig) -> GroupSettings:
    pool = group.slice_template.coreweave
    assert pool is not None, "a group of this platform has a pool"
    node = instance_type(pool.instance_type)
    return GroupSettings(
        infiniband=pool.infiniband,
        gpu_class=pool.gpu_class,
        interruptable=pool.interruptable,
        taints=_taints(pool),
        task_image=task_image(config, group),
        most=None if node is None else node.for_pods,
    )


def _taints(pool: CoreweaveSliceConfig) -> tuple[Taint, ...]:
    split = ((key, text.partition(":")) for key, text in pool.node_taints.items())
    return tuple(Taint(key, value, effect) for key, (value, _, effect) in split)


# Identity


async def cluster_identity(objects: Objects, namespace: str, state_dir: Path) -> str:
    """Return the value of ``iris-cluster``: the namespace's uid, or the one that is remembered if nobody answers.

    Raises:
        NoSuchNamespace: there is none of this name.
        StateUnusable: the state folder belongs to another namespace, or cannot be read or written.
        Forbidden: the credentials do not allow to look.
        Throttled, Unavailable: no answer, and nothing is remembered.
    """
    path = state_dir / IDENTITY_FILE
    known = await anyio.to_thread.run_sync(_remembered, path)
    try:
        found = await objects.get(f"/api/v1/namespaces/{namespace}")
    except (Throttled, Unavailable) as error:
        if not known:
            raise
        log.warning("the Kubernetes API is away; going on as the installation %s: %s", known, error)
        return known
    if found is None:
        raise NoSuchNamespace(f"the cluster has no namespace {namespace!r}: `iriscw manifests --apply` makes it")
    uid = str(found["metadata"].get("uid", ""))
    if known and known != uid:
        raise StateUnusable(
            f"{state_dir} is of another installation: its namespace had the uid {known}, {namespace!r} has {uid}."
            " Its machines would be nobody's. Choose an empty folder to begin anew"
        )
    if not known:
        await anyio.to_thread.run_sync(_remember, path, uid)
    return uid


def _remembered(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(UID_CHARS).strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StateUnusable(f"{path}: {error.strerror or error}") from error


def _remember(path: Path, uid: str) -> None:
    try:
        write_atomic(path, f"{uid}\n".encode())
    except OSError as error:
        raise StateUnusable(f"{path}: {error.strerror or error}") from error


@attrs.frozen
class CoreweaveDrivers:
    """The drivers of a CoreWeave cluster, as the controller uses them.

    Attributes:
        cluster: the value of ``iris-cluster``: whose the objects are.
        notices: tells on pools what becomes of their slices.
        proofs: says which agents hold which tokens; None where there are no agents.
    """

    drivers: KubeDrivers
    cluster: str
    notices: PoolNotices
    proofs: AgentProofs | None = None

    @property
    def node_pools(self) -> NodePoolDriver:
        """The driver of node pools."""
        return self.drivers.node_pools

    @property
    def pods(self) -> PodDriver:
        """The driver of worker pods, which have their tokens."""
        return self.drivers.pods

    def connection(self, pod: str, uid: str) -> Connection:
        """Return the connection to one incarnation of a pod."""
        return self.drivers.connection(pod, uid)

    async def task_connection(self, worker: Pod, attempt_uid: str) -> Connection:
        """Return the connection to the pod that an attempt has of its own."""
        return await self.drivers.task_connection(worker, attempt_uid)


# Node agents


def agent_proofs(api: KubeApi, namespace: str) -> AgentProofs:
    """Return what says which agents of a namespace hold which tokens."""
    settings = KubeSettings(cluster="", qps=REVIEWS_PER_S, burst=REVIEWS_AT_ONCE)
    asking = Caller(api, settings, timeout_s=PATIENCE_S)  # nothing is changed, so there is no fence

    async def review(token: str) -> Reviewed:
        return await asking.carry_out(review_token(settings, token, AGENT_AUDIENCE, asking.rng))

    return AgentProofs(review, f"system:serviceaccount:{namespace}:{AGENT_ACCOUNT}", AGENT_AUDIENCE)


# All of it


@asynccontextmanager
async def open_coreweave(
    config: ClusterConfig,
    tokens: ControllerTokens,
    state_dir: Path,
    *,
    tls: bool,
    plaintext: bool,
    fence: Callable[[], None] = lambda: None,
) -> AsyncIterator[CoreweaveDrivers]:
    """Open the platform.

    Args:
        config: the cluster's.
        tokens: derives those of workers.
        state_dir: remembers whose the cluster is.
        tls: whether the controller's door speaks TLS.
        plaintext: whether it is to be reached without, off loopback.
        fence: called before each request that may change something; raises when this process must not act any more.

    Raises:
        InvalidAccess, InsecureAccess: there is no way to the cluster, or none that can be used.
        NoSuchNamespace, StateUnusable, Forbidden, Throttled, Unavailable: see :func:`cluster_identity`.
    """
    platform = config.platform.coreweave
    assert platform is not None
    named = Path(os.path.expanduser(platform.kubeconfig_path)) if platform.kubeconfig_path else None  # noqa: ASYNC240, PTH111 - reads no disk
    timeout_s = config.platform.timeouts.api_timeout / SECOND
    async with open_api(await find_access(named)) as api:
        anybody = KubeDrivers(api, KubeSettings(cluster=""), timeout_s=timeout_s)
        cluster = await cluster_identity(anybody.objects, platform.namespace, state_dir)
        settings = kube_settings(config, cluster, tls=tls, plaintext=plaintext)
        settings = attrs.evolve(settings, environment={**settings.environment, **tokens.told})
        token = tokens.token_of_pod
        drivers = KubeDrivers(api, settings, timeout_s=timeout_s, fence=fence, worker_token=token)
        proofs = agent_proofs(api, platform.namespace) if config.agent.enabled else None
        noticing = Noticing(drivers.objects.caller)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drivers.remove_tokens)
            tasks.start_soon(noticing.run)
            try:
                yield CoreweaveDrivers(drivers, cluster, PoolNotices(noticing), proofs)
            finally:
                tasks.cancel_scope.cancel()
