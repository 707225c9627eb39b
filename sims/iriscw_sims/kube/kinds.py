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
    """Return ``value[name][name]...``, ``None`` where one is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def field_at(*names: str) -> Field:
    """Return a field selector's reader for a path; what is missing compares as ``""``."""
    if len(names) == 2:
        return _field_in(*names)

    def read(item: Json) -> str:
        return _compared(nested(item, *names))

    return read


def _field_in(part: str, name: str) -> Field:
    """Return a reader of a field one level down: what selectors ask of every object in a list."""

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


@attrs.frozen
class MetadataRules:
    """How often a kind's own validation looks at metadata, beside the server's own look at that of every kind.

    Each look tells what is wrong, so a mistake is told as often as there are looks: callers see that in the causes.

    Attributes:
        on_create: A creation is looked at by the kind.
        on_update: A change is, too.
        whole_on_update: A change is looked at as a creation is, too.
        finalizers: Each look also refuses finalizers that are neither qualified names nor the server's own.
    """

    on_create: bool = True
    on_update: bool = True
    whole_on_update: bool = True
    finalizers: bool = True


EVERY_LOOK = MetadataRules()
CHANGES_ONLY = MetadataRules(whole_on_update=False)
LENIENT_CHANGES = MetadataRules(whole_on_update=False, finalizers=False)
NO_LOOK = MetadataRules(on_create=False, on_update=False, whole_on_update=False, finalizers=False)


@attrs.frozen(eq=False)
class Kind:
    """One kind: names, and how its objects are built, judged and found.

    Attributes:
        typed: Built in: entries of a list carry no ``kind`` of their own, and strategic merge patches are understood.
        generation: Whether metadata.generation counts changes of what is desired.
        counts_annotations: Whether a change of annotations counts, too: deployments hand theirs on.
        unconditional: Whether a PUT may come without a resourceVersion.
        upsert: Whether a PUT creates what is not there.
        graceful: Whether a delete leaves time to end.
        returns_deleted: Whether a DELETE answers with the object instead of a Status.
        collected: Whether a delete's propagation policy means something: what owns nothing goes at once.
        one_by_one: There is no delete of a whole collection.
        cached: Whether lists and watches come from a cache of the server, which takes any version but a wrong one.
        name_rule: A key of :data:`iriscw_sims.kube.meta.NAME_RULES`.
        metadata_rules: How its own validation looks at metadata.
        kept_by_status: What an update of the status cannot change, as paths of managedFields: nobody gets to own it.
        fields: What field selectors may name.
        default: Fills in defaults while an object is read; the writer owns them.
        prepare: Changes an object after that, which nobody owns.
        prepare_status: The same for the status; with an old object, it keeps all but the status.
        draw: Gives a new object what the server allocates.
        storage: The version that objects are stored as, ``None`` if it is this one.
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
    counts_annotations: bool = False
    unconditional: bool = True
    upsert: bool = False
    graceful: bool = False
    returns_deleted: bool = False
    collected: bool = True
    one_by_one: bool = False
    cached: bool = True
    name_rule: str = "subdomain"
    metadata_rules: MetadataRules = EVERY_LOOK
    kept_by_status: tuple[tuple[str, ...], ...] = (("f:spec",),)
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
    storage: Kind | None = None

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
