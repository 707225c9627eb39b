"""What may be meant, and is worth a second look: warnings of a configuration that can be used as it is.

``iriscw config check`` prints them, a controller logs them when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from iriscw.cloud.catalogue import instance_type
from iriscw.config.errors import Problem, ProblemKind
from iriscw.config.model import ClusterConfig, ScaleGroupConfig


def advice(config: ClusterConfig) -> tuple[Problem, ...]:
    """List what is unusual about a configuration, the groups last; no entry has a line."""
    groups = (each for group in config.scale_groups.values() for each in _of_group(group))
    return (*_of_storage(config), *groups)


def _of_storage(config: ClusterConfig) -> Iterator[Problem]:
    """On CoreWeave, buckets at Amazon are rarely meant: nothing else names the service of a bucket."""
    platform, controller = config.platform.coreweave, config.controller
    if platform is None or platform.object_storage_endpoint:
        return
    for name in ("bundle_prefix", "replica_prefix"):
        if str(getattr(controller, name)).startswith("s3://"):
            text = (
                "without platform.coreweave.object_storage_endpoint this is a bucket of Amazon's, unless the "
                "credentials name a service; CoreWeave's is http://cwlota.com"
            )
            yield Problem(ProblemKind.INVALID_VALUE, f"controller.{name}", 0, text)


def _of_group(group: ScaleGroupConfig) -> Iterator[Problem]:
    pool = group.slice_template.coreweave
    if pool is None:
        return
    path = f"scale_groups.{group.name}"
    key = f"{path}.slice_template.coreweave.instance_type"
    node = instance_type(pool.instance_type)
    if node is None:
        text = f"{pool.instance_type!r} is a type of node that this release does not know: nothing about it is checked"
        yield Problem(ProblemKind.INVALID_VALUE, key, 0, text)
        return
    if group.resources.gpu_count < node.gpus:
        text = (
            f"{group.resources.gpu_count} of the {node.gpus} GPUs of a {node.name} are used; all of them are paid for"
        )
        yield Problem(ProblemKind.INVALID_VALUE, f"{path}.resources.gpu_count", 0, text)
    if node.arm:
        text = f"a {node.name} is an ARM machine: the worker's image and all bundles must be built for arm64"
        yield Problem(ProblemKind.INVALID_VALUE, key, 0, text)
