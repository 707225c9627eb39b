"""``checkpoint``, ``restore`` and ``checkpoints`` where nothing can be frozen: what is said, and with which code."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from artifacts import FROZEN, fill

from iriscw._errors import JournalLocked
from iriscw.agent import local as local_module
from iriscw.agent.claims import TargetBusy, claim, frozen_by_us, thawed_by_us
from iriscw.agent.local import (
    FREEZE,
    FreezeUndone,
    Local,
    ThawFailed,
    TreeLost,
    failure_of,
    new_id,
    state_folder,
    tiers_below,
)
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.files import remove_tree
from iriscw.freeze.messages import FreezeTree, OperationChanged, OperationEnded
from iriscw.freeze.model import FreezePhase, FreezePlan, Outcome, TaskIdentity, ThawPlan, TreeLeft
from iriscw.freeze.records import FreezeAccepted, FreezeEnded, ThawAccepted
from iriscw.freeze.traits import CarriedFolder
from iriscw.journal.sqlite import SqliteJournal
from raised import that

pytestmark = pytest.mark.usefixtures("claims_of_ours")


THREADED = """
import sys, threading
thread = threading.Thread(target=sys.stdin.readline)
thread.start()
print(thread.native_id, flush=True)
"""


@pytest.fixture
def command(iriscw, tmp_path, monkeypatch):
    """The command line with a state of its own, and no CRIU."""
    monkeypatch.setenv("IRISCW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "no-criu"))
    monkeypatch.setattr(
        "iriscw.agent.machine.tiers_below",
        lambda state, **words: tiers_below(state, **{**words, "folders": {"ram": tmp_path / "memory"}}),
    )
    return iriscw


@pytest.fixture
def kept(tmp_path):
    """A checkpoint on disk."""
    return keep(tmp_path, "ck-1", FROZEN)


def keep(folder, name, frozen):
    """Keep a checkpoint on disk, below the state folder of a command."""
    disk = tiers_below(folder / "state", folders={"ram": folder / "memory"}).folders["disk"]
    fill(disk.reserve(name, 1 << 20), large=False)
    disk.seal(name, frozen, (("model", "a"),), default_reading(lambda count: None), lambda size: None)
    disk.publish(name)
    disk.unpin(name, name)
    return disk


def test_no_criu(command):
    """It is said before anything is touched, with the way to get one."""
    # A process of its own: below the one that runs all tests others come and go while it is read.
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as target:
        code, out, err = command("checkpoint", "--pid", str(target.pid))
        target.communicate(b"\n")
    assert (code, out) == (3, "")
    assert "iriscw: it was not frozen, and runs as before: CriuMissing: there is no CRIU" in err
    assert "installs it" in err


def test_no_such_process(command):
    """A number that nobody has is not a target."""
    code, _, err = command("checkpoint", "--pid", str((1 << 22) - 1))
    assert code == 3
    assert "TargetGone" in err


@pytest.mark.parametrize("address", ["ftp://x", "http://x/?key=hunter2"])
def test_an_address_that_is_none_is_told_by_its_option(command, address):
    """That whose address it is, at a thaw."""
    code, _, err = command("restore", "ck-000000000000", "--verify-url", address)
    assert (code, "--verify-url: the hook's address" in err, "hunter2" in err) == (2, True, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--label", "model"], "has no '='"),
        (["--label", "a=1", "--label", "a=2"], "two values"),
        (["--hook-url", "http://x", "--hook-exec", "y"], "one of them at most"),
        (["--hook-url", "http://user:secret@x/app"], "--hook-url: the hook's address has a user or a password"),
        (["--tier", "tape"], "there is no tier 'tape': there are ram, disk"),
    ],
)
def test_impossible_arguments(command, arguments, said):
    """They are named before anything is done."""
    code, _, err = command("checkpoint", "--pid", str(os.getppid()), *arguments)
    assert code == 2
    assert said in err
    assert "secret" not in err


def test_the_list(command, kept):
    """People see a line for each, programs every field but the files; labels select."""
    code, out, _ = command("checkpoints")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["ck-1", "disk", "0.1"]
    (found,) = json.loads(command("checkpoints", "-o", "json", "--label", "model=a")[1])
    assert found["manifest"]["frozen"]["tasks"][0]["identity"]["pid"] == 100
    assert "files" not in found["manifest"]
    assert json.loads(command("checkpoints", "-o", "json", "--label", "model=b")[1]) == []


@pytest.mark.parametrize(("selector", "count"), [("model in (a,b),!owner", 1), ("model!=a", 0), ("", 1)])
def test_the_list_by_selector(command, kept, selector, count):
    """It is as selective as the selector says, also beside labels."""
    assert len(json.loads(command("checkpoints", "-o", "json", "--label", "model=a", "-l", selector)[1])) == count


def test_retention(command, kept, tmp_path):
    """What the policy lets go is removed, and said; a dry run only says it; what is in use stays."""
    kept.pin("ck-1", "th-1")
    keep(tmp_path, "ck-2", FROZEN)
    code, _, err = command("checkpoints", "--retain", "max-checkpoints=1", "--dry-run")
    assert (code, "would remove ck-2: beyond max-checkpoints" in err) == (0, True)
    assert names(command("checkpoints")) == ["ck-1", "ck-2"]
    code, out, err = command("checkpoints", "--retain", "max-checkpoints = 0, max-age=300d")
    assert (code, "removed ck-2" in err, "ck-1" in err) == (0, True, False)
    assert names((code, out, err)) == ["ck-1"]


def names(ran):
    """Return the checkpoints that a command listed."""
    return sorted(line.split()[0] for line in ran[1].splitlines()[1:])


def test_retention_leaves_what_is_not_selected(command, kept):
    """A policy is about what the selector wants."""
    command("checkpoints", "-l", "model=b", "--retain", "max-checkpoints=0")
    assert names(command("checkpoints")) == ["ck-1"]
    command("checkpoints", "-l", "model=a", "--retain", "max-checkpoints=0")
    assert names(command("checkpoints")) == []


POLICIES = ("", "per=job", "max-checkpoints", "max-checkpoints=x", "max-age=1h,max-age=2h", "a=1")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_is_none(command, kept, policy):
    """It is refused, and removes nothing."""
    assert command("checkpoints", "--retain", policy)[0] == 2
    assert command("checkpoints", "--dry-run")[0] == 2
    assert names(command("checkpoints")) == ["ck-1"]


def test_a_selector_that_is_none(command, kept):
    """It is refused before anything is removed."""
    code, _, err = command("checkpoints", "--selector", "model=", "--selector", "model=a b", "--remove", "ck-1")
    assert (code, "selector 'model=a b'" in err) == (2, True)
    assert command("checkpoints")[1].splitlines()[1].split()[0] == "ck-1"


def test_one_that_is_damaged_is_listed(command, kept):
    """With what is wrong with it, so that somebody can remove it."""
    (kept.root / "artifacts" / "ck-1" / "manifest.jsonl").write_bytes(b"x\n")
    code, out, _ = command("checkpoints")
    assert code == 0
    assert "not JSON" in out
    code, out, _ = command("checkpoints", "--remove", "ck-1")
    assert code == 0
    assert "ck-1" not in out
    code, _, err = command("checkpoints", "--remove", "ck-1")
    assert code == 2
    assert "there is no checkpoint ck-1 here" in err


def test_several_are_removed_at_once(command, kept, tmp_path):
    """Each is named; in a list, one that is not there ends it, and those before it are gone."""
    keep(tmp_path, "ck-2", FROZEN)
    keep(tmp_path, "ck-3", FROZEN)
    code, out, err = command("checkpoints", "--remove", "ck-1", "--remove", "ck-3", "-o", "json")
    assert (code, [each["artifact"] for each in json.loads(out)]) == (0, ["ck-2"])
    assert [line for line in err.splitlines() if "removed" in line] == ["iriscw: removed ck-1", "iriscw: removed ck-3"]


def test_the_state_of_a_suspended_task_is_not_removed_here(command, tmp_path):
    """Its controller knows whether it is needed. What no attempt can go on from any more is removed; one that carries
    the attempt's folder may be all that its job has.
    """
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    keep(tmp_path, "ck-1", attrs.evolve(FROZEN, guard=str(attempt)))
    code, _, err = command("checkpoints", "--remove", "ck-1")
    assert (code, "whose attempt is still here" in err) == (2, True), err
    attempt.rmdir()
    code, out, _ = command("checkpoints", "--remove", "ck-1")
    assert (code, "ck-1" in out) == (0, False)
    keep(tmp_path, "ck-2", attrs.evolve(FROZEN, guard=str(attempt), carried=CarriedFolder(str(attempt), "ck-2", 0)))
    code, _, err = command("checkpoints", "--remove", "ck-2")
    assert (code, "is to come to a repository" in err) == (2, True), err


def test_a_pin_of_an_operation_that_is_lost(command, kept):
    """It keeps a checkpoint from being removed, says whose it is, and is let go when somebody says so."""
    kept.pin("ck-1", "th-lost")
    code, _, err = command("checkpoints", "--remove", "ck-1")
    assert code == 3
    assert "ArtifactInUse: artifact ck-1 is used by operation th-lost" in err
    assert "checkpoints --release ck-1" in err
    code, out, err = command("checkpoints", "--release", "ck-1")
    assert (code, "ck-1" in out) == (0, True), err
    assert "operation th-lost, which is lost, uses ck-1 no more" in err
    assert command("checkpoints", "--remove", "ck-1")[0] == 0
    assert [*(kept.root / "pins").iterdir(), *(kept.root / "work").iterdir()] == []


def test_a_pin_of_an_operation_that_is_not_lost(command, kept, tmp_path):
    """One that is written down here, that of an agent, and one that works on it now, stay."""
    kept.pin("ck-1", "th-1")
    folder = tmp_path / "state" / "operations" / "th-1"
    journal = SqliteJournal.open(folder / "journal")  # which is locked: a command runs it
    code, _, err = command("checkpoints", "--release", "ck-1")
    assert (code, "ArtifactInUse: operation th-1 uses ck-1, and is not over" in err) == (3, True), err
    journal.close()
    remove_tree(folder)
    with claim(thawed_by_us("ck-1")):
        code, _, err = command("checkpoints", "--release", "ck-1")
    assert (code, "TargetBusy" in err) == (3, True)
    journal = SqliteJournal.open(tmp_path / "state" / "agent" / "journal")
    code, _, err = command("checkpoints", "--release", "ck-1")
    assert (code, "an agent serves this state" in err) == (3, True)
    journal.append("/operations/th-1", [ThawAccepted(ThawPlan("th-1", "ck-1"), 0)])
    journal.close()
    code, _, err = command("checkpoints", "--release", "ck-1")
    assert (code, "ArtifactInUse" in err) == (3, True)
    assert (kept.root / "pins" / "ck-1" / "th-1").exists()
    code, _, err = command("checkpoints", "--release", "ck-9")
    assert (code, "there is no checkpoint ck-9" in err) == (2, True)
    assert command("checkpoints", "--release", "ck-1", "--agent", "/nowhere")[0] == 2


@pytest.mark.parametrize("below", [".", "operations"])
def test_a_state_that_others_could_write(command, kept, tmp_path, below):
    """Its journals name programs that are run: nothing of it is read, nothing taken up, nothing begun."""
    (tmp_path / "state" / "operations").mkdir(mode=0o700)
    (tmp_path / "state" / below).chmod(0o777)
    for arguments in (["checkpoints"], ["restore", "ck-1"], ["checkpoint", "--pid", str(os.getppid())]):
        code, _, err = command(*arguments)
        assert (code, "not safe" in err) == (2, True), err
    assert [*(tmp_path / "state" / "operations").iterdir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_state_of_a_stranger(command, kept, tmp_path):
    """Whoever owns it could change what is in it, whatever its mode."""
    os.chown(tmp_path / "state", 12345, 12345)
    code, _, err = command("checkpoints")
    assert (code, "not safe" in err) == (2, True), err


def test_what_one_operation_left_stops_no_other(command, kept, tmp_path):
    """A journal that is damaged, or something that is no operation at all, is told of and stays."""
    operations = tmp_path / "state" / "operations"
    (operations / "ck-bad" / "journal").mkdir(parents=True)
    (operations / "ck-bad" / "journal" / "journal.db").write_bytes(b"no journal" * 500)
    (operations / "stray").write_bytes(b"")
    code, out, _ = command("checkpoints")
    assert code == 0
    assert "ck-1" in out
    assert (operations / "stray").exists()


def test_a_thaw_of_nothing(command):
    """What is not there is not thawed, and no operation stays."""
    code, _, err = command("restore", "ck-9")
    assert (code, err.splitlines()[-1]) == (
        2,
        "iriscw: there is no checkpoint ck-9 here; `iriscw checkpoints` lists those there are",
    )
    code, _, err = command("restore", "../ck")
    assert code != 0
    assert "is not a valid id" in err


def test_where_state_lies(tmp_path):
    """As the page says."""
    assert state_folder({"IRISCW_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}) == Path("/a")
    assert state_folder({"XDG_STATE_HOME": "/b"}) == Path("/b/iriscw")
    assert state_folder({}) == Path.home() / ".local" / "state" / "iriscw"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome.FROZEN, None),
        (Outcome.COPIED, None),
        (Outcome.THAWED, None),
        (Outcome.UNDONE, FreezeUndone),
        (Outcome.LOST, TreeLost),
        (Outcome.FAILED, ThawFailed),
        (Outcome.LEFT, TreeLeft),
    ],
)
def test_what_an_end_means(outcome, error):
    """Each bad end is an error of its own."""
    failure = failure_of(OperationEnded("op", outcome, "Why", "because"))
    assert (type(failure) if failure else None) is error
    assert failure is None or "because" in str(failure)


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in Outcome if failure_of(OperationEnded("op", outcome, "", ""))]
)
@pytest.mark.parametrize("kind", ["TargetGone", "TreeLeft", "Cancelled"])
def test_a_tree_that_does_not_run_is_not_said_to_run(outcome, kind):
    """Only one that was undone runs, and not if it had ended by itself; whoever lost or left one hears of that."""
    said = str(failure_of(OperationEnded("op", outcome, kind, "process 5 has ended")))
    assert ("runs as before" in said) is (outcome is Outcome.UNDONE and kind != "TargetGone")
    assert "process 5 has ended" in said


def test_what_a_guard_refuses_names_the_way_out():
    """The state of a suspended task comes back by `resume` alone."""
    end = OperationEnded("op", Outcome.FAILED, "GuardRefused", "process 5 found no grant to go on")
    assert "`iriscw resume JOB`" in str(failure_of(end))
    assert "resume" not in str(failure_of(attrs.evolve(end, kind="HookFailed")))


def test_a_thread_is_no_process(command):
    """Its number is refused by name, before anything is done."""
    with subprocess.Popen([sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        thread = int(target.stdout.readline())
        code, out, err = command("checkpoint", "--pid", str(thread))
        target.communicate(b"\n")
    assert (code, out) == (3, "")
    assert f"TargetUnfit: {thread} is a thread of process {target.pid}" in err


@pytest.mark.anyio
async def test_an_operation_that_is_over_leaves_nothing(tmp_path):
    """Its folder goes with the next command; one that another command runs is left alone."""
    local = Local(tmp_path, None)
    root = TaskIdentity(100, 1, "b")
    for name, records in {"done": (FreezeEnded(Outcome.UNDONE, "", "", 1),), "empty": (), "busy": ()}.items():
        journal = SqliteJournal.open(tmp_path / "operations" / name / "journal")
        if records:
            journal.append(FREEZE, [FreezeAccepted(FreezePlan("op", root, "ram"), 1), *records])
        if name != "busy":
            journal.close()
            continue
        busy = journal
    local.machine = type("Machine", (), {"tiers": tiers_below(tmp_path, folders={"ram": tmp_path / "memory"})})
    try:
        assert await local.recover() == []
    finally:
        busy.close()
    assert [path.name for path in (tmp_path / "operations").iterdir()] == ["busy"]


def owing(tmp_path, name="ck-1"):
    """Leave the journal of a freeze that was accepted and no more; give its operations."""
    journal = SqliteJournal.open(tmp_path / "operations" / name / "journal")
    journal.append(FREEZE, [FreezeAccepted(FreezePlan(name, TaskIdentity(100, 1, "b"), "ram"), 1)])
    journal.close()
    return Local(tmp_path, no_machine(tmp_path))


def no_machine(tmp_path):
    """A machine with tiers and nothing else."""
    return type("Machine", (), {"tiers": tiers_below(tmp_path, folders={"ram": tmp_path / "memory"})})


@pytest.mark.anyio
async def test_an_operation_that_is_being_made_is_not_taken_for_one_that_owes_nothing(tmp_path):
    """Who makes one holds a lock from the folder to the journal's own; nobody removes the folder in between."""
    local = Local(tmp_path, no_machine(tmp_path))
    made = tmp_path / "operations" / "ck-0"
    made.mkdir(mode=0o700, parents=True)
    with (tmp_path / "operations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(local.recover)
            await anyio.wait_all_tasks_blocked()
            assert made.exists()
            journal = SqliteJournal.open(made / "journal")
            fcntl.flock(lock, fcntl.LOCK_UN)
    assert made.exists()
    journal.close()


@pytest.mark.anyio
async def test_what_is_taken_up_is_taken_up_once(tmp_path, monkeypatch):
    """From the moment in which it is known to owe something its journal is held: another command finds it busy."""
    local, other, seen = owing(tmp_path), Local(tmp_path, None), []

    async def run(local, folder, journal, name, *rest):
        with pytest.raises(JournalLocked):
            SqliteJournal.open(folder / "journal")
        seen.append(await other.recover())
        return OperationEnded(folder.name, Outcome.UNDONE, "", name)

    monkeypatch.setattr(Local, "_run", run)
    monkeypatch.setattr(local_module, "claim", lambda target: contextlib.nullcontext())
    assert [end.text for end in await local.recover()] == [FREEZE]
    assert seen == [[]]


@pytest.mark.anyio
async def test_a_command_that_hangs_with_the_lock_is_named(tmp_path, monkeypatch):
    """The others do not wait for ever."""
    monkeypatch.setattr(local_module, "ALONE_PATIENCE_S", 0.0)
    local = Local(tmp_path, SimpleNamespace(tiers=Tiers({})))
    plan = FreezePlan("ck-1", TaskIdentity(100, 1, "b"), "ram")
    with (tmp_path / "operations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TargetBusy, check=that(names="operations.lock")):
            await local.run(FreezeTree(plan))
    assert list((tmp_path / "operations").iterdir()) == []


def test_one_operation_at_a_time():
    """Who freezes a process holds it; another process, or the same number later, is another one."""
    root = TaskIdentity(100, 1, "b")
    with claim(frozen_by_us(root)):
        with pytest.raises(TargetBusy, check=that(names="freeze-b-100")), claim(frozen_by_us(root)):
            pytest.fail("two hold it")
        with claim(frozen_by_us(TaskIdentity(100, 2, "b"))), claim(thawed_by_us("ck-1")):
            pass
    with claim(frozen_by_us(root)):
        pass


def test_one_thaw_at_a_time(command, kept):
    """Two would fight for the same process numbers; the second one touches nothing."""
    with claim(thawed_by_us("ck-1")):
        code, _, err = command("restore", "ck-1")
    assert code != 0
    assert "TargetBusy" in err
    assert kept.listing()[0].pinned_by == ()


def test_ids_differ():
    """No two operations have one id."""
    assert new_id("ck") != new_id("ck")


def test_connections_are_not_both_kept_and_given_up(command):
    """It is said before anything is looked at."""
    code, _, err = command("checkpoint", "--pid", "100", "--tcp-established", "--tcp-close")
    assert code == 2
    assert "say one of them" in err


@pytest.fixture
def hang_up_again():
    """A command that SIGHUP ended is deaf to it from then on; the tests' own process must not be.

    Under nohup it is deaf from the beginning, and so would be the command.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Interrupted:
    """Operations that are interrupted as soon as they begin, and end in a given way all the same."""

    def __init__(self, monkeypatch, number, outcome, kind="", text=""):
        async def run(local, message, *, report, changed):
            operation = message.plan.operation
            changed(OperationChanged(operation, FreezePhase.ENDING))
            signal.raise_signal(number)
            try:
                await anyio.sleep_forever()
            finally:
                if outcome is not None:
                    changed(OperationEnded(operation, outcome, kind, text))

        monkeypatch.setattr(Local, "run", run)
        monkeypatch.setattr(local_module, "new_id", lambda prefix: f"{prefix}-1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_freeze_that_cannot_be_undone_any_more_is_told(command, kept, monkeypatch, hang_up_again, number):
    """Whoever interrupts it hears which checkpoint it is: in the same words and the same JSON as ever."""
    Interrupted(monkeypatch, number, Outcome.FROZEN)
    code, out, err = command("checkpoint", "--pid", str(os.getppid()), "-o", "json")
    assert code == 130
    assert err.endswith("interrupted\n")
    done = json.loads(out)
    assert (done["checkpoint"], done["outcome"], done["pid"], done["tier"]) == ("ck-1", "frozen", 100, "disk")


def test_a_thaw_that_was_interrupted_is_told(command, kept, monkeypatch):
    """It came to its end, or it did not: one stands on standard output, the other beside it."""
    Interrupted(monkeypatch, signal.SIGINT, Outcome.THAWED)
    code, out, _ = command("restore", "ck-1", "-o", "json")
    assert (code, json.loads(out)["outcome"]) == (130, "thawed")
    Interrupted(monkeypatch, signal.SIGINT, Outcome.FAILED, "Cancelled", "it was interrupted")
    code, out, err = command("restore", "ck-1", "-o", "json")
    assert (code, out) == (130, "")
    assert "iriscw: it was not thawed, and the checkpoint is as it was: Cancelled" in err


def test_an_operation_that_is_not_over_is_named(command, kept, monkeypatch):
    """Who interrupts it before it could be undone hears that the next command does that."""
    Interrupted(monkeypatch, signal.SIGINT, None)
    code, out, err = command("checkpoint", "--pid", str(os.getppid()))
    assert (code, out) == (130, "")
    assert "operation ck-1 is not over: the next command undoes or finishes it" in err


@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_a_tier_that_is_not_ours_alone_is_refused_at_once(command, kept, tmp_path, tier):
    """By name and before anything is begun: there is nothing to undo, which could not be done there either."""
    folder = {"ram": tmp_path / "memory", "disk": kept.root}[tier]
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o755)
    for arguments in (["checkpoint", "--pid", str(os.getppid()), "--tier", tier], ["restore", "ck-2"]):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert err.splitlines() == [
            f"iriscw: {folder} is not a folder of mode 0700 that belongs to user {os.geteuid()}"
        ]
        assert list((tmp_path / "state" / "operations").iterdir()) == []
