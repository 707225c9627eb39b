"""Pairs of keys that cannot both be meant.

Each check reads the complete tree and names the key that should change. A value that was refused before takes
part in no check. What only the cloud can know (quota, the types of node it has) is not checked here; but what is
published of a type of node (:mod:`iriscw.cloud.catalogue`) is not to be contradicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from iriscw.cloud.catalogue import GB, RACK_NODES, RACK_TYPES, InstanceType, instance_type
from iriscw.config.errors import ProblemKind
from iriscw.config.kinds import shown
from iriscw.config.model import AcceleratorType, Durability, PlatformConfig, SliceConfig, TaskRuntimeKind
from iriscw.config.quantities import format_cpu, format_duration, format_size
from iriscw.config.read import GROUP_NAME_LIMIT, INVALID, Findings, Path, Tree
from iriscw.config.schema import members

NAMES_LIMIT: Final = 44
"""Characters in the cluster's and a group's name together: with two dashes, 12 random characters and `-9999` for
the node, a worker pod's host name has 63."""


def check(full: Tree, found: Findings) -> None:
    """Note every contradiction in a complete tree."""
    _check_controller(full, found)
    _check_lease(_at(full, "platform", "timeouts"), ("platform", "timeouts"), found)
    _check_agent(full, found)
    _check_secrets(full, found)
    groups = {name: group for name, group in full["scale_groups"].items() if group is not INVALID}
    _check_names(full, groups, found)
    _check_quota_pools(groups, found)
    for name, group in groups.items():
        path = ("scale_groups", name)
        for one in _GROUP_CHECKS:
            one(full, group, path, found)


def known(*values: Any) -> bool:
    """Whether none of the values was refused."""
    return all(value is not INVALID for value in values)


def _at(tree: Any, *names: str) -> Any:
    """Return what is at the end of a path, INVALID where something on the way was refused or is not there."""
    for name in names:
        if not isinstance(tree, dict):
            return INVALID
        tree = tree.get(name, INVALID)
    return tree


def _check_controller(full: Tree, found: Findings) -> None:
    controller, platform = full["controller"], full["platform"]
    if controller is INVALID:
        return
    if "coreweave" not in platform and "coreweave" in controller:
        text = f"the {_name(platform)} platform has no Service for a controller: use `controller: {{local: {{}}}}`"
        found.add(ProblemKind.CONTRADICTION, ("controller", "coreweave"), text)
    address = _at(full, "defaults", "bootstrap", "controller_address")
    if "coreweave" in platform and "local" in controller and address == "":
        text = "workers on CoreWeave cannot find a local controller: set defaults.bootstrap.controller_address"
        found.add(ProblemKind.CONTRADICTION, ("controller", "local"), text)
    port = _at(full, "defaults", "bootstrap", "worker_port")
    if "coreweave" in platform and port == 0:
        text = "a pod's probes need to know the port: 0 is for the local platform"
        found.add(ProblemKind.CONTRADICTION, ("defaults", "bootstrap", "worker_port"), text)
    if controller["durability"] is Durability.REPLICATED and controller["replica_prefix"] == "":
        text = "replicated needs a place for the second copy: set controller.replica_prefix"
        found.add(ProblemKind.CONTRADICTION, ("controller", "durability"), text)


def _check_lease(timeouts: Any, path: Path, found: Findings) -> None:
    lease, timeout = _at(timeouts, "worker_lease"), _at(timeouts, "worker_timeout")
    if known(lease, timeout) and 0 < lease < timeout:
        longer = format_duration(timeout)
        text = f"{format_duration(lease)} is less than worker_timeout, {longer}, until which a worker counts as there"
        found.add(ProblemKind.CONTRADICTION, (*path, "worker_lease"), text)


def _check_group_lease(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    if group["timeouts"] != _at(full, "platform", "timeouts"):  # else it was checked there
        _check_lease(group["timeouts"], (*path, "timeouts"), found)


def _check_agent(full: Tree, found: Findings) -> None:
    if _at(full, "agent", "enabled") is True and "coreweave" not in full["platform"]:
        text = "a DaemonSet needs a cluster: on this machine run `iriscw agent serve`"
        found.add(ProblemKind.CONTRADICTION, ("agent", "enabled"), text)
    _check_agent_keys(full, found)
    bounds = [_at(full, "agent", "retain", name) for name in _RETAIN_BOUNDS]
    if _at(full, "agent", "retain", "per") not in ("", INVALID) and all(bound == 0 for bound in bounds):
        text = "nothing is bounded: set max_checkpoints or max_total_size"
        found.add(ProblemKind.CONTRADICTION, ("agent", "retain", "per"), text)


def _check_agent_keys(full: Tree, found: Findings) -> None:
    """Compare the keys that are named with what they are for. A key that nobody would use is a mistake: whoever named
    it believes that checkpoints are protected.
    """
    repository, secret = _at(full, "agent", "repository"), _at(full, "agent", "repository_keys", "secret")
    named = {name: _at(full, "agent", "repository_keys", name) for name in _KEYS}
    if not known(repository, secret, *named.values()):
        return
    path = ("agent", "repository_keys")
    for name in [name for name, value in named.items() if value and not secret]:
        found.add(ProblemKind.CONTRADICTION, (*path, name), "of which Secret? Set agent.repository_keys.secret")
    if secret and not any(named.values()):
        text = f"no key of it is used: set {', '.join(_KEYS)}, or some of them"
        found.add(ProblemKind.CONTRADICTION, (*path, "secret"), text)
    if secret and not repository:
        text = "there is no repository whose checkpoints it would protect: set agent.repository"
        found.add(ProblemKind.CONTRADICTION, (*path, "secret"), text)
    if not any(named.values()) and _at(full, "agent", "accept_unprotected") is True:
        text = "what has no signature and is not encrypted is fetched anyway where no keys are named"
        found.add(ProblemKind.CONTRADICTION, ("agent", "accept_unprotected"), text)
    if not repository and _at(full, "agent", "storage_secret") not in ("", INVALID):
        text = "there is no repository that it would be for: set agent.repository"
        found.add(ProblemKind.CONTRADICTION, ("agent", "storage_secret"), text)


def _check_names(full: Tree, groups: Tree, found: Findings) -> None:
    seen: dict[str, str] = {}
    for name in groups:
        path = ("scale_groups", name)
        other = seen.setdefault(name.replace("_", "-"), name)
        if other != name:
            text = f"means the same machines as {other}: there '_' becomes '-'"
            found.add(ProblemKind.INVALID_NAME, path, text)
        if len(name) <= GROUP_NAME_LIMIT and known(full["name"]) and len(full["name"]) + len(name) > NAMES_LIMIT:
            text = f"too long: with the cluster's name, {full['name']}, at most {NAMES_LIMIT} characters"
            found.add(ProblemKind.INVALID_NAME, path, text)


def _check_quota_pools(groups: Tree, found: Findings) -> None:
    """Find a quota that is written in two ways: its groups would share nothing. Variants are the cloud's own words."""
    spelt: dict[str, tuple[str, str]] = {}
    named = [
        (name, group) for name, group in groups.items() if known(group["quota_pool"], group["accelerator_variant"])
    ]
    for name, group in sorted(named, key=lambda each: each[1]["quota_pool"] != each[1]["accelerator_variant"]):
        pool = group["quota_pool"]
        theirs, other = spelt.setdefault(pool.casefold(), (pool, name))
        if theirs != pool and pool != group["accelerator_variant"]:
            text = f"{pool} is another quota than {theirs} of {other}: write both alike"
            found.add(ProblemKind.CONTRADICTION, ("scale_groups", name, "quota_pool"), text)


def _check_slices(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    least, most, buffer = group["min_slices"], group["max_slices"], group["buffer_slices"]
    if known(least, most) and least > most:
        text = f"{least} is more than max_slices, {most}"
        found.add(ProblemKind.CONTRADICTION, (*path, "min_slices"), text)
    if known(buffer, most) and buffer > most:
        text = f"{buffer} is more than max_slices, {most}"
        found.add(ProblemKind.CONTRADICTION, (*path, "buffer_slices"), text)


def _check_device(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    gpu_count, device = _at(group, "resources", "gpu_count"), group["accelerator_type"]
    if not known(gpu_count, device):
        return
    if gpu_count > 0 and device is not AcceleratorType.GPU:
        text = f"{gpu_count} GPUs in a group of type {device.value}: say `accelerator_type: gpu`"
        found.add(ProblemKind.CONTRADICTION, (*path, "resources", "gpu_count"), text)
    if gpu_count == 0 and device is AcceleratorType.GPU:
        text = "gpu, but resources.gpu_count is 0: say how many GPUs a node has"
        found.add(ProblemKind.CONTRADICTION, (*path, "accelerator_type"), text)


def _check_template(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    template = group["slice_template"]
    if template is INVALID:
        return
    path = (*path, "slice_template")
    for shared in ("accelerator_type", "accelerator_variant", "num_vms"):
        ours, theirs = template[shared], group[shared]
        if known(ours, theirs) and ours != theirs:
            text = f"{_word(ours)} contradicts the group's {_word(theirs)}: leave it out here"
            found.add(ProblemKind.CONTRADICTION, (*path, shared), text)
    names = [member.name for member in members(SliceConfig)]
    theirs = next(name for name in names if name in full["platform"])
    for ours in names:
        if ours in template and ours != theirs:
            text = f"a {ours} slice on the {theirs} platform: use `{theirs}`, or leave it out"
            found.add(ProblemKind.CONTRADICTION, (*path, ours), text)


def _check_pool(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    pool = _at(group, "slice_template", "coreweave")
    if pool is INVALID or "coreweave" not in full["platform"]:
        return
    path = (*path, "slice_template", "coreweave")
    gpus, gpu_count = pool["gpus_per_node"], _at(group, "resources", "gpu_count")
    if known(gpus, gpu_count) and gpus != gpu_count:
        text = f"{gpus} contradicts the group's resources.gpu_count, {gpu_count}"
        found.add(ProblemKind.CONTRADICTION, (*path, "gpus_per_node"), text)
    gpu_class, variant, device = pool["gpu_class"], group["accelerator_variant"], group["accelerator_type"]
    if known(gpu_class, variant, device) and gpu_class != (variant if device is AcceleratorType.GPU else ""):
        text = f"{shown(gpu_class)} contradicts the group's accelerator_variant, {shown(variant)}"
        found.add(ProblemKind.CONTRADICTION, (*path, "gpu_class"), text)
    instance, nodes = pool["instance_type"], group["num_vms"]
    if known(instance, nodes) and instance.startswith(RACK_TYPES) and nodes % RACK_NODES:
        text = f"{instance} comes in whole racks of {RACK_NODES} nodes: num_vms {nodes} is part of one"
        found.add(ProblemKind.CONTRADICTION, (*path, "instance_type"), text)


def _check_node(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    """Compare what a group promises with what is known of its type of node."""
    pool = _at(group, "slice_template", "coreweave")
    if pool is INVALID or "coreweave" not in full["platform"]:
        return
    node = instance_type(pool["instance_type"]) if known(pool["instance_type"]) else None
    if node is None:
        return
    offered = (
        ("cpu", "cpu_milli", node.vcpu * 1000, format_cpu),
        ("ram", "ram_bytes", node.memory_gb * GB, format_size),
        ("gpu_count", "gpu_count", node.gpus, str),
    )
    for written, ours, has, text_of in offered:
        promised = _at(group, "resources", ours)
        if known(promised) and promised > has:
            text = f"{text_of(promised)} is more than a node of {node.name} has, {text_of(has)}"
            found.add(ProblemKind.CONTRADICTION, (*path, "resources", written), text)
    _check_features(node, group["accelerator_variant"], pool, (*path, "slice_template", "coreweave"), found)


def _check_features(node: InstanceType, variant: Any, pool: Tree, path: Path, found: Findings) -> None:
    gpu_class, infiniband = pool["gpu_class"], pool["infiniband"]
    # A class that contradicts the variant was named above.
    if known(gpu_class) and gpu_class == variant and node.gpu_class not in (None, "", gpu_class):
        text = f"a node of {node.name} has {node.gpu_class}, not the group's accelerator_variant, {gpu_class}"
        found.add(ProblemKind.CONTRADICTION, (*path, "instance_type"), text)
    if infiniband is True and node.infiniband is False:
        text = f"a node of {node.name} has no InfiniBand: its pods would wait for ever"
        found.add(ProblemKind.CONTRADICTION, (*path, "infiniband"), text)


def _check_local_node(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    node = full["platform"].get("local")
    if not isinstance(node, dict) or group["resources"] is INVALID:
        return
    pairs: tuple[tuple[str, str, str, Callable[[int], str]], ...] = (
        ("cpu", "cpu_milli", "node_cpu_milli", format_cpu),
        ("ram", "ram_bytes", "node_memory_bytes", format_size),
    )
    for written, ours, theirs, text_of in pairs:
        promised, budget = group["resources"][ours], node[theirs]
        if known(promised, budget) and promised > budget:
            limit = theirs.rpartition("_")[0]
            text = f"{text_of(promised)} is more than platform.local.{limit}, {text_of(budget)}"
            found.add(ProblemKind.CONTRADICTION, (*path, "resources", written), text)


def _check_runtime(full: Tree, group: Tree, path: Path, found: Findings) -> None:
    kind, path = group["task_runtime"], (*path, "task_runtime")
    is_local = "local" in full["platform"]
    if kind is not TaskRuntimeKind.PROCESS and "plugin" in full["platform"]:
        text = "attempts on the platform of a package are processes of their worker: leave it at process"
        found.add(ProblemKind.CONTRADICTION, path, text)
        return
    if kind is TaskRuntimeKind.DOCKER and not is_local:
        text = "CoreWeave's nodes have containerd and no Docker engine: pod gives each attempt a container of its own"
        found.add(ProblemKind.CONTRADICTION, path, text)
    if kind is not TaskRuntimeKind.POD:
        return
    if is_local:
        text = "the local platform has no pods to run attempts in: docker, or leave it at process"
        found.add(ProblemKind.CONTRADICTION, path, text)
    elif _at(full, "platform", "coreweave", "node_cache_dir") == "":
        text = "workers share their cache with the pods of tasks: set platform.coreweave.node_cache_dir"
        found.add(ProblemKind.CONTRADICTION, path, text)


def _check_secrets(full: Tree, found: Findings) -> None:
    secrets, plain = _at(full, "defaults", "task_secrets"), _at(full, "defaults", "task_env")
    if not known(secrets) or not secrets:
        return
    path = ("defaults", "task_secrets")
    if "coreweave" not in full["platform"]:
        platform = _name(full["platform"])
        text = f"the {platform} platform has no Secrets: set the variables of tasks in task_env, or with each job"
        found.add(ProblemKind.CONTRADICTION, path, text)
    for name in secrets:
        if known(plain) and name in plain:
            found.add(ProblemKind.CONTRADICTION, (*path, name), f"{name} is in task_env, too: keep one of them")


def _name(platform: Tree) -> str:
    """What the platform is called in messages."""
    return next(member.name for member in members(PlatformConfig) if member.name in platform)


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


_KEYS: Final = ("sign_with", "trust", "encrypt_with", "decrypt_with")
_RETAIN_BOUNDS: Final = ("max_checkpoints", "max_total_size_bytes", "max_checkpoint_size_bytes", "max_age")
_GROUP_CHECKS: Final = (
    *(_check_slices, _check_device, _check_template, _check_pool, _check_node, _check_local_node),
    *(_check_runtime, _check_group_lease),
)
