"""A move: one of the two places has all of it at every instant, whoever dies, uses it or removes it meanwhile."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for moves

from moves import FILES, MemoryRepository, Moving, Places

from iriscw.checkpoint import moving
from iriscw.checkpoint.effects import CopyOver, DropSource, PublishCopy, UndoCopy
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import ChunkDamaged, MovePhase, MovePlan
from iriscw.checkpoint.moving import MoveTurn
from iriscw.checkpoint.records import MoveBegan
from iriscw.freeze.messages import CancelOperation
from iriscw.freeze.model import ArtifactInUse, ArtifactUnknown, Outcome, TaskIdentity
from iriscw.objects.ports import StoreUnreachable
from iriscw.processes.identity import identify
from iriscw.runtime.vocabulary import Decision, Failed, Run
from iriscw.testing.contexts import FakeContext

PAGE = Path(__file__).parents[2] / "docs" / "tiers.md"

WAYS = [("ram", "disk"), ("disk", "ram"), ("ram", "repository"), ("repository", "disk")]


class Cut(BaseException):
    """What happens where the machine stops."""


def begun(places, source, target, **words):
    """Return a move of what lies in the source, and have it lie there."""
    if source == "repository":
        places.put("ram")
        run(Moving(places, MovePlan("mv-0", "ck-1", "repository")))
        places.repository.asked.clear()
    else:
        places.put(source)
    return Moving(places, MovePlan("mv-1", "ck-1", target, words.pop("keep", False)), **words)


def run(move):
    """Run a life of it, to its end."""
    anyio.run(move.life)
    return move


def outcome(move):
    """Return how it ended."""
    assert move.ended is not None
    return move.ended.outcome


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_it_comes_whole(tmp_path, source, target, keep):
    """To the target, and goes from where it lay unless it is kept; nothing else is left anywhere."""
    places = Places(tmp_path)
    move = run(begun(places, source, target, keep=keep))
    assert (outcome(move), move.ended.text) == (Outcome.COPIED if keep else Outcome.MOVED, "")
    assert sorted(places.whole()) == sorted([source, target] if keep else [target])
    assert places.debris() == []
    assert places.told == []


def test_bytes_are_told(tmp_path):
    """Those that are copied and those that are compared: all of them, and never more."""
    move = run(begun(Places(tmp_path), "ram", "disk"))
    size = sum(map(len, FILES.values()))
    assert (move.progress[-1].done_bytes, move.progress[-1].total_bytes) == (2 * size, 2 * size)


# Whoever dies


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_death_at_each_record(tmp_path, source, target, keep):
    """Before the step that it names or after it: the next life finishes it or leaves nothing at the target."""
    for count in range(40):
        places = Places(tmp_path / str(count))
        move = begun(places, source, target, keep=keep)
        left = [count]

        async def stop(effect, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Cut

        move.before = stop
        with contextlib.suppress(Cut):
            run(move)
        done = move.ended is not None
        if not done:
            move.before = None
            assert places.whole(), "C10: nobody has it"
            finished = move.state.phase in (MovePhase.PUBLISHING, MovePhase.DROPPING)
            run(move)
            assert (outcome(move) is not Outcome.STAYED) == finished
        _judge(places, move, source, target, keep=keep)
        if done:
            assert count == 4, "each step was cut"
            return
    raise AssertionError("it has no end")


def _judge(places, move, source, target, *, keep):
    """Hold where it lies against how the move ended."""
    match outcome(move):
        case Outcome.STAYED:
            assert places.whole() == [source]
        case Outcome.COPIED:
            assert keep
            assert sorted(places.whole()) == sorted([source, target])
        case Outcome.MOVED:
            assert not keep
            assert places.whole() == [target]
    assert places.debris() == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reboots", [False, True])
@pytest.mark.parametrize(("source", "target"), WAYS[:2])
def test_a_machine_that_stops_at_each_sync(tmp_path, monkeypatch, source, target, reboots):
    """In the middle of any step; after a reboot nothing in memory is left, and what lay on the disk is there (C10)."""
    real = os.fsync
    for count in range(1, 200):
        places = Places(tmp_path / str(count))
        move = begun(places, source, target)
        was_cut, left = [], [count]

        def fsync(descriptor, was_cut=was_cut, left=left):
            left[0] -= 1
            if left[0] == 0:
                was_cut.append(True)
            if was_cut:
                raise Cut
            real(descriptor)

        with monkeypatch.context() as patch, contextlib.suppress(Cut, BaseExceptionGroup):
            patch.setattr(os, "fsync", fsync)
            run(move)
        if not was_cut:
            assert outcome(move) is Outcome.MOVED
            return
        assert places.whole(), f"C10: nobody has it after {count} syncs"
        shows = [each.trouble for tier in places.tiers().folders.values() for each in tier.listing()]
        assert not any(shows), "C8: half of it can be seen"
        was_on_disk = "disk" in places.whole()
        if reboots:
            shutil.rmtree(tmp_path / str(count) / "ram", ignore_errors=True)
            places.boot = "boot-2"
        move.ended = None
        if move.records:
            run(move)
            assert move.state.ended is not None
        assert places.whole() or (reboots and not was_on_disk), f"C10: nobody has it after {count} syncs and a reboot"
        if not reboots and move.ended is not None:
            _judge(places, move, source, target, keep=False)
    raise AssertionError("it syncs without an end")


def test_a_copy_in_memory_that_a_reboot_took(tmp_path):
    """It was published, and the source was to go: it stays, and the move says that it did nothing (C10)."""
    places = Places(tmp_path)
    move = begun(places, "disk", "ram")

    async def reboot(effect):
        if isinstance(effect, DropSource):
            raise Cut

    move.before = reboot
    with pytest.raises(Cut):
        run(move)
    assert sorted(places.whole()) == ["disk", "ram"]
    shutil.rmtree(tmp_path / "ram")
    places.boot, move.before = "boot-2", None
    run(move)
    assert (outcome(move), move.ended.kind, places.whole()) == (Outcome.STAYED, "CopyLost", ["disk"])
    assert places.debris() == []


@pytest.mark.parametrize("silent", [False, True])
def test_the_last_copy_stays_when_it_cannot_be_read(tmp_path, silent):
    """It was removed from the repository, the process died, and the disk does not give its manifest (C10)."""
    places = Places(tmp_path)
    move = begun(places, "repository", "disk")

    async def die(effect):
        if isinstance(effect, DropSource):
            raise Cut

    move.before = die
    with pytest.raises(Cut):
        run(move)
    anyio.run(places.repository.remove, "ck-1")
    if silent:
        places.repository.failing = {"manifest": StoreUnreachable("no answer")}
    manifest = tmp_path / "disk" / "artifacts" / "ck-1" / "manifest.jsonl"
    text = manifest.read_bytes()
    manifest.write_bytes(text[:-9])
    move.before = None
    run(move)
    assert outcome(move) is Outcome.STAYED
    manifest.write_bytes(text)
    assert (places.whole(), places.debris()) == (["disk"], [])


# Whoever uses or removes it


ACTS = ("pin", "thaw", "remove", "copy", "lose")


@pytest.mark.sampled(3, by="act")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("source", "target"), WAYS[:3])
def test_what_others_do_before_each_step(tmp_path, source, target, keep, act):
    """A thaw that pins it, one that comes and goes, a removal, another move: somebody always has it (C10, C12)."""
    for step in (CopyOver, PublishCopy, DropSource):
        places = Places(tmp_path / step.__name__)
        move = begun(places, source, target, keep=keep)

        async def meanwhile(effect, step=step, places=places):
            if isinstance(effect, step):
                await _act(act, places, source, target)
            assert places.whole(), "C10: nobody has it"

        move.before = meanwhile
        run(move)
        held = places.whole()
        assert held, "C10: nobody has it"
        tiers = places.tiers().folders
        match act:
            case "pin":
                assert outcome(move) is Outcome.COPIED
                assert sorted(held) == sorted([source, target])
                assert keep or f"it stays in {source}, too" in move.ended.text
                tiers[source].unpin("ck-1", "th-1")
            case "thaw" if target == "repository":
                assert outcome(move) is Outcome.COPIED
                assert source in held, "a repository does not say who came back"
            case "thaw":
                assert tiers[target].pin("ck-1", "th-2").returned == (_ourselves(),)
                tiers[target].unpin("ck-1", "th-2")
            case "lose" if target != "repository" and step is DropSource and not keep:
                assert (outcome(move), held) == (Outcome.STAYED, [source])
        assert places.debris() == []


def _ourselves():
    """Return a process that lives."""
    own = identify(os.getpid())
    return TaskIdentity(own.pid, own.start_ticks, own.boot_id)


async def _act(act, places, source, target):
    tiers = places.tiers()
    match act:
        case "pin":
            tiers.folders[source].pin("ck-1", "th-1")
        case "thaw":
            await _thaw(tiers)
        case "remove":
            with pytest.raises(ArtifactInUse):
                await tiers.remove("ck-1")
        case "copy" if target != "repository":
            other = Moving(places, MovePlan("mv-2", "ck-1", target, keep=True))
            await other.life()
            assert outcome(other) is Outcome.STAYED  # the first one uses it
        case "lose" if target != "repository":  # somebody with rights of ours, and no respect
            shutil.rmtree(tiers.folders[target].root / "artifacts" / "ck-1", ignore_errors=True)


async def _thaw(tiers):
    kept = await tiers.pin("ck-1", "th-1")
    await tiers.came_back("ck-1", (*kept.returned, _ourselves()))
    await tiers.unpin("ck-1", "th-1")


def test_what_is_used_is_not_begun_with(tmp_path):
    """By a thaw, or by the freeze that made it: that may have to remove it."""
    places = Places(tmp_path)
    move = begun(places, "ram", "disk")
    for operation in ("th-1", "ck-1"):
        places.tiers().folders["ram"].pin("ck-1", operation)
        refused = run(Moving(places, move.plan))
        assert (outcome(refused), refused.ended.kind) == (Outcome.STAYED, "ArtifactInUse")
        places.tiers().folders["ram"].unpin("ck-1", operation)
    assert (places.whole(), places.debris()) == (["ram"], [])


def test_a_copy_is_not_thawed_when_the_tree_runs(tmp_path):
    """Who came back stands beside each copy, whichever was thawed, and when."""
    places = Places(tmp_path)
    move = begun(places, "ram", "disk", keep=True)
    anyio.run(_thaw, places.tiers())
    run(move)
    disk = places.tiers().folders["disk"]
    assert disk.pin("ck-1", "th-2").returned == (_ourselves(),)
    disk.came_back("ck-1", ())
    assert anyio.run(places.tiers().pin, "ck-1", "th-3").returned == (_ourselves(),)
    anyio.run(places.tiers().came_back, "ck-1", ())
    assert anyio.run(places.tiers().pin, "ck-1", "th-4").returned == ()
    anyio.run(places.tiers().came_back, "ck-1", (_ourselves(),))
    assert disk.pin("ck-1", "th-5").returned == (_ourselves(),)


# What is there already, and what is not


def test_what_is_there_is_not_copied(tmp_path):
    """It is compared, before the other copy goes; with --keep nothing at all is done."""
    places = Places(tmp_path)
    run(begun(places, "ram", "disk", keep=True))
    again = run(Moving(places, MovePlan("mv-2", "ck-1", "disk", keep=True)))
    assert (outcome(again), places.whole()) == (Outcome.COPIED, ["ram", "disk"])
    last = run(Moving(places, MovePlan("mv-3", "ck-1", "disk")))
    assert (outcome(last), places.whole()) == (Outcome.MOVED, ["disk"])
    alone = run(Moving(places, MovePlan("mv-4", "ck-1", "disk")))
    assert (outcome(alone), places.whole()) == (Outcome.MOVED, ["disk"])
    assert not [each for each in alone.progress if each.phase == "copying"]
    assert places.debris() == []


def test_another_one_at_the_target(tmp_path):
    """It has the same name and is whole: nothing is removed for it."""
    places, other = Places(tmp_path), Places(tmp_path / "other")
    run(begun(places, "ram", "disk", keep=True))
    other.put("disk", files={**FILES, "pages-1.img": b"n" * 70_000})
    shutil.rmtree(tmp_path / "disk" / "artifacts" / "ck-1")
    (tmp_path / "other" / "disk" / "artifacts" / "ck-1").rename(tmp_path / "disk" / "artifacts" / "ck-1")
    move = run(Moving(places, MovePlan("mv-2", "ck-1", "disk")))
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "ArtifactRefused")
    assert "another" in move.ended.text
    assert (places.whole(), places.debris()) == (["ram", "disk"], [])


def test_what_the_repository_alone_has_is_there(tmp_path):
    """Whoever moves it there once more, as after a crash, hears that it is there."""
    places = Places(tmp_path)
    run(begun(places, "ram", "repository"))
    again = run(Moving(places, MovePlan("mv-2", "ck-1", "repository")))
    assert (outcome(again), places.whole()) == (Outcome.MOVED, ["repository"])
    assert "repository" in again.ended.text
    assert "remove" not in places.repository.asked
    assert places.debris() == []


def test_a_damaged_copy_keeps_the_good_one(tmp_path):
    """Nothing is removed for a copy that is not what it should be; and what is damaged is not moved (C9, C10)."""
    places = Places(tmp_path)
    run(begun(places, "ram", "disk", keep=True))
    (tmp_path / "disk" / "artifacts" / "ck-1" / "images" / "pages-1.img").write_bytes(b"n" * 70_000)
    refused = run(Moving(places, MovePlan("mv-2", "ck-1", "disk")))
    assert (outcome(refused), refused.ended.kind) == (Outcome.STAYED, "ArtifactRefused")
    assert places.tiers().folders["ram"].has("ck-1")
    other = Places(tmp_path / "other")
    move = begun(other, "ram", "disk")
    (tmp_path / "other" / "ram" / "artifacts" / "ck-1" / "images" / "pages-1.img").write_bytes(b"n" * 70_000)
    run(move)
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "ArtifactRefused")
    assert (other.tiers().folders["disk"].listing(), other.debris()) == ([], [])


def test_what_a_repository_stores_is_read_back(tmp_path):
    """Before the source goes, while it still copies: chunks that it shares may be damaged (C10)."""
    places = Places(tmp_path)
    move = begun(places, "ram", "repository")
    places.repository.failing = {"verify": ChunkDamaged("a chunk is damaged", "p")}
    run(move)
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "ChunkDamaged")
    assert [record.phase for record in move.records if isinstance(record, MoveBegan)] == []
    assert (places.whole(), places.debris()) == (["ram", "repository"], [])
    places.repository.failing = {}
    places.repository.asked.clear()
    run(Moving(places, MovePlan("mv-2", "ck-1", "repository")))
    assert (places.repository.asked, places.whole()) == (["store", "verify", "manifest"], ["repository"])


def test_what_stays_here_is_not_read_back(tmp_path):
    """Nothing is at stake, and it would take as long again."""
    places = Places(tmp_path)
    run(begun(places, "ram", "repository", keep=True))
    assert places.repository.asked == ["store", "manifest"]


def test_another_one_in_the_repository_keeps_the_source(tmp_path):
    """Somebody has stored it in the place of this one, since it was read back (C10)."""
    places, other = Places(tmp_path), Places(tmp_path / "other")
    move = begun(places, "ram", "repository")
    run(begun(other, "ram", "repository"))

    async def before(effect):
        if isinstance(effect, DropSource):
            places.repository.kept = other.repository.kept

    move.before = before
    run(move)
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "CopyLost")
    assert (places.whole(), places.debris()) == (["ram", "repository"], [])


def test_a_copy_that_cannot_be_used_is_passed_over(tmp_path):
    """The next one is taken; where a certain one is meant, no other is, and nothing stays in use."""
    places = Places(tmp_path)
    run(begun(places, "ram", "disk", keep=True))
    manifest = tmp_path / "ram" / "artifacts" / "ck-1" / "manifest.jsonl"
    text = manifest.read_bytes()
    manifest.write_bytes(text[:-9])
    for source, end in (("ram", Outcome.STAYED), ("shelf", Outcome.STAYED), ("", Outcome.MOVED)):
        move = run(Moving(places, MovePlan("mv-2", "ck-1", "repository", source=source)))
        assert outcome(move) is end
        assert places.debris() == []
    assert "ck-1" in places.repository.kept
    assert not places.tiers().folders["disk"].has("ck-1")


@pytest.mark.parametrize("target", ["disk", "repository"])
def test_what_is_nowhere(tmp_path, target):
    """It says so by name, and nothing is made."""
    move = run(Moving(Places(tmp_path), MovePlan("mv-1", "ck-9", target)))
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, ArtifactUnknown.__name__)


def test_a_target_without_room(tmp_path):
    """It is refused before a byte is copied."""
    places = Places(tmp_path)
    move = run(begun(places, "ram", "disk", budgets={"disk": 1000}))
    assert (outcome(move), move.ended.kind, move.progress) == (Outcome.STAYED, "NoRoom", [])
    assert (places.whole(), places.debris()) == (["ram"], [])
    stored = Places(tmp_path / "stored")
    move = run(begun(stored, "repository", "disk", budgets={"disk": 1000}))
    assert (outcome(move), move.ended.kind, "fetch" in stored.repository.asked) == (Outcome.STAYED, "NoRoom", False)
    assert (stored.whole(), stored.debris()) == (["repository"], [])


def test_what_comes_damaged_from_the_repository(tmp_path):
    """It is compared before anybody can use it, and the repository is asked what is damaged: others share it (C9)."""
    places = Places(tmp_path)
    move = begun(places, "repository", "disk")
    places.repository.kept["ck-1"][1]["pages-1.img"] = b"x" * 70_000
    places.repository.failing = {"verify": ChunkDamaged("a chunk is damaged", "pack")}
    run(move)
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "ChunkDamaged")
    assert ("verify" in places.repository.asked, places.debris()) == (True, [])
    assert not places.tiers().folders["disk"].has("ck-1")


def test_there_is_no_repository(tmp_path):
    """Who names it is told so."""
    places = Places(tmp_path, None)
    move = run(begun(places, "ram", "repository"))
    assert (outcome(move), move.ended.kind) == (Outcome.STAYED, "NoRepository")


# The repository


def test_the_repository_is_asked_last(tmp_path):
    """What a tier has is looked for nowhere else, and goes from there alone (C11)."""
    places = Places(tmp_path)
    run(begun(places, "repository", "disk", keep=True))
    places.repository.failing = dict.fromkeys(("manifest", "listing", "fetch"), StoreUnreachable("no answer"))
    move = run(Moving(places, MovePlan("mv-2", "ck-1", "ram")))
    assert (outcome(move), places.whole()) == (Outcome.MOVED, ["ram", "repository"])


@pytest.mark.parametrize("method", ["store", "verify", "manifest", "fetch", "remove"])
@pytest.mark.parametrize(("source", "target"), WAYS[2:])
def test_a_repository_that_does_not_answer(tmp_path, source, target, method):
    """Silence is no absence: nothing goes for it, and nothing is left (C10, C11)."""
    places = Places(tmp_path)
    move = begun(places, source, target)
    places.repository.failing = {method: StoreUnreachable("no answer")}
    run(move)
    places.repository.failing = {}
    assert places.whole()
    match outcome(move):
        case Outcome.STAYED:
            assert source in places.whole()
            assert move.ended.kind == "StoreUnreachable"
        case Outcome.COPIED:
            assert sorted(places.whole()) == sorted([source, target])
            assert "no answer" in move.ended.text
    assert places.debris() == []


def test_what_is_stored_is_listed_apart_and_removed_with_the_rest(tmp_path):
    """A removal is of all copies; one that is used keeps all of them."""
    places = Places(tmp_path)
    run(begun(places, "ram", "repository", keep=True))
    run(Moving(places, MovePlan("mv-2", "ck-1", "disk", keep=True)))
    assert [each.tier for each in anyio.run(places.tiers().stored)] == ["repository"]
    places.tiers().folders["disk"].pin("ck-1", "th-1")
    with pytest.raises(ArtifactInUse):
        anyio.run(places.tiers().remove, "ck-1")
    assert places.whole() == ["ram", "disk", "repository"]
    places.tiers().folders["disk"].unpin("ck-1", "th-1")
    anyio.run(places.tiers().remove, "ck-1")
    assert places.whole() == []
    with pytest.raises(ArtifactUnknown):
        anyio.run(places.tiers().remove, "ck-1")


# The table


def test_every_phase_has_a_row():
    """Only what owes nothing has none; what may have been seen is finished, and what was not is undone."""
    assert {*moving.PHASES} == {*MovePhase} - {MovePhase.NEW, MovePhase.OVER}
    undone = [phase for phase, row in moving.PHASES.items() if row.crashed is MoveTurn.UNDO]
    assert undone == [*moving.CANCELLABLE]


TURNS = {MoveTurn.UNDO: "undone", MoveTurn.AGAIN: "taken again"}


def test_the_page_shows_the_table():
    """docs/tiers.md has a row for each phase, as the code has it."""
    rows = [
        f"| {phase.value} | {row.does} | {row.then.value} | {TURNS[row.failed]} | {TURNS[row.crashed]} |"
        for phase, row in moving.PHASES.items()
    ]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("phase", [*MovePhase])
def test_a_cancellation(tmp_path, phase):
    """It undoes what nobody has seen, and changes nothing later."""
    places = Places(tmp_path)
    move = begun(places, "ram", "disk")
    stops = {MovePhase.OPENING: "OpenSource", MovePhase.COPYING: "CopyOver", MovePhase.PUBLISHING: "PublishCopy"}
    stop_at = stops.get(phase, "DropSource")
    if phase in (MovePhase.NEW, MovePhase.OVER, MovePhase.UNDOING):
        assert (
            moving.cancel(moving.CheckpointMove(phase=phase, plan=move.plan), CancelOperation("no"), FakeContext())
            is None
        )
        return

    async def stop(effect):
        if type(effect).__name__ == stop_at:
            raise Cut

    move.before = stop
    with pytest.raises(Cut):
        run(move)
    decided = moving.cancel(move.state, CancelOperation("no"), FakeContext())
    assert (decided is not None) == (phase in moving.CANCELLABLE)


def test_what_cannot_be_removed_is_tried_again_and_said(tmp_path):
    """That it stays changes no outcome (C15)."""
    places = Places(tmp_path)
    move = begun(places, "ram", "disk")
    run(move)
    state = moving.CheckpointMove()
    for record in move.records[:-1]:
        moving.evolve(state, record)
    ended = _failing(state, DropSource("mv-1", "ck-1", "ram", "disk", "", keep=False))
    assert ended.outcome is Outcome.COPIED
    assert "busy" in ended.text
    copying = Failed(moving.KEY, CopyOver("mv-1", "ck-1", "ram", "disk", 1, keep=False), OSError("torn"))
    moving.evolve(state, moving.failed(state, copying, FakeContext()).records[0])
    ended = _failing(state, UndoCopy("mv-1", "ck-1", "ram", "disk"))
    assert (ended.outcome, "torn" in ended.text, "busy" in ended.text) == (Outcome.STAYED, True, True)


def _failing(state, effect):
    """Have an effect fail for ever; give the record of the end."""
    for _ in range(100):
        decided = moving.failed(state, Failed(moving.KEY, effect, OSError("busy")), FakeContext())
        if isinstance(decided, Decision):
            return decided.records[0]
        (command,) = decided
        effect = command.effect if isinstance(command, Run) else command.message.effect
    raise AssertionError("it has no end")


def test_a_repository_of_the_test_is_one():
    """Another checkpoint by the same name is refused, as the port says."""
    assert MemoryRepository().name == "repository"


@pytest.mark.parametrize(
    ("artifact", "target", "source", "asks"),
    [
        ("ck-1", "disk", "", False),
        ("ck-1", "repository", "", True),
        ("ck-1", "disk", "repository", True),
        ("ck-2", "disk", "", True),
    ],
)
def test_which_moves_ask_the_repository(tmp_path, artifact, target, source, asks):
    """Whoever takes one up needs the same repository, and for a move between two tiers none at all."""
    places = Places(tmp_path)
    places.put("ram")
    message = MoveCheckpoint(MovePlan("mv-1", artifact, target, source=source))
    assert anyio.run(places.tiers().asks_repository, message) is asks
    places.repository = None
    assert anyio.run(places.tiers().asks_repository, message) is False
