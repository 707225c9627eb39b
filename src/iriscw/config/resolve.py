"""From what the file says to what holds: defaults, overrides and inheritance.

Who is asked first, for each kind of value:

* timeouts and autoscaler of a group: the group, ``platform``, ``defaults``, the built-in defaults of the platform;
* a slice template: itself, its group, ``platform.coreweave`` for the region;
* all others: the file, the built-in defaults of the platform.

The result is a complete tree: every key of the model has a value, or is a problem and ``INVALID``.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from iriscw.cloud.catalogue import instance_type
from iriscw.config.defaults import CONTROLLER_OF, PLUGIN_SLICE_DEFAULTS, POOL_DEFAULTS, cluster_defaults, group_defaults
from iriscw.config.errors import ProblemKind
from iriscw.config.kinds import Section, Sections
from iriscw.config.model import AcceleratorType, ClusterConfig, PlatformKind, SliceConfig
from iriscw.config.read import INVALID, NONE_CHOSEN, Findings, Path, Tree
from iriscw.config.schema import keys, members

_T = TypeVar("_T")
_LAYERED = ("timeouts", "autoscaler")
_TEMPLATE_PLATFORMS = (*(member.name for member in members(SliceConfig)), NONE_CHOSEN)
_WHOLE = ("env_vars", "task_env", "task_secrets", "attributes", "node_taints", "settings")


def resolve(said: Tree, found: Findings) -> Tree | None:
    """Complete what the file said; None where it is not even clear which platform is meant."""
    kind = _chosen(said.get("platform"))
    if kind is None:
        section = said.get("platform", {})
        if section is not INVALID and NONE_CHOSEN not in section:
            text = "say which platform: `local: {}` or `coreweave: {region: ...}`"
            found.add(ProblemKind.MISSING_KEY, ("platform",), text)
        return None
    controller = _chosen(said.get("controller")) or CONTROLLER_OF[kind]
    full: Tree = overlay(cluster_defaults(kind, controller), said)
    if full["defaults"] is INVALID or full["scale_groups"] is INVALID:
        return None
    for layer in _LAYERED:
        full["platform"][layer] = overlay(full["defaults"][layer], full["platform"].get(layer, {}))
    full["defaults"]["bootstrap"] = _with_address(full, kind)
    full["scale_groups"] = {
        name: group if group is INVALID else _group(full["platform"], kind, group)
        for name, group in full["scale_groups"].items()
    }
    _require(ClusterConfig, full, found, ())
    return full


def overlay(below: Any, above: Any) -> Any:
    """Put one tree over another: what the upper one says wins, key by key; a map of texts is taken whole.

    Where either was refused as a whole, so is the result.
    """
    if below is INVALID or above is INVALID:
        return INVALID
    merged = dict(below)
    for name, said in above.items():
        whole = name in _WHOLE or not isinstance(said, dict)
        merged[name] = said if whole else overlay(below.get(name, {}), said)
    return merged


def structure(model: type[_T], tree: Tree, **values: Any) -> _T:
    """Build the model from a complete tree without problems; ``values`` are attributes that are no keys."""
    for known in keys(model).values():
        value = tree.get(known.name)
        if isinstance(known.kind, Section) and value is not None:
            value = structure(known.kind.model, value)
        elif isinstance(known.kind, Sections):
            within = known.kind.model
            groups = cast("Tree", value).items()
            value = {name: structure(within, group, name=name) for name, group in groups}
        values[known.name] = value
    return model(**values)


def _chosen(section: Any) -> PlatformKind | None:
    if not isinstance(section, dict):
        return None
    for kind in PlatformKind:
        if kind.value in section:
            return kind
    return None


def _with_address(full: Tree, kind: PlatformKind) -> Any:
    """Fill in where workers find a controller behind a Service; a local one knows only when it listens."""
    bootstrap, service = full["defaults"]["bootstrap"], full["controller"]
    service = service.get("coreweave") if isinstance(service, dict) else None
    platform = full["platform"].get("coreweave")
    if not (isinstance(bootstrap, dict) and isinstance(service, dict) and isinstance(platform, dict)):
        return bootstrap
    name, namespace, port = service["service_name"], platform["namespace"], service["port"]
    if bootstrap["controller_address"] != "" or kind is PlatformKind.LOCAL or INVALID in (name, namespace, port):
        return bootstrap
    return {**bootstrap, "controller_address": f"{name}.{namespace}.svc.cluster.local:{port}"}


def _group(platform: Tree, kind: PlatformKind, said: Tree) -> Tree:
    group: Tree = overlay(group_defaults(kind), said)
    if group["accelerator_type"] is AcceleratorType.CPU:
        group.setdefault("accelerator_variant", "cpu")
    group.setdefault("quota_pool", _quota_pool(kind, group))
    for layer in _LAYERED:
        group[layer] = overlay(platform[layer], group.get(layer, {}))
    template = group["slice_template"]
    if template is INVALID:
        return group
    for inherited in ("accelerator_type", "accelerator_variant", "num_vms"):
        template.setdefault(inherited, group.get(inherited, INVALID))
    if not any(name in template for name in _TEMPLATE_PLATFORMS):
        template[kind.value] = {}
    machine = template.get("plugin")
    if isinstance(machine, dict):
        template["plugin"] = {**PLUGIN_SLICE_DEFAULTS, **machine}
    pool = template.get("coreweave")
    if isinstance(pool, dict):
        _count_gpus(group, said, pool)
        template["coreweave"] = _pool(platform, group, pool)
    return group


def _quota_pool(kind: PlatformKind, group: Tree) -> Any:
    """Return the quota that a group shares if the file does not say: clouds have one for each kind of GPU."""
    if kind is PlatformKind.LOCAL or group["accelerator_type"] is not AcceleratorType.GPU:
        return ""
    return group.get("accelerator_variant", "")


def _count_gpus(group: Tree, said: Tree, pool: Tree) -> None:
    """Take a group's GPUs from its pool, if only that says how many there are."""
    resources = said.get("resources", {})
    if "gpus_per_node" in pool and isinstance(resources, dict) and "gpu_count" not in resources:
        group["resources"] = {**group["resources"], "gpu_count": pool["gpus_per_node"]}


def _pool(platform: Tree, group: Tree, said: Tree) -> Tree:
    pool = {**POOL_DEFAULTS, **said}
    above = platform.get("coreweave")
    region = above.get("region", "") if isinstance(above, dict) else ""
    if region:
        pool.setdefault("region", region)
    resources = group["resources"]
    pool.setdefault("gpus_per_node", INVALID if resources is INVALID else resources["gpu_count"])
    is_gpu = group["accelerator_type"] is AcceleratorType.GPU
    pool.setdefault("gpu_class", group.get("accelerator_variant", INVALID) if is_gpu else "")
    node = instance_type(str(pool.get("instance_type", "")))
    pool.setdefault("infiniband", node is not None and bool(node.infiniband))
    pool.setdefault("interruptable", group["slice_template"].get("preemptible", INVALID))
    return pool


def _require(model: type, tree: Tree, found: Findings, path: Path) -> None:
    """Note every key that has no value, and mark it."""
    for known in keys(model).values():
        here = (*path, known.written)
        if known.name not in tree:
            if not (isinstance(known.kind, Section) and known.kind.oneof):
                found.add(ProblemKind.MISSING_KEY, here, f"is missing ({known.doc.rstrip('.')})")
                tree[known.name] = INVALID
        elif isinstance(known.kind, Section) and tree[known.name] is not INVALID:
            _require(known.kind.model, tree[known.name], found, here)
        elif isinstance(known.kind, Sections) and tree[known.name] is not INVALID:
            for name, group in tree[known.name].items():
                if group is not INVALID:
                    _require(known.kind.model, group, found, (*here, name))
