"""The instance types that a configuration names: where, and whether they are known here."""

from __future__ import annotations

import attrs

from iriscw.cloud.catalogue import instance_type
from iriscw.config.model import ClusterConfig
from iriscw.doctor.findings import Finding, ok, warning


@attrs.frozen
class Type:
    """An instance type, and where the configuration names it.

    Attributes:
        name: As in ``spec.instanceType``.
        compute_class: ``default`` or ``spot``: they have quotas of their own.
        used: By what, for people.
    """

    name: str
    compute_class: str
    used: str

    @property
    def check(self) -> str:
        """What it is called in findings."""
        return f"type {self.name}{' (spot)' if self.compute_class == 'spot' else ''}"


def types_of(config: ClusterConfig) -> tuple[Type, ...]:
    """Return each type that a configuration names, once for each compute class."""
    used: dict[tuple[str, str], list[str]] = {}
    controller = config.controller.coreweave
    if controller is not None and controller.instance_type:
        used[controller.instance_type, "default"] = ["the controller"]
    for group in config.scale_groups.values():
        pool = group.slice_template.coreweave
        if pool is not None:
            kind = "spot" if group.slice_template.preemptible else "default"
            used.setdefault((pool.instance_type, kind), []).append(f"group {group.name}")
    return tuple(Type(name, kind, ", ".join(by)) for (name, kind), by in used.items())


def look_at_types(config: ClusterConfig) -> list[Finding]:
    """Tell the types that are not in the catalogue: it may be a new one, or a slip of the pen."""
    types = types_of(config)
    known = [each.name for each in types if instance_type(each.name) is not None]
    found = [ok("types", ", ".join(dict.fromkeys(known)))] if known else []
    for each in types:
        if instance_type(each.name) is None:
            advice = "if it is not a slip of the pen it is newer than this catalogue; `--probe` asks CoreWeave"
            found.append(warning(each.check, f"not known here (used by {each.used})", advice))
    return found
