"""Manifests: what is written is read, and what somebody else may have written is refused by name."""

import hashlib
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import FROZEN

import iriscw.worker.records  # noqa: F401 - some record that is not a line of a manifest
from iriscw.checkpoint import manifest
from iriscw.checkpoint.manifest import MAX_FILE_BYTES, PIECE_BYTES, label_trouble, open_manifest, seal
from iriscw.checkpoint.model import ImageFile
from iriscw.checkpoint.records import FileLine, PiecesLine, SealLine, read, written
from iriscw.freeze.model import MAX_TASKS, ArtifactRefused, CudaState, CudaTask, TaskIdentity
from raised import that

FILES = (ImageFile("b.img", 5, "ab" * 32), ImageFile("a.img", 0, "cd" * 32))


def text(files=FILES, artifact="op-1", algorithm="sha256-8m", frozen=FROZEN, labels=()):
    """Write a manifest."""
    return seal(artifact, frozen=frozen, files=files, algorithm=algorithm, labels=labels)[0]


def refused(data, **where):
    """Assert that it is refused, and where or with which names."""
    with pytest.raises(ArtifactRefused, check=that(**where)):
        open_manifest(data, "op-1")


def test_what_is_written_is_read():
    """Files come back by name, with the facts."""
    data, sealed = seal("op-1", frozen=FROZEN, files=FILES, algorithm="sha256-8m", labels=(("a", "b"),), wall_ns=7)
    read = open_manifest(data, "op-1")
    assert [file.name for file in read.files] == ["a.img", "b.img"]
    assert (read.frozen, read.sealed, read.labels, read.sealed_wall_ns) == (FROZEN, sealed, (("a", "b"),), 7)
    assert sealed.size_bytes == 5


def test_golden_lines():
    """The first release's lines are read by every later one."""
    lines = text(files=FILES[:1]).decode().splitlines()
    assert lines[1] == f'["checkpoint.file",1,{{"digest":"{"ab" * 32}","name":"b.img","size_bytes":5}}]'
    assert lines[0].startswith(
        '["checkpoint.facts",1,{"algorithm":"sha256-8m","artifact":"op-1","frozen":{"carried":null,"container":null,"criu":'
    )
    assert lines[2].startswith('["checkpoint.seal",1,{"digest":"')


def test_pieces_of_pages_are_read_back_over_many_lines(monkeypatch):
    """A large file has several lines of them; other files have none; a manifest without them is one as before."""
    monkeypatch.setattr(manifest, "MAX_PIECES_OF_LINE", 2)
    pieces = bytes(range(5 * 32))
    pages = ImageFile("pages-1.img", 4 * PIECE_BYTES + 1, "ab" * 32, pieces)
    other = ImageFile("a.img", 1, "cd" * 32, bytes(32))
    data = text(files=(pages, other))
    assert data.count(b'["checkpoint.pieces",1,{"digests":"') == 3
    read = {file.name: file.pieces for file in open_manifest(data, "op-1").files}
    assert read == {"pages-1.img": pieces, "a.img": b""}
    assert open_manifest(text(files=(attrs.evolve(pages, pieces=b""),)), "op-1").files[0].pieces == b""


def test_pieces_that_do_not_fit_are_refused():
    """Too few, too many, of another file, or before any."""
    for count in (1, 3):
        pages = ImageFile("pages-1.img", PIECE_BYTES + 1, "ab" * 32, bytes(count * 32))
        refused(text(files=(pages,)), comes_from="manifest.open_manifest", names=("pages-1.img", count))
    file, line = FileLine("pages-1.img", 1, "ab" * 32), PiecesLine("pages-1.img", "ab" * 32)
    facts = read(text(files=()).splitlines(keepends=True)[0])
    for lines in ([line], [file, PiecesLine("pages-2.img", "ab" * 32)], [file, PiecesLine("pages-1.img", "zz" * 32)]):
        body = written([*facts, *lines])
        digest = hashlib.sha256(body).hexdigest()
        refused(body + written([SealLine(1, 1, digest)]), comes_from="manifest._files")
        facts = read(text(files=()).splitlines(keepends=True)[0])


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\0b", "a\nb", "x" * 201]
)
def test_escaping_names(name):
    """A file's name is one part, and a plain one."""
    refused(text(files=(ImageFile(name, 1, "ab" * 32),)), comes_from="manifest.open_manifest", names=repr(name)[:50])


@pytest.mark.parametrize("size", [-1, MAX_FILE_BYTES + 1, 1 << 70])
def test_absurd_sizes(size):
    """No size is believed that no machine has."""
    refused(text(files=(ImageFile("a", size, "ab" * 32),)), comes_from="manifest.open_manifest", names=size)


def test_other_troubles(monkeypatch):
    """Each is named: a digest, a name twice, another id, an algorithm, labels, process numbers."""
    refused(text(files=(ImageFile("a", 1, "AB" * 32),)), comes_from="manifest.open_manifest", names="digest")
    refused(text(files=(FILES[0], FILES[0])), comes_from="manifest.open_manifest", names="b.img")
    refused(text(artifact="op-2"), names="op-2")
    refused(text(algorithm="md5"), names="md5")
    refused(text(labels=(("a", "1"), ("a", "2"))), comes_from="manifest.open_manifest", names="label")
    refused(text(frozen=attrs.evolve(FROZEN, tasks=())), comes_from="manifest.open_manifest", names=0)
    many = tuple(FROZEN.tasks[0] for _ in range(MAX_TASKS + 1))
    refused(text(frozen=attrs.evolve(FROZEN, tasks=many)), comes_from="manifest.open_manifest", names=MAX_TASKS + 1)
    refused(
        text(frozen=attrs.evolve(FROZEN, tasks=FROZEN.tasks[:1] * 2)),
        comes_from="manifest.open_manifest",
        names="numbers",
    )
    stranger = CudaTask(TaskIdentity(7, 1, "boot-1"), CudaState.RUNNING, 7, 1)
    refused(
        text(frozen=attrs.evolve(FROZEN, cuda_tasks=(stranger,))),
        comes_from="manifest.open_manifest",
        names="CUDA",
    )
    monkeypatch.setattr(manifest, "MAX_FILES", 1)
    refused(text(), comes_from="manifest.open_manifest", names=2)


def test_another_version():
    """A newer one is refused by its number, an unknown line by its name."""
    data = text()
    refused(data.replace(b'["checkpoint.seal",1', b'["checkpoint.seal",9'), names=("checkpoint.seal", 9, 1))
    refused(data.replace(b'["checkpoint.seal"', b'["checkpoint.other"'), names="checkpoint.other")
    refused(
        data.replace(b'["checkpoint.seal",1,', b'["worker.attempt_known",1,{"uid":"a"}]\n["checkpoint.seal",1,'),
        comes_from="records.read",
    )


def test_lines_in_another_order():
    """A beginning, files, an end; and the end has the digest of all before it."""
    first, *files, last = text().splitlines(keepends=True)
    refused(b"".join([first, *files]), comes_from="manifest._assembled")
    refused(b"".join([*files, last]), comes_from="manifest._assembled")
    refused(b"".join([first, first, *files, last]), comes_from="manifest._files")
    refused(b"".join([first, *files[:1], last]), comes_from="manifest._assembled")
    refused(b"", comes_from="manifest.open_manifest")


@given(st.binary(max_size=200))
def test_any_bytes(data):
    """Whatever stands there, it is refused and nothing else happens."""
    with pytest.raises(ArtifactRefused):
        open_manifest(data, "op-1")


@given(st.data())
def test_any_change(data):
    """One byte changed anywhere is found."""
    whole = text()
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(1, 255))
    changed = whole[:at] + bytes([whole[at] ^ other]) + whole[at + 1 :]
    with pytest.raises(ArtifactRefused):
        open_manifest(changed, "op-1")


@pytest.mark.parametrize("bit", range(8))
def test_the_last_line_feed_counts(bit):
    """It may become a character that ends a line as well, such as a vertical tab."""
    whole = text()
    refused(whole[:-1] + bytes([whole[-1] ^ 1 << bit]), names="op-1")
    refused(whole[:-1], comes_from="manifest.open_manifest")


def test_deep_nesting_is_no_crash():
    """JSON that is nested as deep as it is long is refused."""
    refused(b"[" * 100_000 + b"\n", comes_from="manifest.open_manifest", names=1)


@pytest.mark.parametrize(
    ("labels", "trouble"),
    [
        ((("", "x"),), "from 1 to"),
        ((("a" * 257, "x"),), "from 1 to"),
        ((("a", "x" * 257),), "from 1 to"),
        ((("a", "x\x1b[2J"),), "printable"),
        (tuple((str(n), "") for n in range(65)), "65 labels"),
        ((("a", ""),), ""),
    ],
)
def test_labels(labels, trouble):
    """Labels are few, short and printable."""
    assert trouble in label_trouble(labels)
    assert bool(label_trouble(labels)) == bool(trouble)
