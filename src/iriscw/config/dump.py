"""From a configuration to canonical YAML: every key spelled out, in the order of the model.

``parse_config(dump_config(c)) == c`` holds for every configuration, so what a cluster runs with can be shown, kept
and used again.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from iriscw.config.kinds import Section, Sections
from iriscw.config.model import ClusterConfig
from iriscw.config.schema import keys


def dump_config(config: ClusterConfig) -> str:
    """Write a configuration as YAML, with every default spelled out.

    The text holds the values of environments. Some 1000 groups give as much text as a file may have.
    """
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.width = 10_000  # a value stays on its line
    out = StringIO()
    yaml.dump(unstructure(config), out)
    return out.getvalue()


def unstructure(section: Any) -> dict[str, Any]:
    """Return a section of the model as the plain values that YAML would give."""
    plain: dict[str, Any] = {}
    for known in keys(type(section)).values():
        value = getattr(section, known.name)
        if isinstance(known.kind, Section):
            if value is not None:
                plain[known.written] = unstructure(value)
        elif isinstance(known.kind, Sections):
            plain[known.written] = {name: unstructure(group) for name, group in value.items()}
        else:
            plain[known.written] = known.kind.write(value)
    return plain
