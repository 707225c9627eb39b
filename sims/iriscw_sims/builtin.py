"""The features that every simulated world has: /fleet and /jobs, over a simulated cloud, network, workers, agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from iriscw.fleet.actor import FLEET_CAPACITY, fleet_behavior
from iriscw.fleet.model import FleetConfig
from iriscw.fleet.policy import default_policy, default_routing
from iriscw.jobs.actor import JobsConfig, jobs_child
from iriscw.jobs.model import AwaitLogs, WorkerStream
from iriscw.jobs.registry import RegistryLimits
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories
from iriscw.runtime.behavior import ChildSpec
from iriscw.testing.features import SimulatedFeature
from iriscw.testing.simulation import SimOperation
from iriscw_sims.pace import CLUSTER

if TYPE_CHECKING:
    from iriscw_sims.world import World


class SimulatedFleet(SimulatedFeature):
    """``/fleet``; its calls go to the world's cloud."""

    def __init__(self, world: World) -> None:
        self._world = world

    def children(self) -> tuple[ChildSpec, ...]:
        """Return ``/fleet``."""
        world = self._world
        nobody: Any = None
        calls = (CreateNodePool, DeleteNodePool, ListNodePools, CreatePod, DeletePod, ListPods)
        fleet = fleet_behavior(
            FleetConfig(CLUSTER, world.plan.groups, takeover_delay=world.plan.takeover_delay),
            policy=world.policy or default_policy,
            routing=world.routing or default_routing,
            effects=dict.fromkeys(calls, nobody),
            sessions=dict.fromkeys((WatchNodePools, WatchPods), nobody),
        )
        return (ChildSpec("fleet", fleet, capacity=FLEET_CAPACITY),)

    def perform(self, operation: SimOperation) -> bool:
        """Ask the cloud."""
        match operation.effect:
            case WatchNodePools() | WatchPods():
                self._world.cloud.watch(operation)
            case CreateNodePool() | DeleteNodePool() | ListNodePools() | CreatePod() | DeletePod() | ListPods():
                self._world.cloud.request(operation)
            case _:
                return False
        return True


class SimulatedJobs(SimulatedFeature):
    """``/jobs``; its streams go to the world's workers, its suspensions to the world's agents."""

    def __init__(self, world: World) -> None:
        self._world = world

    def children(self) -> tuple[ChildSpec, ...]:
        """Return ``/jobs``."""
        pace = self._world.pace
        limits = RegistryLimits(finished=pace.finished_jobs)
        settings = JobSettings(
            lease_grace_ns=pace.lease_grace,
            logs_bound_ns=pace.logs_bound,
            suspend_limit_ns=pace.suspend_limit,
            copy_limit_ns=min(JobSettings().copy_limit_ns, pace.suspend_limit),
            yield_limit_ns=min(JobSettings().yield_limit_ns, pace.suspend_limit // 2),
            longest_doubt_ns=min(JobSettings().longest_doubt_ns, pace.suspend_limit),
        )
        return (jobs_child(_Nobody(), _Nobody(), JobsConfig(limits=limits, settings=settings), _Nobody()),)

    def perform(self, operation: SimOperation) -> bool:
        """Ask the network, the logs or the agents."""
        match operation.effect:
            case WorkerStream():
                self._world.network.open(operation)
            case AwaitLogs():
                self._world.workers.logs.wait(operation)
            case FreezeAttempt() | StoreCheckpoint() | ThawAttempt() | DropCheckpoint() | FollowRepositories():
                self._world.freezing.perform(operation)
            case _:
                return False
        return True


class _Nobody:
    """Stands where a real assembly has doors, a log store and agents: the simulation carries their work out itself."""

    async def serve(self, session: WorkerStream, port: object) -> None:
        """Never called."""

    async def await_logs(self, effect: AwaitLogs) -> int:
        """Never called."""
        raise NotImplementedError

    async def freeze(self, effect: FreezeAttempt) -> FrozenAttempt:
        """Never called."""
        raise NotImplementedError

    async def store(self, effect: StoreCheckpoint) -> CheckpointStored:
        """Never called."""
        raise NotImplementedError

    async def follow(self, session: FollowRepositories, port: object) -> None:
        """Never called."""

    async def thaw(self, effect: ThawAttempt) -> ThawedAttempt:
        """Never called."""
        raise NotImplementedError

    async def drop(self, effect: DropCheckpoint) -> None:
        """Never called."""
