"""One controller at a time on a Kubernetes cluster (INV-F8): the Lease comes before anything that two would fight over.

The journal is opened by who leads: on a volume that two nodes see, or with its second copy, the later opener would end
the earlier one. The Lease has a connection of its own, so that it is renewed however busy the others are.

This module is imported only when a configuration names a platform with a Lease.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.leading import CannotLead, check_leads, leading
from iriscw.cloud.kube.leadership import Candidate
from iriscw.config.model import CoreweavePlatformConfig
from iriscw.controller.errors import NoSuchNamespace

LEASE = "iris-controller"


def lease_path(namespace: str) -> str:
    """Return where the Lease of the controller in a namespace is."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}"


@asynccontextmanager
async def lead(platform: CoreweavePlatformConfig) -> AsyncIterator[Callable[[], None]]:
    """Wait until this process leads, and lead while the block lasts.

    Gives what is to be called before anything that only the leader may do: it raises when that is somebody else.

    Raises:
        NoSuchNamespace: the cluster has no namespace for the Lease.
        CannotLead: there is no getting at the Lease.
        InvalidAccess, InsecureAccess: there is no way to the cluster, or none that can be used.
        LeadershipLost: out of the block: another controller leads, or nobody could be asked for too long.
    """
    named = Path(os.path.expanduser(platform.kubeconfig_path)) if platform.kubeconfig_path else None  # noqa: ASYNC240, PTH111 - reads no disk
    candidate = Candidate(lease_path(platform.namespace), f"{socket.gethostname()}_{uuid.uuid4()}")
    async with open_api(await find_access(named)) as api, AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(leading(api, candidate))
        except CannotLead as error:
            if not candidate.homeless:
                raise
            text = f"the cluster has no namespace {platform.namespace!r}: `iriscw manifests --apply` makes it"
            raise NoSuchNamespace(text) from error
        yield partial(check_leads, candidate)
