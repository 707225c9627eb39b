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

from iriscw.errors import InvalidArgument
from iriscw.journal.codec import Decode, Encode, Json, Mismatch, Value, codec_for
from iriscw.journal.entries import Entry, Kind
from iriscw.journal.errors import InvalidRecord, UnreadableRecord
from iriscw.journal.port import MAX_RECORD_BYTES, MAX_SNAPSHOT_BYTES

_T = TypeVar("_T", bound=type)
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
_U = TypeVar("_U", bound=Upcast)

_parse = json.JSONDecoder().decode
_RECORD, _SNAPSHOT = Kind.RECORD, Kind.SNAPSHOT
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


class Registry:
    """The record types a program knows. One is enough for all of iriscw; tests make their own."""

    def __init__(self) -> None:
        self._by_type: dict[type, RecordType] = {}
        self._by_name: dict[str, RecordType] = {}
        self._upcasters: dict[tuple[str, int], Upcast] = {}

    def record(self, name: str, *, version: int = 1) -> Callable[[_T], _T]:
        """Declare the attrs class below as the record type ``name``, in its present ``version`` (from 1).

        Raises:
            InvalidArgument: the name is taken, the class is no attrs class, or a field's type cannot be
            journaled.
        """

        def declare(type_: _T) -> _T:
            if version < 1 or not name:
                raise InvalidArgument(f"record {name!r}: expected a name, and a version from 1")
            if name in self._by_name:
                raise InvalidArgument(f"record {name!r} is declared twice: {self._by_name[name].type} and {type_}")
            if type_ in self._by_type:
                raise InvalidArgument(f"{type_} is declared twice: {self._by_type[type_].name!r} and {name!r}")
            if "__attrs_attrs__" not in vars(type_):
                raise InvalidArgument(f"record {name!r}: {type_} is no attrs class")
            encode, decode = codec_for(type_)
            prefix = f"[{json.dumps(name)},{version},"
            self._by_name[name] = self._by_type[type_] = RecordType(name, version, type_, prefix, encode, decode)
            return type_

        return declare

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
        """Give what old journals would stumble over: versions without upcaster, upcasters without version."""
        needed = [(kind.name, version) for kind in self._by_name.values() for version in range(1, kind.version)]
        missing = [f"{name} has no upcaster from version {v}" for name, v in needed if (name, v) not in self._upcasters]
        spare = [
            f"{name} has a spare upcaster from version {v}" for name, v in self._upcasters if (name, v) not in needed
        ]
        return missing + spare

    def encode(self, record: Value) -> str:
        """Give the text of a record.

        Raises:
            InvalidRecord: its type is not declared, a field is not of its type, or it is larger than
                :data:`~iriscw.journal.port.MAX_RECORD_BYTES`.
        """
        kind = self._by_type.get(type(record))
        if kind is None:
            raise InvalidRecord(f"{type(record).__qualname__} is no declared record type")
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
        """Give the text of a snapshot.

        Raises:
            InvalidRecord: as :meth:`encode`, or they take more than
                :data:`~iriscw.journal.port.MAX_SNAPSHOT_BYTES` together.
        """
        text = f"[{','.join([self.encode(record) for record in records])}]"
        if len(text) > MAX_SNAPSHOT_BYTES:
            raise InvalidRecord(f"a snapshot takes {len(text)} bytes: at most {MAX_SNAPSHOT_BYTES} are journaled")
        return text

    def read(self, text: str, place: str) -> Any:
        """Give the record that :meth:`encode` wrote as ``text``, in a file that is no journal; ``place`` is for errors.

        Raises:
            UnreadableRecord: as :meth:`decode`.
        """
        (read,) = self.decode(Entry(0, place, Kind.RECORD, text))
        return read

    def decode(self, entry: Entry) -> list[Any]:
        """Give the records of an entry: one, those of a snapshot, or none.

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
        kind = self._by_name.get(name)
        if kind is None:
            raise UnreadableRecord(f"{_place(entry)}: {name!r} is no record type of this version of iriscw")
        if version != kind.version:
            fields = self._raised(entry, kind, version, fields)
        try:
            return kind.decode(fields)
        except Mismatch as error:
            raise UnreadableRecord(f"{_place(entry)}: {name!r}: {error}") from error

    def _raised(self, entry: Entry, kind: RecordType, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Give the fields of the present version from those of ``version``."""
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


REGISTRY = Registry()
"""The record types of iriscw itself."""

record = REGISTRY.record
upcaster = REGISTRY.upcaster
