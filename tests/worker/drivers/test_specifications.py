"""Specifications by hash: checked, bounded, and none left from an earlier process."""

import hashlib
from pathlib import Path

import pytest

from iriscw.proto.iriscw import v1
from iriscw.worker.drivers import specifications
from iriscw.worker.drivers.specifications import Specifications, SpecificationsFull, SpecificationUnknown
from iriscw.worker.wire import MalformedSpecification
from raised import that


def content(job: str) -> bytes:
    return bytes(v1.TaskSpecification(job_id=job, entrypoint=v1.Entrypoint(command=v1.Command(argv=["true"]))))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_put_and_get(tmp_path: Path) -> None:
    """What was put is read back; putting it again changes nothing; the next process begins with none."""
    held, data = Specifications(tmp_path / "s"), content("j1")
    held.put(digest(data), data)
    held.put(digest(data), data)
    assert held.hashes == (digest(data),)
    assert held.get(digest(data)).job_id == "j1"
    assert Specifications(tmp_path / "s").hashes == ()


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong hash, one that is too large, an unknown one, and one too many."""
    held, data = Specifications(tmp_path / "s"), content("j1")
    with pytest.raises(MalformedSpecification, check=that(comes_from="specifications.Specifications.put")):
        held.put("00" * 32, data)
    with pytest.raises(SpecificationUnknown):
        held.get(digest(data))
    monkeypatch.setattr(specifications, "MAX_SPECIFICATION_BYTES", 3)
    with pytest.raises(MalformedSpecification, check=that(comes_from="specifications.Specifications.put")):
        held.put(digest(data), data)
    monkeypatch.undo()
    monkeypatch.setattr(specifications, "MAX_HELD", 1)
    held.put(digest(data), data)
    with pytest.raises(SpecificationsFull):
        held.put(digest(content("j2")), content("j2"))
    held.clear()
    held.put(digest(content("j2")), content("j2"))
