"""A kind of object as data: what the store must know to serve it, built in or defined by a custom resource.

One :class:`Kind` is one served group and version. What differs between kinds beyond data (defaults, rules, what an
update may touch) are pure functions in its fields; the verbs of the store know no kind by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, TypeAlias

import attrs

from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.refusals import Cause, qualified
from iriscw_sims.kube.schema import Schema

Json: TypeAlias = dict[str, Any]
"""One JSON object, plain while it is built and frozen once it is stored."""

Field: TypeAlias = Callable[[Json], str]
"""Reads the value that a field selector compares."""

Rule: TypeAlias = Callable[[Json, Json | None], Iterator[Cause]]
"""Judges an object (and what it was before, ``None`` at its creation)."""

Change: TypeAlias = Callable[[Json, Json | None], None]
"""Changes a new object in place before it is judged, knowing what it was before (``None`` at its creation)."""


def nested(value: Any, *names: str) -> Any:
    """Give ``value[name][name]...``, ``None`` where one is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def field_at(*names: str) -> Field:
    """Give a field selector's reader for a path; what is missing compares as ``""``."""
    if len(names) == 2:
        return _field_in(*names)

    def read(item: Json) -> str:
        return _compared(nested(item, *names))

    return read


def _field_in(part: str, name: str) -> Field:
    """Give a reader of a field one level down: what selectors ask of every object in a list."""

    def read(item: Json) -> str:
        value = (item.get(part) or EMPTY).get(name, "")
        return value if type(value) is str else _compared(value)

    return read


def _compared(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


METADATA_FIELDS: Mapping[str, Field] = {
    "metadata.name": field_at("metadata", "name"),
    "metadata.namespace": field_at("metadata", "namespace"),
}


def _nothing(new: Json, old: Json | None) -> None:
    """Change nothing."""


def _anything(new: Json, old: Json | None) -> Iterator[Cause]:
    """Find nothing wrong."""
    return iter(())


@attrs.frozen
class Column:
    """One column of a table: ``read`` gives the cell of an object at a time in ns."""

    name: str
    kind: str
    read: Callable[[Json, int], Any]
    format: str = ""
    description: str = ""
    priority: int = 0


@attrs.frozen
class ScalePaths:
    """Where a kind keeps how many replicas are wanted, how many there are, and what selects them (``""``: nowhere)."""

    wanted: str
    current: str
    selector: str = ""


@attrs.frozen(eq=False)
class Kind:
    """One kind: names, and how its objects are built, judged and found.

    Attributes:
        typed: Built in: entries of a list carry no ``kind`` of their own, and strategic merge patches are understood.
        generation: Whether metadata.generation counts changes of what is desired.
        unconditional: Whether a PUT may come without a resourceVersion.
        upsert: Whether a PUT creates what is not there.
        graceful: Whether a delete leaves time to end.
        returns_deleted: Whether a DELETE answers with the object instead of a Status.
        one_by_one: There is no delete of a whole collection.
        name_rule: A key of :data:`iriscw_sims.kube.meta.NAME_RULES`.
        fields: What field selectors may name.
        default: Fills in defaults while an object is read; the writer owns them.
        prepare: Changes an object after that, which nobody owns.
        prepare_status: The same for the status; with an old object, it keeps all but the status.
        draw: Gives a new object what the server allocates.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    typed: bool = True
    status: bool = False
    subresources: tuple[str, ...] = ()
    scale: ScalePaths | None = None
    generation: bool = False
    unconditional: bool = True
    upsert: bool = False
    graceful: bool = False
    returns_deleted: bool = False
    one_by_one: bool = False
    name_rule: str = "subdomain"
    fields: Mapping[str, Field] = METADATA_FIELDS
    selectable: tuple[str, ...] = ()
    schema: Schema | None = None
    default: Change = _nothing
    prepare: Change = _nothing
    draw: Callable[[Json, Random], None] | None = None
    prepare_status: Change = _nothing
    rule: Rule = _anything
    status_rule: Rule = _anything
    columns: tuple[Column, ...] = ()

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name of its resource in messages."""
        return qualified(self.group, self.plural)

    @property
    def kind_of_list(self) -> str:
        """The ``kind`` of its lists."""
        return self.list_kind or f"{self.kind}List"


def metadata_of(item: Json) -> Json:
    """Give an object's metadata, empty if it has none."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else EMPTY
