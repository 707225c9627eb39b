"""The facts of a freeze and a thaw: what was written by this version is read by every later one."""

import attrs
import pytest

from iriscw.freeze.model import (
    Container,
    CriuAbility,
    CriuOptions,
    CudaState,
    CudaTask,
    FreezePhase,
    FreezePlan,
    FrozenTree,
    Hook,
    HookKind,
    ImageHost,
    Kept,
    Outcome,
    ProcessTree,
    RestoreRequest,
    Room,
    Sealed,
    TaskIdentity,
    ThawPlan,
    TreeProcess,
)
from iriscw.freeze.records import (
    FreezeAccepted,
    FreezeBegan,
    FreezeDumped,
    FreezeEnded,
    FreezeFateKnown,
    FreezeHoused,
    FreezeMeasured,
    FreezeSealed,
    FreezeUndoing,
    FreezeUnheard,
    ThawAccepted,
    ThawConfirming,
    ThawEnded,
    ThawEnding,
    ThawLetGo,
    ThawMade,
    ThawOpened,
    ThawPaging,
    ThawReady,
    ThawRestored,
    ThawRestoring,
    ThawTakenUp,
    ThawUnheard,
)
from iriscw.freeze.traits import FileLock, OpenFile, ThreadTraits, Traits
from iriscw.journal.records import REGISTRY

WHO = TaskIdentity(100, 5, "b")
TASK = TreeProcess(WHO, 1, "t", 7)
FROZEN = FrozenTree(ImageHost("b", "x", 4096, "6", "n"), CriuAbility("c", "4.2"), CriuOptions(), (TASK,))
ROOM = Room("/i", "/w")
OPTIONS = (
    '{"external_unix_sockets":false,"file_locks":true,"ghost_limit_bytes":4294967295,"link_remap":false,'
    '"shell_job":false,"tcp_close":false,"tcp_established":false}'
)
WHO_TEXT = '{"boot_id":"b","pid":100,"start_ticks":5}'
TASK_TEXT = (
    f'{{"identity":{WHO_TEXT},"inner_pid":0,"memory_bytes":7,"name":"t","parent_pid":1,"stopped":false,"traced_by":0,'
    '"traits":null}'
)
FROZEN_TEXT = (
    '{"carried":null,"container":null,"criu":{"features":[],"git_id":"","path":"c","version":"4.2"},"cuda_driver":"","cuda_tasks":[],'
    '"files":[],"frozen_wall_ns":0,"gpus":[],"group":"","guard":"","hook":null,"host":{"architecture":"x","boot_id":"b","cpu_features":[],'
    f'"kernel":"6","node":"n","page_size":4096}},"left_running":false,"namespaces":[],"options":{OPTIONS},"tasks":[{TASK_TEXT}]}}'
)
PLAN = FreezePlan("o", WHO, "ram", hook=Hook(HookKind.EXEC, ("p",), 9), labels=(("a", "b"),))
REQUEST = RestoreRequest("o", "/i", "/w", CriuOptions(), (100,), 3, 4)

GOLDEN = [
    (
        FreezeAccepted(PLAN, 8),
        (
            '["freeze.freeze_accepted",1,{"plan":{"carries_folder":false,"container":null,"force":false,"guard":"","hook":{"kind":"exec","target":["p"],"within_ns":9},'
            f'"labels":[["a","b"]],"leave_running":false,"lock_within_ns":60000000000,"operation":"o","options":{OPTIONS},'
            f'"root":{WHO_TEXT},"tier":"ram"}},"wall_ns":8}}]'
        ),
    ),
    (FreezeMeasured(FROZEN, 6), f'["freeze.freeze_measured",1,{{"frozen":{FROZEN_TEXT},"reserved_bytes":6}}]'),
    (FreezeBegan(FreezePhase.LOCKING), '["freeze.freeze_began",1,{"phase":"locking"}]'),
    (FreezeHoused(ROOM), '["freeze.freeze_housed",1,{"room":{"images":"/i","work":"/w"}}]'),
    (
        FreezeDumped(ProcessTree((TASK,)), (), 2),
        (
            '["freeze.freeze_dumped",1,{"cuda_tasks":[],"folder":null,'
            f'"tree":{{"files":[],"group":"","hindrances":[],"namespaces":[],'
            f'"shared_bytes":0,"tasks":[{TASK_TEXT}]}},"wall_ns":2}}]'
        ),
    ),
    (
        FreezeSealed(Sealed(1, "d", 2)),
        '["freeze.freeze_sealed",1,{"sealed":{"digest":"d","files":2,"size_bytes":1}}]',
    ),
    (FreezeUndoing("K", "t"), '["freeze.freeze_undoing",1,{"kind":"K","text":"t"}]'),
    (FreezeFateKnown("g"), '["freeze.freeze_fate_known",1,{"gone":"g"}]'),
    (
        FreezeEnded(Outcome.UNDONE, "K", "t", 3),
        '["freeze.freeze_ended",1,{"kind":"K","outcome":"undone","text":"t","wall_ns":3}]',
    ),
    (
        ThawAccepted(ThawPlan("o", "a", (("x", "y"),)), 1),
        (
            '["freeze.thaw_accepted",1,{"plan":{"artifact":"a","clone":false,"container":null,"force":false,"gpus":[["x","y"]],"lazy":false,'
            '"numbers":"same","operation":"o","terminal":false,"tier":"","unused_gpus":false,"verify":null},"wall_ns":1}]'
        ),
    ),
    (
        ThawOpened(Kept(FROZEN, ROOM, Sealed(1, "d", 2)), 4),
        (
            f'["freeze.thaw_opened",1,{{"eager":"","fresh":false,"kept":{{"by_pieces":false,"frozen":{FROZEN_TEXT},'
            '"returned":[],"room":{"images":"/i","work":"/w"},'
            '"sealed":{"digest":"d","files":2,"size_bytes":1}},"ticks":4}]'
        ),
    ),
    (
        ThawRestoring(REQUEST),
        (
            '["freeze.thaw_restoring",1,{"request":{"container":null,"images":"/i","inner_pids":[],"lazy":false,'
            '"new_pid_namespace":false,"operation":"o",'
            f'"options":{OPTIONS},"paging_ns":0,"pids":[100],"started_after":3,"within_ns":4,"work":"/w"}}}}]'
        ),
    ),
    (ThawMade((WHO,)), f'["freeze.thaw_made",1,{{"tasks":[{WHO_TEXT}]}}]'),
    (ThawRestored((WHO,)), f'["freeze.thaw_restored",1,{{"differs":"","tasks":[{WHO_TEXT}]}}]'),
    (ThawConfirming(3), '["freeze.thaw_confirming",1,{"wall_ns":3}]'),
    (FreezeUnheard("t"), '["freeze.freeze_unheard",1,{"text":"t"}]'),
    (ThawPaging(3), '["freeze.thaw_paging",1,{"wall_ns":3}]'),
    (ThawReady(3), '["freeze.thaw_ready",1,{"wall_ns":3}]'),
    (ThawTakenUp(3), '["freeze.thaw_taken_up",1,{"wall_ns":3}]'),
    (ThawLetGo("n"), '["freeze.thaw_let_go",1,{"note":"n"}]'),
    (ThawUnheard("t"), '["freeze.thaw_unheard",1,{"text":"t"}]'),
    (ThawEnding("K", "t"), '["freeze.thaw_ending",1,{"kind":"K","text":"t"}]'),
    (
        ThawEnded(Outcome.THAWED, "", "", 3),
        '["freeze.thaw_ended",1,{"kind":"","outcome":"thawed","text":"","wall_ns":3}]',
    ),
]


@pytest.mark.parametrize(("record", "text"), GOLDEN, ids=[type(record).__name__ for record, _ in GOLDEN])
def test_golden(record: object, text: str) -> None:
    """Each record is written as it always was, and read back as it is."""
    assert REGISTRY.encode(record) == text
    assert REGISTRY.read(text, "a test") == record


LATER = (',"tier":""', '"container":null,', '"inner_pids":[],', '"inner_pid":0,')
"""What stands in records since containers are frozen through their runtime."""


@pytest.mark.parametrize(("record", "text"), GOLDEN, ids=[type(record).__name__ for record, _ in GOLDEN])
def test_written_before_there_were_containers(record: object, text: str) -> None:
    """What an earlier version wrote says nothing of containers, and means the same."""
    for each in LATER:
        text = text.replace(each, "")
    assert REGISTRY.read(text, "a test") == record


def test_a_container_is_kept() -> None:
    """A plan that is a container's is read back as it was written."""
    container = Container("box", "/run/runc", "soft", ("network",))
    for plan in (
        FreezeAccepted(attrs.evolve(PLAN, container=container), 8),
        ThawAccepted(ThawPlan("o", "a", container=container), 1),
    ):
        assert REGISTRY.read(REGISTRY.encode(plan), "a test") == plan


LATER_FIELDS = [
    (ThawAccepted(ThawPlan("o", "a"), 1), '"lazy":false,'),
    (ThawOpened(Kept(FROZEN, ROOM, Sealed(1, "d", 2)), 4), '"eager":"",'),
    (ThawOpened(Kept(FROZEN, ROOM, Sealed(1, "d", 2)), 4), '"by_pieces":false,'),
    (ThawRestoring(REQUEST), '"lazy":false,'),
    (ThawRestoring(REQUEST), '"paging_ns":0,'),
    (ThawAccepted(ThawPlan("o", "a"), 1), '"numbers":"same",'),
    (ThawAccepted(ThawPlan("o", "a"), 1), '"terminal":false,'),
    (ThawAccepted(ThawPlan("o", "a"), 1), '"unused_gpus":false,'),
    (ThawOpened(Kept(FROZEN, ROOM, Sealed(1, "d", 2)), 4), '"fresh":false,'),
    (ThawOpened(Kept(FROZEN, ROOM, Sealed(1, "d", 2)), 4), '"returned":[],'),
    (ThawAccepted(ThawPlan("o", "a"), 1), '"clone":false,'),
    (ThawAccepted(ThawPlan("o", "a"), 1), ',"verify":null'),
    (ThawRestored((WHO,)), '"differs":"",'),
    (FreezeAccepted(PLAN, 8), '"carries_folder":false,'),
    (FreezeMeasured(FROZEN, 6), '"carried":null,'),
    (FreezeMeasured(FROZEN, 6), '"files":[],'),
    (FreezeMeasured(FROZEN, 6), '"group":"",'),
    (FreezeMeasured(FROZEN, 6), '"namespaces":[],'),
    (FreezeMeasured(FROZEN, 6), ',"traits":null'),
    (FreezeDumped(ProcessTree((TASK,)), (), 2), '"shared_bytes":0,'),
    (FreezeDumped(ProcessTree((TASK,)), (), 2), '"folder":null,'),
    (FreezeDumped(ProcessTree((TASK,)), (), 2), '"files":[],'),
    (FreezeDumped(ProcessTree((TASK,)), (CudaTask(WHO, CudaState.RUNNING, 100, 7, ("GPU-1",)),), 3), '"held":[],'),
]


@pytest.mark.parametrize(
    ("record", "field"), LATER_FIELDS, ids=[f"{type(each).__name__} {field}" for each, field in LATER_FIELDS]
)
def test_what_an_older_iriscw_wrote_is_read(record: object, field: str) -> None:
    """A field that came later has the value that was meant then."""
    text = REGISTRY.encode(record)
    assert field in text
    assert REGISTRY.read(text.replace(field, ""), "a test") == record


def test_traits_are_kept() -> None:
    """What a process was beside its number is read back as it was written."""
    thread = ThreadTraits("0-3", 16387, 50_000, "bind:0")
    traits = Traits(
        first=thread,
        threads=(101, 102),
        odd_threads=((102, ThreadTraits("1")),),
        personality=0x40000,
        dump_filter=0x33,
        placed=((4096, 8192, "interleave:0-1"),),
        locks=(FileLock(3, "POSIX", "WRITE", 0, -1, mapped=True),),
        kept=(("Umask", "0022"),),
    )
    file = OpenFile("/log", 100, 1, 2, 3, 4, appended=True)
    tree = ProcessTree((attrs.evolve(TASK, traits=traits),), (), 5, (file,), (("mnt", 6),), "memory/a")
    record = FreezeDumped(tree, (), 2)
    assert REGISTRY.read(REGISTRY.encode(record), "a test") == record
