"""What may be meant, and is worth a second look: warnings of a configuration that can be used as it is.

``iriscw config check`` prints them, a controller logs them when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from iriscw.cloud.catalogue import instance_type
from iriscw.config.errors import Problem, ProblemKind
from iriscw.config.model import ClusterConfig, ScaleGroupConfig


def advice(config: ClusterConfig) -> tuple[Problem, ...]:
    """List what is unusual about a configuration, group by group; no entry has a line."""
    return tuple(each for group in config.scale_groups.values() for each in _of_group(group))


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
