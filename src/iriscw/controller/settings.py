"""From the cluster's configuration to what fleet and jobs want to know. Pure.

On the ``local`` platform there are seconds where a real cloud has minutes; the pauses that the configuration does not
name follow the same rule.
"""

from __future__ import annotations

import sys

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.config.model import (
    AcceleratorType,
    ClusterConfig,
    PlatformKind,
    ScaleGroupConfig,
    SliceConfig,
    TaskRuntimeKind,
    TimeoutConfig,
)
from iriscw.controller.heartbeats import Heartbeats
from iriscw.fleet.model import TASK_RUNTIME, FleetConfig, GroupConfig, Timing
from iriscw.jobs.actor import JobsConfig
from iriscw.jobs.registry import RegistryLimits
from iriscw.jobs.scheduling.placement import PYTHON
from iriscw.jobs.settings import JobSettings
from iriscw.objects.drivers.s3_place import place_variables, with_own
from iriscw.runtime.vocabulary import MILLISECOND, SECOND

HEARTBEATS_PER_TIMEOUT = 5
"""Heartbeats within a worker's timeout: one may come late, or with the next."""

LONGEST_HEARTBEAT = 0.4
"""The longest interval of heartbeats, as a part of the timeout, for a large fleet: one may come with the next."""

LEASE_TIMEOUTS = 2
"""A worker without contact ends its attempts itself after so many timeouts, where no lease is configured."""


def fleet_config(config: ClusterConfig, cluster: str = "") -> FleetConfig:
    """Return the fleet's configuration. ``cluster`` says whose the machines are; by default the cluster's name does."""
    local = config.platform.kind is PlatformKind.LOCAL
    groups = tuple(_group(config, group, local=local) for group in config.scale_groups.values())
    takeover = 0 if local else 2 * config.platform.timeouts.api_timeout
    return FleetConfig(cluster=cluster or config.name, groups=groups, takeover_delay=takeover)


def _group(config: ClusterConfig, group: ScaleGroupConfig, *, local: bool) -> GroupConfig:
    template = group.slice_template
    region, instance_type = _place(config, template)
    variant = group.accelerator_variant
    known = {
        "device-type": group.accelerator_type.value,
        "device-variant": variant,
        "region": region,
        "pool": group.name,
        "preemptible": "true" if template.preemptible else "false",
    }
    if group.task_runtime is not TaskRuntimeKind.PROCESS:
        known[TASK_RUNTIME] = group.task_runtime.value
    return GroupConfig(
        name=group.name,
        per_worker=per_worker(group),
        attributes=Attributes({**group.attributes, **known}),
        instance_type=instance_type,
        region=region,
        num_vms=group.num_vms,
        min_slices=group.min_slices,
        max_slices=group.max_slices,
        buffer_slices=group.buffer_slices,
        priority=group.priority,
        quota_pool=group.quota_pool,
        image=worker_image(config),
        compute_class="spot" if template.preemptible else "default",
        timing=_local_timing(config, group) if local else _timing(group),
    )


def _place(config: ClusterConfig, template: SliceConfig) -> tuple[str, str]:
    """Return the region and the type of machine of a group's slices."""
    if template.coreweave is not None:
        return template.coreweave.region, template.coreweave.instance_type
    name, plugin = config.platform.name, template.plugin
    return (name, name) if plugin is None else (plugin.region or name, plugin.instance_type or name)


def has_task_images(config: ClusterConfig) -> bool:
    """Whether the tasks of any group have pods or containers of their own, so that a job may name an image."""
    return any(group.task_runtime is not TaskRuntimeKind.PROCESS for group in config.scale_groups.values())


def has_task_processes(config: ClusterConfig) -> bool:
    """Whether the tasks of any group are processes of their workers, so that packages can be installed for them."""
    return any(group.task_runtime is TaskRuntimeKind.PROCESS for group in config.scale_groups.values())


def pythons(config: ClusterConfig, fleet: FleetConfig, *, started_here: bool) -> tuple[str, ...]:
    """Return the Pythons that workers can have; none if that is known only when there is a worker.

    Args:
        config: the cluster's.
        fleet: its groups, with the attributes that all workers of each have.
        started_here: whether workers are started by this process, with its own Python: on the ``local`` platform.
    """
    if started_here and config.platform.kind is PlatformKind.LOCAL:
        return (f"{sys.version_info.major}.{sys.version_info.minor}",)
    named = [group.attributes.get(PYTHON) for group in fleet.groups]
    return tuple(dict.fromkeys(str(each) for each in named if each)) if named and all(named) else ()


def worker_image(config: ClusterConfig) -> str:
    """Return the worker's image by its full name."""
    return full_image(config, config.defaults.bootstrap.docker_image)


def store_variables(config: ClusterConfig) -> dict[str, str]:
    """Return the variables that say where ``s3://`` is, if the configuration does."""
    platform = config.platform.coreweave
    if platform is None:
        return {}
    return place_variables(platform.object_storage_endpoint, platform.object_storage_region)


def task_environment(config: ClusterConfig) -> dict[str, str]:
    """Return what the tasks of every job find in their environment, beside the secrets."""
    own, secrets = config.defaults.task_env, config.defaults.task_secrets
    found = with_own(store_variables(config), {**secrets, **own})
    return {name: value for name, value in found.items() if name not in secrets}


def task_image(config: ClusterConfig, group: ScaleGroupConfig) -> str:
    """Return the image of a group's tasks by its full name; empty where they have no pods."""
    return full_image(config, group.task_image) if group.task_runtime is TaskRuntimeKind.POD else ""


def full_image(config: ClusterConfig, image: str) -> str:
    """Return an image's full name: with the configured registry in front, unless it names one itself."""
    platform = config.platform.coreweave
    first, slash, _ = image.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    registry = platform.container_registry.rstrip("/") if platform is not None else ""
    return f"{registry}/{image}" if registry and not named else image


def per_worker(group: ScaleGroupConfig) -> Capacity:
    """Return what one worker of a group promises."""
    offered = group.resources
    is_gpu = group.accelerator_type is AcceleratorType.GPU
    return Capacity(
        cpu_milli=offered.cpu_milli,
        memory_bytes=offered.ram_bytes,
        disk_bytes=offered.disk_bytes,
        gpu_count=offered.gpu_count,
        gpu_class=group.accelerator_variant if is_gpu else "",
    )


def _timing(group: ScaleGroupConfig) -> Timing:
    timeouts, scaling = group.timeouts, group.autoscaler
    return Timing(
        requesting_timeout=timeouts.requesting_timeout,
        boot_timeout=timeouts.boot_timeout,
        init_timeout=timeouts.init_timeout,
        startup_grace=scaling.startup_grace_period,
        evaluation_interval=scaling.evaluation_interval,
        scale_up_delay=scaling.scale_up_delay,
        scale_down_delay=scaling.scale_down_delay,
        liveness_timeout=timeouts.worker_timeout,
    )


def _local_timing(config: ClusterConfig, group: ScaleGroupConfig) -> Timing:
    local = config.platform.local
    assert local is not None
    return attrs.evolve(
        _timing(group),
        start_patience=30 * SECOND,
        cordon_timeout=5 * SECOND,
        failure_backoff=1 * SECOND,
        failure_backoff_max=30 * SECOND,
        quota_backoff=5 * SECOND,
        quota_backoff_max=60 * SECOND,
        retry_backoff=SECOND // 5,
        retry_backoff_max=10 * SECOND,
        pod_grace=10 * SECOND,
        deletion_patience=60 * SECOND,
        deletion_retry=5 * SECOND,
        boot_estimate=max(local.boot_delay, SECOND),
    )


def _timeouts(config: ClusterConfig) -> list[TimeoutConfig]:
    return [config.platform.timeouts, *(group.timeouts for group in config.scale_groups.values())]


def worker_timeout(config: ClusterConfig) -> int:
    """Return the longest time without contact after which a worker of any group counts as lost, in ns."""
    return max(each.worker_timeout for each in _timeouts(config))


def heartbeats(config: ClusterConfig) -> Heartbeats:
    """Return how often workers send a sign of life."""
    strictest = min(each.worker_timeout for each in _timeouts(config))
    shortest_ms = max(1, strictest // HEARTBEATS_PER_TIMEOUT // MILLISECOND)
    return Heartbeats(shortest_ms, max(shortest_ms, int(LONGEST_HEARTBEAT * strictest) // MILLISECOND))


def lease_ms(config: ClusterConfig) -> int:
    """Return after how long without the controller a worker ends its attempts: the longest that any group asks for."""
    return max(each.worker_lease or LEASE_TIMEOUTS * each.worker_timeout for each in _timeouts(config)) // MILLISECOND


def jobs_config(config: ClusterConfig, limits: RegistryLimits | None = None) -> JobsConfig:
    """Return the configuration of jobs."""
    local = config.platform.kind is PlatformKind.LOCAL
    given_up_ns = lease_ms(config) * MILLISECOND + worker_timeout(config)  # later than the worker itself does
    settings = JobSettings(lease_grace_ns=given_up_ns)
    stop_grace_ns = 5 * SECOND if local else 10 * SECOND
    return JobsConfig(
        limits=limits or RegistryLimits(),
        settings=settings,
        stop_grace_ns=stop_grace_ns,
        preempts=config.defaults.preemption,
    )
