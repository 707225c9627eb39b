"""Record types: names, versions, upcasters, and journals from earlier releases."""

import subprocess
import sys

import attrs
import pytest

from iriscw._errors import InvalidArgument
from iriscw.journal import records
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.errors import InvalidRecord, UnreadableRecord
from iriscw.journal.port import MAX_RECORD_BYTES
from iriscw.journal.records import RecordRegistry
from raised import that


@attrs.frozen
class Placed:
    """A record in its third version."""

    attempt: str
    worker: str
    placed_at_ns: int


def registry(version=3):
    """Return a registry that knows Placed."""
    made = RecordRegistry()
    made.record("jobs.placed", version=version)(Placed)
    return made


def entry(payload, kind=EntryKind.RECORD):
    """Return an entry to decode."""
    return Entry(7, "/jobs/a", kind, payload)


def test_text():
    """A record's text is its name, version and fields in canonical JSON."""
    text = registry().encode(Placed("a", "w", 5))
    assert text == '["jobs.placed",3,{"attempt":"a","placed_at_ns":5,"worker":"w"}]'
    assert registry().decode(entry(text)) == [Placed("a", "w", 5)]


def test_snapshot():
    """A snapshot is the list of its records; a forget has none."""
    made = registry()
    facts = [Placed("a", "w", 5), Placed("b", "w", 6)]
    assert made.decode(entry(made.encode_snapshot(facts), EntryKind.SNAPSHOT)) == facts
    assert made.decode(entry(made.encode_snapshot([]), EntryKind.SNAPSHOT)) == []
    assert made.decode(entry("", EntryKind.FORGET)) == []


def test_upcasters():
    """Old versions are lifted one version at a time, in order."""
    made = registry()

    @made.upcaster("jobs.placed", from_version=2)
    def _(fields):
        return {**fields, "placed_at_ns": 0}

    @made.upcaster("jobs.placed", from_version=1)
    def _(fields):
        return {"attempt": fields["attempt"], "worker": fields["node"]}

    old, newer = '["jobs.placed",1,{"attempt":"a","node":"n"}]', '["jobs.placed",2,{"attempt":"a","worker":"w"}]'
    assert made.decode(entry(old)) == [Placed("a", "n", 0)]
    assert made.decode(entry(newer)) == [Placed("a", "w", 0)]
    assert made.gaps() == []


def test_gaps():
    """Missing and spare upcasters are listed, so that a test can ask for none."""
    made = registry()
    made.upcaster("jobs.placed", from_version=3)(dict)
    made.upcaster("jobs.placed", from_version=1)(dict)
    assert made.gaps() == [
        "jobs.placed has no upcaster from version 2",
        "jobs.placed has a spare upcaster from version 3",
    ]
    assert records.REGISTRY.gaps() == []


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('["jobs.gone",1,{}]', that(comes_from="records.RecordRegistry._decode", names="jobs.gone")),
        ('["jobs.placed",4,{}]', that(comes_from="records.RecordRegistry._raised", names=(4, 3))),
        ('["jobs.placed",2,{}]', that(comes_from="records.RecordRegistry._raised", names=2)),
        (
            '["jobs.placed",3,{"attempt":"a"}]',
            that(comes_from="records.RecordRegistry._decode", names="Placed.worker"),
        ),
        ('["jobs.placed",3]', that(comes_from="records.RecordRegistry._decode")),
        ("{", that(comes_from="records.RecordRegistry.decode")),
    ],
)
def test_unreadable(payload, reason):
    """What cannot be decoded is named with its sequence and path, never skipped."""
    with pytest.raises(UnreadableRecord, check=reason) as caught:
        registry().decode(entry(payload))
    assert str(caught.value).startswith("sequence 7 of /jobs/a: ")


def test_unreadable_snapshot():
    """A snapshot must be a list."""
    with pytest.raises(UnreadableRecord, check=that(comes_from="records.RecordRegistry.decode")):
        registry().decode(entry("{}", EntryKind.SNAPSHOT))


def test_duplicates():
    """A name, a type and an upcaster are declared once each."""
    made = registry()

    @attrs.frozen
    class Other:
        pass

    with pytest.raises(InvalidArgument, check=that(comes_from="records.RecordRegistry.record.declare")):
        made.record("jobs.placed")(Other)
    with pytest.raises(InvalidArgument, check=that(comes_from="records.RecordRegistry.record.declare")):
        made.record("jobs.other")(Placed)
    made.upcaster("jobs.placed", from_version=1)(dict)
    with pytest.raises(InvalidArgument, check=that(comes_from="records.RecordRegistry.upcaster.declare")):
        made.upcaster("jobs.placed", from_version=1)(dict)


@pytest.mark.parametrize(("name", "version"), [("", 1), ("a", 0)])
def test_bad_declarations(name, version):
    """A record type has a name, and a version from 1."""
    with pytest.raises(InvalidArgument, check=that(comes_from="records.RecordRegistry.record.declare")):
        RecordRegistry().record(name, version=version)(Placed)


def test_attrs_only():
    """Only attrs classes are record types."""

    class Plain:
        pass

    with pytest.raises(InvalidArgument, check=that(comes_from="records.RecordRegistry.record.declare")):
        RecordRegistry().record("plain")(Plain)


def test_size_limit():
    """A record past the limit is refused, one at it is not."""
    made = registry()
    overhead = len(made.encode(Placed("", "w", 0)))
    made.encode(Placed("x" * (MAX_RECORD_BYTES - overhead), "w", 0))
    with pytest.raises(InvalidRecord, check=that(comes_from="records.RecordRegistry.encode")):
        made.encode(Placed("x" * (MAX_RECORD_BYTES - overhead + 1), "w", 0))


def test_snapshot_limit(monkeypatch):
    """A snapshot past its limit is refused."""
    monkeypatch.setattr(records, "MAX_SNAPSHOT_BYTES", 100)
    made = registry()
    made.encode_snapshot([Placed("a", "w", 0)])
    with pytest.raises(InvalidRecord, check=that(comes_from="records.RecordRegistry.encode_snapshot")):
        made.encode_snapshot([Placed("a", "w", 0)] * 2)


def test_a_type_that_cannot_be_journaled_is_found():
    """Not where it is declared, which every start would pay for, but by whoever looks; and before one is written."""
    made = RecordRegistry()

    @made.record("jobs.timed")
    @attrs.frozen
    class Timed:
        boot: float

    made.record("jobs.placed")(Placed)
    (found,) = made.misfits()
    assert found.startswith("jobs.timed: ")
    assert "boot" in found
    with pytest.raises(InvalidArgument, check=that(names="boot")):
        made.encode(Timed(1.5))


def test_every_record_of_iriscw_can_be_journaled():
    """All that is declared in any module of records."""
    code = (
        "import importlib, pathlib, iriscw; folder = pathlib.Path(iriscw.__file__).parent.parent;"
        "[importlib.import_module('.'.join(path.relative_to(folder).with_suffix('').parts))"
        " for path in folder.rglob('*.py') if '@record(' in path.read_text() and path.name != '__init__.py'];"
        "from iriscw.journal.records import REGISTRY; print(len(REGISTRY._declared), REGISTRY.misfits())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    count, _, misfits = done.stdout.strip().partition(" ")
    assert int(count) >= 80
    assert misfits == "[]"
