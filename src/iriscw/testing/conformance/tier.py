"""What every tier must do. Subclass it in a test module and give a ``plug`` fixture::

    class TestMyTier(TierConformance):
        @pytest.fixture
        def plug(self) -> TierPlug:
            return my_package.tier

The tier is opened in a folder below ``tmp_path``, whose file system has some 64 MiB free; one that takes no
``TierContext.folder`` overrides :meth:`~TierConformance.context`. Nothing here needs CRIU: files with the names that it
gives are enough.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from iriscw.checkpoint.drivers.digests import Reading, best_algorithm
from iriscw.checkpoint.drivers.plug import TierContext, TierPlug
from iriscw.checkpoint.ports import Tier
from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactRefused,
    ArtifactUnknown,
    CriuAbility,
    CriuOptions,
    FrozenTree,
    ImageHost,
    NoRoom,
    TaskIdentity,
    TreeProcess,
    UnsafeRequest,
)

NAME = "shelf"
BOOT = "boot-1"
BYTES = 1 << 20
FILES = {"inventory.img": b"i" * 100, "pstree.img": b"p" * 100, "core-7.img": b"", "pages-1.img": b"m" * 70_000}
FROZEN = FrozenTree(
    host=ImageHost(BOOT, "x86_64", 4096, "6.1", "node-1", ()),
    criu=CriuAbility("criu", "4.2"),
    options=CriuOptions(),
    tasks=(TreeProcess(TaskIdentity(7, 500, BOOT), 1, "t7", 1 << 20),),
)
BACK = (TaskIdentity(7, 900, BOOT),)
BAD_IDS = ("", "..", "a/b", "/a", "A", ".hidden", "a\0b", "a" * 200)


class _Cut(BaseException):  # private to this suite
    """What happens where the machine stops."""


def _reader(algorithm: str, _total: int) -> Reading:
    return Reading(algorithm, 1, lambda count: None)


def write(tier: Tier, operation: str, files: dict[str, bytes] | None = None) -> None:
    """Reserve room for an artifact, and write what CRIU would have."""
    room = tier.reserve(operation, BYTES)
    for name, data in (files or FILES).items():
        (Path(room.images) / name).write_bytes(data)


def seal(tier: Tier, operation: str) -> None:
    """Seal what was written."""
    tier.seal(operation, FROZEN, (("model", "a"),), _reader(best_algorithm(), 0), lambda total: None)


def publish(tier: Tier, operation: str) -> None:
    """Publish what was sealed."""
    tier.publish(operation)


def copied(tier: Tier, operation: str, source: Tier, artifact: str) -> None:
    """Bring the files of an artifact into the room of a move."""
    files = {each.name: each.read_bytes() for each in source.images(artifact).iterdir()}
    write(tier, operation, files)


def adopted(tier: Tier, operation: str, source: Tier, artifact: str) -> None:
    """Take what was copied as that artifact."""
    returned = source.pin(artifact, operation).returned
    tier.adopt(operation, artifact, source.text(artifact), returned, _reader)


def installed(tier: Tier, operation: str, _source: Tier, artifact: str) -> None:
    """Make the copy visible."""
    tier.install(operation, artifact)


COPY_STEPS: tuple[Callable[[Tier, str, Tier, str], None], ...] = (copied, adopted, installed)


STEPS: tuple[Callable[[Tier, str], None], ...] = (write, seal, publish)


def keep(tier: Tier, operation: str) -> None:
    """Put an artifact there whose freeze is over."""
    for step in STEPS:
        step(tier, operation)
    tier.unpin(operation, operation)


def _is_whole(tier: Tier, artifact: str) -> bool:
    tier.verify(artifact, _reader)
    return True


class TierConformance:
    """The contract of :class:`~iriscw.checkpoint.ports.Tier`, as tests."""

    def context(self, tmp_path: Path) -> TierContext:
        """Return what the tier is opened with."""
        return TierContext(
            name=NAME,
            state=tmp_path / "state",
            environment={},
            folder=tmp_path / "shelf",
            budget_bytes=4 * BYTES,
            boot_id=BOOT,
            forget=lambda images, work: None,
        )

    @pytest.fixture
    def opened(self, plug: TierPlug, tmp_path: Path) -> Callable[..., Tier]:
        """Open the tier as another process does; words are those of its context."""
        (tmp_path / "state").mkdir(mode=0o700)
        return lambda **words: plug.open(attrs.evolve(self.context(tmp_path), **words))

    @pytest.fixture
    def tier(self, opened: Callable[..., Tier]) -> Tier:
        """Open it once; nothing is in it."""
        return opened()

    # What it is

    def test_it_is_what_it_was_opened_as(self, tier: Tier) -> None:
        """Its name, and a place that is an absolute path; opening it has made nothing."""
        assert tier.name == NAME
        assert tier.root.is_absolute()
        assert not tier.root.exists()
        tier.check()
        assert tier.listing() == []
        assert (tier.has("ck-1"), tier.has_room("ck-1"), tier.has_of("ck-1")) == (False, False, False)

    def test_it_is_nobody_elses(self, tier: Tier) -> None:
        """Folders have the mode 0700 and files 0600: an artifact has all secrets of a process."""
        keep(tier, "ck-1")
        images = tier.images("ck-1")
        for folder in (tier.root, images, *(each for each in images.parents if each.is_relative_to(tier.root))):
            assert folder.stat().st_mode & 0o777 == 0o700, folder
        for name in FILES:
            assert (images / name).stat().st_mode & 0o777 == 0o600, name

    # Writing

    def test_an_artifact_is_there_as_a_whole(self, tier: Tier) -> None:
        """Not before it is published, and then with all of its files and what is said of it."""
        write(tier, "ck-1")
        assert (tier.has_room("ck-1"), tier.has_of("ck-1")) == (True, True)
        seal(tier, "ck-1")
        assert (tier.has("ck-1"), tier.listing()) == (False, [])
        tier.publish("ck-1")
        (listed,) = tier.listing()
        assert listed == tier.look_at("ck-1")
        assert (listed.artifact, listed.tier, listed.trouble, listed.pinned_by) == ("ck-1", NAME, "", ("ck-1",))
        assert listed.manifest == tier.manifest("ck-1")
        assert (tier.manifest("ck-1").frozen, tier.manifest("ck-1").labels) == (FROZEN, (("model", "a"),))
        assert {each.name: each.read_bytes() for each in tier.images("ck-1").iterdir()} == FILES
        assert (tier.has("ck-1"), tier.has_room("ck-1")) == (True, False)
        assert _is_whole(tier, "ck-1")

    def test_calls_may_be_repeated(self, tier: Tier) -> None:
        """By who takes an operation up: each of them does what is left of it."""
        assert tier.reserve("ck-1", BYTES) == tier.reserve("ck-1", BYTES)
        write(tier, "ck-1")
        for step in (seal, seal, publish, publish):
            step(tier, "ck-1")
        for operation in ("th-1", "th-1", "ck-1"):
            tier.pin("ck-1", operation)
        for operation in ("th-1", "th-1", "ck-1", "ck-1"):
            tier.unpin("ck-1", operation)
        assert _is_whole(tier, "ck-1")
        tier.discard("ck-1")
        tier.discard("ck-1")
        assert tier.listing() == []

    def test_what_was_not_sealed_is_not_published(self, tier: Tier) -> None:
        """It would be a checkpoint without its digests."""
        write(tier, "ck-1")
        for operation in ("ck-1", "ck-2"):
            with pytest.raises(ArtifactUnknown):
                tier.publish(operation)
        assert tier.listing() == []

    def test_images_that_are_none_are_refused(self, tier: Tier) -> None:
        """Without what CRIU always writes there is nothing to restore."""
        write(tier, "ck-1", {"pages-1.img": b"m"})
        with pytest.raises(ArtifactRefused):
            seal(tier, "ck-1")

    def test_discarding_leaves_nothing(self, tier: Tier) -> None:
        """At whichever step: no file, and no room that is taken."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: write(tier, "ck-1"),
            lambda: seal(tier, "ck-1"),
            lambda: tier.publish("ck-1"),
            lambda: tier.unpin("ck-1", "ck-1"),
        )
        for count in range(1, len(steps) + 1):
            for step in steps[:count]:
                step()
            tier.discard("ck-1")
            assert self._nothing_of(tier, "ck-1"), f"after {count} steps"

    @staticmethod
    def _nothing_of(tier: Tier, operation: str) -> bool:
        use = tier.use()
        left = (use.artifacts_bytes, use.reserved_bytes, tier.promised_bytes())
        return left == (0, 0, 0) and not tier.has(operation) and not tier.has_of(operation) and not tier.listing()

    def test_logs_beside_an_artifact_go_with_its_operation(self, tier: Tier) -> None:
        """They are in a folder of its own, which is no part of the artifact."""
        keep(tier, "ck-1")
        work = Path(tier.pin("ck-1", "th-1").room.work)
        (work / "restore.log").write_bytes(b"x")
        assert tier.has_pin("ck-1", "th-1")
        tier.tidy("th-1")
        tier.tidy("th-1")
        assert not work.exists()
        tier.unpin("ck-1", "th-1")
        assert not tier.has_pin("ck-1", "th-1")
        assert _is_whole(tier, "ck-1")

    # Room

    def test_a_full_tier_says_so_and_keeps_nothing(self, tier: Tier, opened: Callable[..., Tier]) -> None:
        """Whether it is the budget that is full or the file system; what is there stays."""
        keep(tier, "ck-1")
        with pytest.raises(NoRoom):
            tier.reserve("ck-2", 4 * BYTES)
        with pytest.raises(NoRoom):
            opened(budget_bytes=1 << 62).reserve("ck-2", 1 << 61)
        assert not tier.has_of("ck-2")
        assert (tier.use().reserved_bytes, tier.promised_bytes()) == (0, 0)
        assert _is_whole(tier, "ck-1")
        write(tier, "ck-3")

    def test_the_budget_is_one_for_all_processes(self, opened: Callable[..., Tier]) -> None:
        """What one has reserved another one has not; what is published counts by its size, and removing it frees it."""
        one, other = opened(budget_bytes=2 * BYTES), opened(budget_bytes=2 * BYTES)
        write(one, "ck-1")
        assert (other.use().reserved_bytes, other.use().budget_bytes) == (BYTES, 2 * BYTES)
        assert 0 < other.promised_bytes() < BYTES
        with pytest.raises(NoRoom):
            other.reserve("ck-2", 3 * BYTES // 2)
        seal(one, "ck-1")
        one.publish("ck-1")
        assert (other.use().reserved_bytes, other.promised_bytes()) == (0, 0)
        assert 70_000 < other.use().artifacts_bytes < BYTES
        other.reserve("ck-2", 3 * BYTES // 2)
        other.discard("ck-2")
        one.discard("ck-1")
        other.reserve("ck-3", 2 * BYTES)

    # Using

    def test_what_is_pinned_stays(self, tier: Tier, opened: Callable[..., Tier]) -> None:
        """Until all who use it have let go, whoever asks."""
        write(tier, "ck-1")
        seal(tier, "ck-1")
        tier.publish("ck-1")
        kept = opened().pin("ck-1", "th-1")
        assert (kept.frozen, Path(kept.room.images), kept.returned) == (FROZEN, tier.images("ck-1"), ())
        for operation in ("ck-1", "th-1"):
            with pytest.raises(ArtifactInUse):
                tier.remove("ck-1")
            tier.unpin("ck-1", operation)
        tier.pin("ck-1", "th-2")
        with pytest.raises(ArtifactInUse):
            tier.discard("ck-1")
        tier.unpin("ck-1", "th-2")
        tier.remove("ck-1")
        assert self._nothing_of(opened(), "ck-1")

    def test_who_came_back_is_written_down(self, tier: Tier, opened: Callable[..., Tier]) -> None:
        """For who thaws it next: a tree that runs is not made a second time."""
        keep(tier, "ck-1")
        tasks = (TaskIdentity(7, 900, BOOT), TaskIdentity(8, 901, BOOT))
        for came in (tasks, tasks[:1]):
            tier.came_back("ck-1", came)
            assert opened().pin("ck-1", "th-1").returned == came
        assert _is_whole(tier, "ck-1")

    @pytest.mark.parametrize("damage", ["flip", "cut", "missing", "extra", "link"])
    def test_damage_is_found(self, tier: Tier, tmp_path: Path, damage: str) -> None:
        """A byte, a length, a file too many or too few, or a file that is somewhere else."""
        keep(tier, "ck-1")
        pages = tier.images("ck-1") / "pages-1.img"
        match damage:
            case "flip":
                pages.write_bytes(b"m" * 69_999 + b"n")
            case "cut":
                os.truncate(pages, 69_999)
            case "missing":
                pages.unlink()
            case "extra":
                pages.with_name("pages-2.img").write_bytes(b"m")
            case "link":
                pages.rename(tmp_path / "elsewhere")
                pages.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ArtifactRefused):
            tier.verify("ck-1", _reader)

    def test_what_is_not_there_is_unknown(self, tier: Tier) -> None:
        """Each method says so by the same error; a look gives nothing."""
        keep(tier, "ck-1")
        calls: tuple[Callable[[], object], ...] = (
            lambda: tier.pin("ck-2", "th-1"),
            lambda: tier.came_back("ck-2", ()),
            lambda: tier.verify("ck-2", _reader),
            lambda: tier.manifest("ck-2"),
            lambda: tier.remove("ck-2"),
        )
        for call in calls:
            with pytest.raises(ArtifactUnknown):
                call()
        assert (tier.look_at("ck-2"), tier.has("ck-2")) == (None, False)

    def test_what_images_hold_elsewhere_goes_with_them(self, opened: Callable[..., Tier]) -> None:
        """Whoever removes or discards an artifact is told of its images while they are there."""
        told = list[bool]()
        tier = opened(forget=lambda images, work: told.append((images / "pstree.img").exists()))
        write(tier, "ck-1")
        tier.discard("ck-1")
        keep(tier, "ck-2")
        tier.remove("ck-2")
        assert told == [True, True]

    # Copies

    @pytest.fixture
    def elsewhere(self, opened: Callable[..., Tier], tmp_path: Path) -> Tier:
        """Another tier of the kind, with an artifact in it, from which somebody came back."""
        other: Tier = opened(folder=tmp_path / "elsewhere")
        keep(other, "ck-1")
        other.came_back("ck-1", BACK)
        return other

    def test_a_copy_is_what_it_was_copied_from(self, tier: Tier, elsewhere: Tier) -> None:
        """Whole, under its own id and with the manifest that it had, and not before it is installed."""
        for step in COPY_STEPS:
            assert (tier.has("ck-1"), tier.listing()) == (False, [])
            step(tier, "mv-1", elsewhere, "ck-1")
        assert tier.text("ck-1") == elsewhere.text("ck-1")
        assert _is_whole(tier, "ck-1")
        (listed,) = tier.listing()
        assert (listed.artifact, listed.trouble, listed.pinned_by) == ("ck-1", "", ("mv-1",))
        assert (tier.use().reserved_bytes, tier.promised_bytes(), tier.has_room("mv-1")) == (0, 0, False)
        assert tier.pin("ck-1", "th-1").returned == BACK
        with pytest.raises(ArtifactInUse):
            tier.remove("ck-1")
        for operation in ("th-1", "mv-1"):
            tier.unpin("ck-1", operation)
        tier.remove("ck-1")
        assert self._nothing_of(tier, "ck-1")
        assert self._nothing_of(tier, "mv-1")

    def test_steps_of_a_copy_may_be_repeated(self, tier: Tier, elsewhere: Tier) -> None:
        """By who takes a move up."""
        for step in (copied, copied, adopted, adopted, installed, installed):
            step(tier, "mv-1", elsewhere, "ck-1")
        assert _is_whole(tier, "ck-1")
        tier.abandon("mv-1", "ck-1")
        tier.abandon("mv-1", "ck-1")
        assert self._nothing_of(tier, "ck-1")

    @pytest.mark.parametrize("damage", ["flip", "cut", "missing", "extra", "manifest", "other"])
    def test_a_copy_that_differs_is_none(self, tier: Tier, elsewhere: Tier, damage: str) -> None:
        """A byte, a length, a file too many or too few, or a manifest that is none, or of another artifact."""
        copied(tier, "mv-1", elsewhere, "ck-1")
        images, text, name = Path(tier.reserve("mv-1", BYTES).images), elsewhere.text("ck-1"), "ck-1"
        match damage:
            case "flip":
                (images / "pages-1.img").write_bytes(b"m" * 69_999 + b"n")
            case "cut":
                os.truncate(images / "pages-1.img", 69_999)
            case "missing":
                (images / "pages-1.img").unlink()
            case "extra":
                (images / "pages-2.img").write_bytes(b"m")
            case "manifest":
                text = text.replace(b"model", b"modem")
            case "other":
                name = "ck-2"
        with pytest.raises(ArtifactRefused):
            tier.adopt("mv-1", name, text, (), _reader)
        for call in (lambda: tier.install("mv-1", name), lambda: tier.adopt("mv-2", "ck-1", text, (), _reader)):
            with pytest.raises((ArtifactUnknown, ArtifactRefused)):
                call()
        tier.abandon("mv-1", "ck-1")
        assert self._nothing_of(tier, "mv-1")

    def test_abandoning_a_copy_leaves_nothing(self, tier: Tier, elsewhere: Tier) -> None:
        """At whichever step; but what is there by another name, or is used, stays."""
        for count in range(1, len(COPY_STEPS) + 1):
            for step in COPY_STEPS[:count]:
                step(tier, "mv-1", elsewhere, "ck-1")
            tier.abandon("mv-1", "ck-1")
            assert self._nothing_of(tier, "ck-1"), f"after {count} steps"
            assert self._nothing_of(tier, "mv-1"), f"after {count} steps"
        for step in COPY_STEPS:
            step(tier, "mv-2", elsewhere, "ck-1")
        tier.abandon("mv-1", "ck-1")
        assert _is_whole(tier, "ck-1"), "it is the copy of another move"
        tier.pin("ck-1", "th-1")
        with pytest.raises(ArtifactInUse):
            tier.abandon("mv-2", "ck-1")
        assert _is_whole(tier, "ck-1")

    def test_what_is_there_by_now_is_used(self, tier: Tier, elsewhere: Tier) -> None:
        """Two moves of one artifact: the second finds it, pins it, and leaves nothing of its own."""
        for step in COPY_STEPS[:2]:
            step(tier, "mv-1", elsewhere, "ck-1")
        for step in COPY_STEPS:
            step(tier, "mv-2", elsewhere, "ck-1")
        tier.install("mv-1", "ck-1")
        assert tier.listing()[0].pinned_by == ("mv-1", "mv-2")
        assert (tier.has_room("mv-1"), tier.use().reserved_bytes) == (False, 0)

    def test_what_lies_elsewhere_too_goes_alone(self, opened: Callable[..., Tier], elsewhere: Tier) -> None:
        """Not while somebody else uses it; and what its images hold elsewhere stays, for the copy needs it."""
        told = list[Path]()
        tier = opened(forget=lambda images, work: told.append(images))
        for step in COPY_STEPS:
            step(tier, "mv-1", elsewhere, "ck-1")
        tier.pin("ck-1", "th-1")
        with pytest.raises(ArtifactInUse):
            tier.drop("ck-1", "mv-1")
        tier.unpin("ck-1", "th-1")
        tier.drop("ck-1", "mv-1")
        with pytest.raises(ArtifactUnknown):
            tier.drop("ck-1", "mv-1")
        for step in COPY_STEPS:
            step(tier, "mv-2", elsewhere, "ck-1")
        tier.abandon("mv-2", "ck-1")
        assert self._nothing_of(tier, "ck-1")
        assert self._nothing_of(tier, "mv-1")
        assert told == []

    def test_a_copy_that_does_not_fit(self, tier: Tier, opened: Callable[..., Tier], elsewhere: Tier) -> None:
        """It is refused before anything is copied, and counts as long as it is there."""
        with pytest.raises(NoRoom):
            opened(budget_bytes=BYTES // 2).reserve("mv-1", BYTES)
        assert self._nothing_of(tier, "mv-1")
        for step in COPY_STEPS:
            step(tier, "mv-1", elsewhere, "ck-1")
        assert 70_000 < tier.use().artifacts_bytes < BYTES

    def test_a_copy_is_of_the_boot_in_which_it_was_made(self, opened: Callable[..., Tier], elsewhere: Tier) -> None:
        """A tree that was frozen long ago may lie in memory; after a reboot a copy there is none any more."""
        later = opened(boot_id="boot-2")
        text = elsewhere.text("ck-1")
        write(later, "mv-1", {each.name: each.read_bytes() for each in elsewhere.images("ck-1").iterdir()})
        later.adopt("mv-1", "ck-1", text, (), _reader)
        later.install("mv-1", "ck-1")
        assert _is_whole(later, "ck-1")
        if later.volatile:
            with pytest.raises(ArtifactRefused):
                opened(boot_id="boot-3").manifest("ck-1")

    @pytest.mark.parametrize("step", COPY_STEPS)
    def test_a_machine_that_stops_while_it_copies(
        self,
        opened: Callable[..., Tier],
        elsewhere: Tier,
        monkeypatch: pytest.MonkeyPatch,
        step: Callable[[Tier, str, Tier, str], None],
    ) -> None:
        """Before any of its syncs: nothing is seen or all, the next one repeats the call, or leaves nothing."""
        for count in range(1, 100):
            name = f"mv-{count}"
            for before in COPY_STEPS[: COPY_STEPS.index(step)]:
                before(opened(), name, elsewhere, "ck-1")
            with self._cut(monkeypatch, count) as was_cut:
                step(opened(), name, elsewhere, "ck-1")
            after = opened()
            assert not after.has("ck-1") or _is_whole(after, "ck-1")
            if count % 2:
                for again in COPY_STEPS[COPY_STEPS.index(step) :]:
                    again(opened(), name, elsewhere, "ck-1")
                assert _is_whole(opened(), "ck-1")
            opened().abandon(name, "ck-1")
            assert self._nothing_of(opened(), "ck-1")
            assert self._nothing_of(opened(), name)
            if not was_cut:
                return
        raise AssertionError("it syncs without an end")

    def test_a_machine_that_stops_while_it_drops(
        self, opened: Callable[..., Tier], elsewhere: Tier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before any of its syncs: all of it is there or nothing, and the next one removes the rest."""
        for count in range(1, 100):
            for step in COPY_STEPS:
                step(opened(), "mv-1", elsewhere, "ck-1")
            with self._cut(monkeypatch, count) as was_cut:
                opened().drop("ck-1", "mv-1")
            after = opened()
            assert not after.has("ck-1") or _is_whole(after, "ck-1")
            after.abandon("mv-1", "ck-1")
            for step in COPY_STEPS:
                step(after, "mv-2", elsewhere, "ck-1")
            after.drop("ck-1", "mv-2")  # with which goes what was left of others
            assert self._nothing_of(opened(), "ck-1")
            if not was_cut:
                return
        raise AssertionError("it syncs without an end")

    # Whose it is

    @pytest.mark.parametrize("wrong", ["readable", "link", "file"])
    def test_a_folder_that_is_not_ours_alone(self, tier: Tier, tmp_path: Path, wrong: str) -> None:
        """Nothing is read from it and nothing is written to it."""
        keep(tier, "ck-1")
        if wrong == "readable":
            tier.root.chmod(0o755)
        else:
            tier.root.rename(tmp_path / "aside")
            if wrong == "link":
                tier.root.symlink_to(tmp_path / "aside")
            else:
                tier.root.write_bytes(b"")
        before = sorted(tmp_path.rglob("*"))
        for call in self._calls(tier, "ck-1"):
            with pytest.raises(UnsafeRequest):
                call()
        with pytest.raises(UnsafeRequest):
            tier.check()
        assert sorted(tmp_path.rglob("*")) == before

    @pytest.mark.parametrize("name", BAD_IDS)
    def test_names_that_are_no_ids(self, tier: Tier, name: str) -> None:
        """They would lead elsewhere."""
        keep(tier, "ck-1")
        for call in self._calls(tier, name):
            with pytest.raises(UnsafeRequest):
                call()

    @staticmethod
    def _calls(tier: Tier, name: str) -> tuple[Callable[[], object], ...]:
        """Return a call of each method that has an id."""
        return (
            lambda: tier.reserve(name, 1),
            lambda: seal(tier, name),
            lambda: tier.publish(name),
            lambda: tier.discard(name),
            lambda: tier.tidy(name),
            lambda: tier.pin(name, "th-1"),
            lambda: tier.unpin(name, "th-1"),
            lambda: tier.came_back(name, ()),
            lambda: tier.verify(name, _reader),
            lambda: tier.remove(name),
            lambda: tier.manifest(name),
            lambda: tier.has(name),
            lambda: tier.has_room(name),
            lambda: tier.has_of(name),
            lambda: tier.has_pin(name, "th-1"),
            lambda: tier.look_at(name),
            lambda: tier.text(name),
            lambda: tier.adopt(name, "ck-9", b"", (), _reader),
            lambda: tier.adopt("mv-9", name, b"", (), _reader),
            lambda: tier.install(name, "ck-9"),
            lambda: tier.install("mv-9", name),
            lambda: tier.abandon(name, "ck-9"),
            lambda: tier.abandon("mv-9", name),
            lambda: tier.drop(name, "mv-9"),
            lambda: tier.drop("ck-9", name),
        )

    # What a crash leaves

    @pytest.mark.parametrize("is_copy", [False, True])
    def test_what_has_returned_is_on_the_disk(
        self, tier: Tier, elsewhere: Tier, monkeypatch: pytest.MonkeyPatch, *, is_copy: bool
    ) -> None:
        """All files of an artifact, and the folders that name them, were synced when it was published or installed."""
        synced = set[tuple[int, int]]()
        real = os.fsync

        def fsync(descriptor: int) -> None:
            found = os.fstat(descriptor)
            synced.add((found.st_dev, found.st_ino))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        if is_copy:
            for each in COPY_STEPS:
                each(tier, "mv-1", elsewhere, "ck-1")
        else:
            for step in STEPS:
                step(tier, "ck-1")
        images = tier.images("ck-1")
        missing = [
            str(each)
            for each in (images, *images.iterdir(), images.parent, images.parent.parent)
            if not tier.volatile and (each.stat().st_dev, each.stat().st_ino) not in synced
        ]
        assert missing == []

    def test_another_boot(self, tier: Tier, opened: Callable[..., Tier]) -> None:
        """A tier that is not volatile has all of it; one that is refuses what may be left, and can remove it."""
        keep(tier, "ck-1")
        later = opened(boot_id="boot-2")
        (listed,) = later.listing()
        if later.volatile:
            assert (listed.manifest is None, listed.trouble != "") == (True, True)
            for call in (lambda: later.manifest("ck-1"), lambda: later.verify("ck-1", _reader)):
                with pytest.raises(ArtifactRefused):
                    call()
            later.remove("ck-1")
            assert later.listing() == []
        else:
            assert listed.manifest == tier.manifest("ck-1")
            assert _is_whole(later, "ck-1")

    @pytest.mark.parametrize("step", STEPS)
    def test_a_machine_that_stops_while_it_writes(
        self, opened: Callable[..., Tier], monkeypatch: pytest.MonkeyPatch, step: Callable[[Tier, str], None]
    ) -> None:
        """Before any of its syncs: nothing is seen or all, the next one repeats the call, or leaves nothing."""
        for count in range(1, 100):
            name = f"ck-{count}"
            for before in STEPS[: STEPS.index(step)]:
                before(opened(), name)
            with self._cut(monkeypatch, count) as was_cut:
                step(opened(), name)
            after = opened()
            shown = [each.trouble for each in after.listing()]
            assert shown in ([], [""]), "what is shown is whole"
            assert not shown or _is_whole(after, name)
            if count % 2:
                for again in STEPS[STEPS.index(step) :]:
                    again(opened(), name)
                assert _is_whole(opened(), name)
            opened().discard(name)
            assert self._nothing_of(opened(), name)
            if not was_cut:
                return
        raise AssertionError("it syncs without an end")

    def test_a_machine_that_stops_while_it_removes(
        self, opened: Callable[..., Tier], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before any of its syncs: all of it is there or nothing, and the next one removes the rest."""
        for count in range(1, 100):
            name = f"ck-{count}"
            keep(opened(), name)
            with self._cut(monkeypatch, count) as was_cut:
                opened().remove(name)
            after = opened()
            assert not after.has(name) or _is_whole(after, name)
            after.discard(name)
            keep(after, "ck-0")
            after.remove("ck-0")  # with which goes what was left of others
            assert self._nothing_of(opened(), name)
            if not was_cut:
                return
        raise AssertionError("it syncs without an end")

    @staticmethod
    @contextlib.contextmanager
    def _cut(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[list[bool]]:
        """Stop before so many syncs have been done; the list is empty if there were fewer."""
        was_cut, left = list[bool](), [count]
        real = os.fsync

        def fsync(descriptor: int) -> None:
            left[0] -= 1
            if left[0] == 0:
                was_cut.append(True)
            if was_cut:
                raise _Cut
            real(descriptor)

        with monkeypatch.context() as patch, contextlib.suppress(_Cut):
            patch.setattr(os, "fsync", fsync)
            yield was_cut
