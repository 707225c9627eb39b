"""What may happen to a node, at will: power cuts, preemptions, stalls. For demonstrations and tests.

Each function returns once the platform has taken note; what follows for pools and pods is told by their
watches.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence

import attrs

from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalPlatform
from iriscw.cloud.drivers.local.records import PodRecord
from iriscw.cloud.model import Gone
from iriscw.processes.identity import ProcessGone, send_signal
from iriscw.processes.sweep import marked_processes


async def kill_node(platform: LocalPlatform, name: str) -> None:
    """Cut the node's power: its pods fail at once, and the pool boots a new node in its place.

    Raises:
        Gone: there is no such node.
    """
    async with platform.lock:
        await _lose(platform, name)
        await platform.grant()


async def vanish_node(platform: LocalPlatform, name: str) -> None:
    """Take the node away for good, as a cloud does with preempted ones: its pods vanish with it, and the
    pool stays short of a node.

    Raises:
        Gone: there is no such node.
    """
    async with platform.lock:
        for pod in await _lose(platform, name):
            await platform.end_pod(platform.pods[pod.spec.name], 0)


async def pause_node(platform: LocalPlatform, name: str) -> None:
    """Stop the clocks of all the node's processes (SIGSTOP): a node that is so slow that it seems dead.

    Raises:
        Gone: there is no such node.
    """
    _signal_pods(_pods_of(platform, name), signal.SIGSTOP)


async def resume_node(platform: LocalPlatform, name: str) -> None:
    """Undo :meth:`pause_node`.

    Raises:
        Gone: there is no such node.
    """
    _signal_pods(_pods_of(platform, name), signal.SIGCONT)


def _pods_of(platform: LocalPlatform, node: str) -> list[PodRecord]:
    if all(pool.node(node) is None for pool in platform.pools.values()):
        raise Gone(f"there is no node {node!r}")
    return [pod for pod in platform.pods.values() if pod.node == node and not pod.phase.over]


async def _lose(platform: LocalPlatform, name: str) -> list[PodRecord]:
    """Kill all on a node and forget the node."""
    pods = _pods_of(platform, name)
    for pod in pods:
        platform.lives[pod.uid].loss = f"NodeLost: the node {name} is gone"
    _signal_pods(pods, signal.SIGKILL)
    pool = next(pool for pool in platform.pools.values() if pool.node(name) is not None)
    nodes = tuple(node for node in pool.nodes if node.name != name)
    await platform.change_pool(attrs.evolve(pool, nodes=nodes))
    return pods


def _signal_pods(pods: Sequence[PodRecord], number: signal.Signals) -> None:
    for pod in pods:
        for identity in marked_processes({POD_MARKER: pod.uid}):
            with contextlib.suppress(ProcessGone):
                send_signal(identity, number)
