"""The effects of the cloud, carried out by a platform's drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.effects import (
    CreateNodePool,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    ListNodePools,
    ListPods,
    WatchNodePools,
    WatchPods,
)
from iriscw.cloud.model import NodePool, Pod, WatchEvent
from iriscw.runtime.edge.session import SessionPort
from iriscw.runtime.vocabulary import SECOND

Effects = Mapping[type, Callable[[Any], Awaitable[Any]]]
Sessions = Mapping[type, Callable[[Any, Any], Awaitable[None]]]


@attrs.frozen
class CloudBinding:
    """Each effect of :mod:`iriscw.cloud.effects` as a call of the drivers."""

    drivers: CloudDrivers

    def effects(self) -> Effects:
        """Return the function for each effect."""
        return {
            CreateNodePool: self._create_pool,
            DeleteNodePool: self._delete_pool,
            ListNodePools: self._list_pools,
            CreatePod: self._create_pod,
            DeletePod: self._delete_pod,
            ListPods: self._list_pods,
        }

    def sessions(self) -> Sessions:
        """Return the function for each watch."""
        return {WatchNodePools: self._watch_pools, WatchPods: self._watch_pods}

    async def _create_pool(self, effect: CreateNodePool) -> NodePool:
        return await self.drivers.node_pools.create(effect.spec)

    async def _delete_pool(self, effect: DeleteNodePool) -> None:
        await self.drivers.node_pools.delete(effect.name, effect.uid)

    async def _list_pools(self, effect: ListNodePools) -> tuple[NodePool, ...]:
        return await self.drivers.node_pools.list(effect.labels)

    async def _create_pod(self, effect: CreatePod) -> Pod:
        return await self.drivers.pods.create(effect.spec)

    async def _delete_pod(self, effect: DeletePod) -> None:
        await self.drivers.pods.delete(effect.name, effect.uid, effect.grace / SECOND)

    async def _list_pods(self, effect: ListPods) -> tuple[Pod, ...]:
        return await self.drivers.pods.list(effect.labels)

    async def _watch_pools(self, session: WatchNodePools, port: SessionPort) -> None:
        await _pass_on(self.drivers.node_pools.watch(session.labels), port)

    async def _watch_pods(self, session: WatchPods, port: SessionPort) -> None:
        await _pass_on(self.drivers.pods.watch(session.labels), port)


async def _pass_on(watch: AsyncIterator[WatchEvent], port: SessionPort) -> None:
    async with aclosing(watch) as events:  # type: ignore[type-var]  # watches are generators, typed as iterators
        async for event in events:
            await port.send(event)
