"""How a model class says what its keys are.

The model is the schema: each attribute carries its kind and its meaning as metadata. Reading, completing, writing
and the reference page all walk these keys, so that a key is declared once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from iriscw.config.kinds import KeyKind, Section, Sections

_METADATA = "iriscw.config"

UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "gcp": "gcp is not supported; iriscw runs on coreweave and local",
        "manual": "manual hosts are not supported; iriscw runs on coreweave and local",
    }
)
"""Members of every ``oneof`` that the proto knows and iriscw does not run."""


@attrs.frozen
class Key:
    """One key of a section.

    Args:
        name: the attribute of the model.
        written: the key in the file.
        kind: what it holds.
        doc: what it means.
        otherwise: for the documentation, where the value comes from if it is not said; empty if from the defaults.
    """

    name: str
    written: str
    kind: KeyKind | Section | Sections
    doc: str
    otherwise: str


def key(kind: KeyKind | Section | Sections, doc: str, *, written: str = "", otherwise: str = "", **field: Any) -> Any:
    """Declare an attribute of a model class as a key; ``field`` goes to :func:`attrs.field`."""
    return attrs.field(metadata={_METADATA: (kind, doc, written, otherwise)}, **field)


def oneof(model: type, group: str, doc: str) -> Any:
    """Declare a member of a oneof: a section or None."""
    return key(Section(model, group), doc, default=None)


_KEYS: dict[type, Mapping[str, Key]] = {}
"""What :func:`keys` has found: classes do not change."""


def keys(model: type) -> Mapping[str, Key]:
    """Return a model class's keys by their written name, in the order of the class."""
    if model in _KEYS:
        return _KEYS[model]
    found = {}
    for attribute in attrs.fields(model):
        if _METADATA in attribute.metadata:
            kind, doc, written, otherwise = attribute.metadata[_METADATA]
            name = attribute.name
            found[written or name] = Key(name, written or name, kind, doc, otherwise)
    return _KEYS.setdefault(model, MappingProxyType(found))


def members(model: type) -> tuple[Key, ...]:
    """Return the keys of a class's oneof; empty if it has none."""
    return tuple(known for known in keys(model).values() if isinstance(known.kind, Section) and known.kind.oneof)
