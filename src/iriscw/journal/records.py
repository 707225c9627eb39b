"""Record types: facts with a name and a version that outlive the code that wrote them.

A feature declares its records in its ``records.py``::

    @record("jobs.attempt_placed", version=2)
    @message
    class AttemptPlaced:
        attempt: str
        worker: str
        placed_at_ns: int


    @upcaster("jobs.attempt_placed", from_version=1)
    def _(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "placed_at_ns": 0}

On disk a record is ``["jobs.attempt_placed",2,{...}]``. Reading an old version applies the upcasters from its
version to the present one, each a pure function from parsed JSON to parsed JSON. A field added with a default
needs neither a new version nor an upcaster; anything else does. An unknown name, a newer version or a missing
upcaster is an error that names the record: nothing is ever skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from iriscw._errors import InvalidArgument
from iriscw.journal.codec import Decode, Encode, Json, Mismatch, Value, codec_for
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.errors import InvalidRecord, UnreadableRecord
from iriscw.journal.port import MAX_RECORD_BYTES, MAX_SNAPSHOT_BYTES

_T = TypeVar("_T", bound=type)
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
_U = TypeVar("_U", bound=Upcast)

_parse = json.JSONDecoder().decode
_RECORD, _SNAPSHOT = EntryKind.RECORD, EntryKind.SNAPSHOT
"""In Python 3.11 looking a member of an enum up costs as much as a call, and a journal of a million is read at once."""


@attrs.frozen
class RecordType:
    """A declared record type."""

    name: str
    version: int
    type: type
    prefix: str
    encode: Encode
    decode: Decode


class RecordRegistry:
    """The record types a program knows. One is enough for all of iriscw; tests make their own."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[type, int]] = {}
        self._names: dict[type, str] = {}
        self._by_type: dict[type, RecordType] = {}
        self._by_name: dict[str, RecordType] = {}
        """Those that were written or read: what writes and reads one is made then, and a program needs few of them."""
        self._upcasters: dict[tuple[str, int], Upcast] = {}

    def record(self, name: str, *, version: int = 1) -> Callable[[_T], _T]:
        """Declare the attrs class below as the record type ``name``, in its present ``version`` (from 1).

        Raises:
            InvalidArgument: the name is taken, or it is not an attrs class. That a field's type cannot be journaled
                is said by :meth:`misfits`, and when one is written or read.
        """

        def declare(type_: _T) -> _T:
            if version < 1 or not name:
                raise InvalidArgument(f"record {name!r}: expected a name, and a version from 1")
            if name in self._declared:
                raise InvalidArgument(f"record {name!r} is declared twice: {self._declared[name][0]} and {type_}")
            if type_ in self._names:
                raise InvalidArgument(f"{type_} is declared twice: {self._names[type_]!r} and {name!r}")
            if "__attrs_attrs__" not in vars(type_):
                raise InvalidArgument(f"record {name!r}: {type_} is not an attrs class")
            self._declared[name] = (type_, version)
            self._names[type_] = name
            return type_

        return declare

    def _made(self, name: str | None) -> RecordType | None:
        """Make what writes and reads a declared type; None if it is none."""
        if name is None or name not in self._declared:
            return None
        type_, version = self._declared[name]
        encode, decode = codec_for(type_)
        made = RecordType(name, version, type_, f"[{json.dumps(name)},{version},", encode, decode)
        self._by_name[name] = self._by_type[type_] = made
        return made

    def misfits(self) -> list[str]:
        """Return the declared types that have a field which cannot be journaled, and why."""
        found = []
        for name in self._declared:
            try:
                self._made(name)
            except InvalidArgument as error:
                found.append(f"{name}: {error}")
        return found

    def upcaster(self, name: str, *, from_version: int) -> Callable[[_U], _U]:
        """Declare the function below as the way from ``from_version`` of ``name`` to the next.

        It gets the record's fields as parsed JSON, its own copy, and returns those of the next version.

        Raises:
            InvalidArgument: there is one already.
        """

        def declare(upcast: _U) -> _U:
            if (name, from_version) in self._upcasters:
                raise InvalidArgument(f"record {name!r}: two upcasters from version {from_version}")
            self._upcasters[name, from_version] = upcast
            return upcast

        return declare

    def gaps(self) -> list[str]:
        """Return what old journals would stumble over: versions without upcaster, upcasters without version."""
        needed = [(name, earlier) for name, (_, version) in self._declared.items() for earlier in range(1, version)]
        missing = [f"{name} has no upcaster from version {v}" for name, v in needed if (name, v) not in self._upcasters]
        spare = [
            f"{name} has a spare upcaster from version {v}" for name, v in self._upcasters if (name, v) not in needed
        ]
        return missing + spare

    def encode(self, record: Value) -> str:
        """Return the text of a record.

        Raises:
            InvalidRecord: its type is not declared, a field is not of its type, or it is larger than
                :data:`~iriscw.journal.port.MAX_RECORD_BYTES`.
        """
        kind = self._by_type.get(type(record)) or self._made(self._names.get(type(record)))
        if kind is None:
            raise InvalidRecord(f"{type(record).__qualname__} is not a declared record type")
        try:
            text = f"{kind.prefix}{kind.encode(record)}]"
        except Mismatch as error:
            raise InvalidRecord(f"record {kind.name!r}: {error}") from None
        if len(text) > MAX_RECORD_BYTES:
            raise InvalidRecord(
                f"record {kind.name!r} takes {len(text)} bytes: at most {MAX_RECORD_BYTES} are journaled"
            )
        return text

    def encode_snapshot(self, records: Sequence[Any]) -> str:
        """Return the text of a snapshot.

        Raises:
            InvalidRecord: as :meth:`encode`, or they take more than
                :data:`~iriscw.journal.port.MAX_SNAPSHOT_BYTES` together.
        """
        text = f"[{','.join([self.encode(record) for record in records])}]"
        if len(text) > MAX_SNAPSHOT_BYTES:
            raise InvalidRecord(f"a snapshot takes {len(text)} bytes: at most {MAX_SNAPSHOT_BYTES} are journaled")
        return text

    def read(self, text: str, place: str) -> Any:
        """Return the record that :meth:`encode` wrote as ``text``, in a file that is not a journal.

        ``place`` is for errors.

        Raises:
            UnreadableRecord: as :meth:`decode`.
        """
        (read,) = self.decode(Entry(0, place, EntryKind.RECORD, text))
        return read

    def decode(self, entry: Entry) -> list[Any]:
        """Return the records of an entry: one, those of a snapshot, or none.

        Raises:
            UnreadableRecord: one is of an unknown type or a newer version, or does not fit its type.
        """
        kind = entry.kind
        if kind != _RECORD and kind != _SNAPSHOT:
            return []
        try:
            parsed = _parse(entry.payload)
        except ValueError as error:
            raise UnreadableRecord(f"{_place(entry)}: not JSON: {error}") from error
        if kind == _RECORD:
            return [self._decode(entry, parsed)]
        if type(parsed) is not list:
            raise UnreadableRecord(f"{_place(entry)}: not a snapshot")
        return [self._decode(entry, each) for each in parsed]

    def _decode(self, entry: Entry, parsed: Json) -> Value:
        match parsed:
            case [str(name), int(version), dict(fields)]:
                pass
            case _:
                raise UnreadableRecord(f"{_place(entry)}: not a record")
        kind = self._by_name.get(name) or self._made(name)
        if kind is None:
            raise UnreadableRecord(f"{_place(entry)}: {name!r} is not a record type of this version of iriscw")
        if version != kind.version:
            fields = self._raised(entry, kind, version, fields)
        try:
            return kind.decode(fields)
        except Mismatch as error:
            raise UnreadableRecord(f"{_place(entry)}: {name!r}: {error}") from error

    def _raised(self, entry: Entry, kind: RecordType, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the present version from those of ``version``."""
        if version > kind.version:
            raise UnreadableRecord(
                f"{_place(entry)}: {kind.name!r} is of version {version}, newer than {kind.version}, the latest known"
            )
        for step in range(version, kind.version):
            upcast = self._upcasters.get((kind.name, step))
            if upcast is None:
                raise UnreadableRecord(f"{_place(entry)}: {kind.name!r} has no upcaster from version {step}")
            fields = upcast(fields)
        return fields


def _place(entry: Entry) -> str:
    return f"sequence {entry.sequence} of {entry.path}"


REGISTRY = RecordRegistry()
"""The record types of iriscw itself."""

record = REGISTRY.record
upcaster = REGISTRY.upcaster
