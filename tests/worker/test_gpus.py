"""The GPUs of a worker: which an attempt gets, that nobody else has them meanwhile, and what its program sees."""

import itertools
import json
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import Controller, Ctx, serving, settings, world

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Capacity
from iriscw.jobs.model import Ending, Resumption
from iriscw.processes.ends import ProcessEnd
from iriscw.proto.iriscw import v1
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import Completed, Decision, SetTimer, Tell
from iriscw.task.context import context
from iriscw.worker import lifecycle, registry
from iriscw.worker.assembly import Worker
from iriscw.worker.attempt import Attempt
from iriscw.worker.drivers.gpus import GpusTaken
from iriscw.worker.effects import Adopt, AwaitEnd, AwaitThaw, Fetch, Finish, Permit, Remove, Start, Started
from iriscw.worker.gpus import Gpu, GpuOffer, divided, parse_topology
from iriscw.worker.messages import (
    ATTEMPTS,
    ForgetAttempt,
    GpusWanted,
    ReportNow,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
)
from iriscw.worker.model import AttemptPhase, Order, StopCause
from iriscw.worker.registry import AttemptRegistry, AttemptRegistryDecisions
from iriscw.worker.runtimes.inline import InlineRuntime
from raised import that

EIGHT = tuple(Gpu("NVIDIA H100 80GB HBM3", f"GPU-{number}", 80 << 30, number) for number in range(8))
OFFER = GpuOffer(EIGHT)
UUIDS = tuple(gpu.uuid for gpu in EIGHT)
GONE = Finish(ProcessEnd(text="nobody saw how", log_bytes=10), 9, folder="/w")
EXITED = Finish(ProcessEnd(code=0, log_bytes=10), 9)


# Which


@given(st.lists(st.sampled_from(UUIDS), unique=True), st.integers(0, 9), st.lists(st.sampled_from(UUIDS), unique=True))
def test_as_many_as_are_asked_for_and_all_of_them_free(taken: list, count: int, before: list) -> None:
    """Different ones, none that is taken; what it had before in its old place; None if there are too few."""
    free = OFFER.free([taken])
    chosen = OFFER.choose(free, count, before)
    if count > len(free):
        assert chosen is None
        return
    assert len(dict.fromkeys(chosen)) == len(chosen) == count
    assert not [uuid for uuid in chosen if uuid in taken]
    assert chosen == OFFER.choose(free, count, before)
    assert all(chosen[place] == uuid for place, uuid in enumerate(before[:count]) if uuid in chosen)
    assert sum(uuid in chosen for uuid in before) >= min(count, sum(uuid in free for uuid in before))


def test_without_links_the_first_that_are_free() -> None:
    """In the order of their indexes, which the library of CUDA has as well."""
    assert OFFER.choose(OFFER.free([("GPU-0", "GPU-2")]), 3) == ("GPU-1", "GPU-3", "GPU-4")
    assert OFFER.indices(("GPU-3", "GPU-1", "GPU-of-another")) == (3, 1)


DGX = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV2\tNV1\tSYS\tPIX\t0-31,64-95\t0\t\tN/A
GPU1\tNV2\t X \tSYS\tNODE\tSYS\t0-31,64-95\t0\t\tN/A
GPU2\tNV1\tSYS\t X \tnews\tSYS\t32-63,96-127\t1\t\tN/A
GPU3\tSYS\tNODE\tnews\t X \tSYS\t32-63,96-127\t1\t\tN/A
NIC0\tPIX\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""


def test_the_machine_says_how_its_gpus_are_linked() -> None:
    """More links are better than fewer, any is better than PCI, one node than two; what is not known is nothing."""
    links = parse_topology(DGX, EIGHT[:4])
    speeds = [links.get((f"GPU-{one}", f"GPU-{two}"), 0) for one, two in ((0, 1), (0, 2), (1, 3), (0, 3), (2, 3))]
    assert speeds == [1025, 1010, 100, 50, 5]
    assert all(links[two, one] == speed for (one, two), speed in links.items())
    assert parse_topology(DGX, EIGHT[:1]) == {}


@given(st.text() | st.text("GPUX01NV \t\n"))
def test_any_table_is_survived(text: str) -> None:
    """An error message is not a link."""
    assert all(speed > 0 for speed in parse_topology(text, EIGHT).values())


def linked(pairs: Iterable[tuple[int, int]], speed: int) -> dict:
    return {(UUIDS[one], UUIDS[two]): speed for pair in pairs for one, two in (pair, pair[::-1])}


PAIRS = [(0, 3), (1, 2), (4, 7), (5, 6)]
HALVES = [(0, 1, 2, 3), (4, 5, 6, 7)]
BRIDGED = GpuOffer(
    EIGHT,
    {
        **linked(itertools.combinations(range(8), 2), 50),
        **{pair: speed for half in HALVES for pair, speed in linked(itertools.combinations(half, 2), 100).items()},
        **linked(PAIRS, 1040),
    },
)


@given(st.lists(st.sampled_from([1, 2, 4, -1]), max_size=30), st.randoms(use_true_random=False))
def test_pairs_and_halves_are_kept_together(steps: list, random: Random) -> None:
    """Whatever came before: two are a linked pair and four a half while one is free; one breaks none if it can."""
    held: list[tuple[str, ...]] = []
    for count in steps:
        if count < 0:
            random.shuffle(held)
            del held[:1]
            continue
        free = BRIDGED.free(held)
        chosen = BRIDGED.choose(free, count)
        if chosen is None:
            continue
        whole = [each for each in (PAIRS if count < 4 else HALVES) if all(UUIDS[number] in free for number in each)]
        among = [each for each in whole if any(UUIDS[number] in chosen for number in each)]
        if count == 1:
            assert not among or len(whole) * 2 == len(free)
        elif whole:
            assert [set(chosen)] == [{UUIDS[number] for number in each} for each in among]
        held.append(chosen)


def test_sixteen_gpus_are_chosen_among_as_well() -> None:
    """With too many ways to compare them all, a half is found by its links."""
    gpus = tuple(Gpu("A100", f"GPU-{number}", 1, number) for number in range(16))
    half = {(one.uuid, two.uuid): 9 for one, two in itertools.permutations(gpus, 2) if one.index % 2 == two.index % 2}
    offer = GpuOffer(gpus, half)
    free = offer.free([("GPU-0",)])
    assert {int(uuid[4:]) % 2 for uuid in offer.choose(free, 8)} == {1}


# Whose


class Bench:
    """The registry and its attempts with their mailboxes; records are kept, as the journal does."""

    def __init__(self) -> None:
        self.decisions = AttemptRegistryDecisions(lambda uid: ChildSpec(uid, Behavior()), OFFER)
        self.records: dict[str, list] = {"": []}
        self.registry = AttemptRegistry()
        self.attempts: dict[str, Attempt] = {}
        self.mail: dict[str, list] = {"": []}
        self.counts: dict[str, int] = {}
        self.grants: dict[str, int] = {}
        self.starts: list[Start] = []
        self.permits: list[Permit] = []
        self.owed: dict[str, list] = {}

    def tell(self, to: str, message: object) -> None:
        if not to:
            rules, state, apply = self.decisions.rules(), self.registry, registry.evolve
        else:
            state = self.attempts.setdefault(to, Attempt(to))
            rules, apply = lifecycle.rules(), lifecycle.evolve
        outcome = rules[type(message)](state, message, Ctx(1))
        records = outcome.records if isinstance(outcome, Decision) else ()
        for record in records:
            apply(state, record)
            self.records.setdefault(to, []).append(record)
        self.follow(to, outcome.commands if isinstance(outcome, Decision) else outcome or ())
        self.check()

    def follow(self, to: str, commands: tuple) -> None:
        for command in commands:
            if isinstance(command, Tell) and command.to == ATTEMPTS:
                self.mail[""].append(command.message)
            elif isinstance(command, Tell) and command.to.parent == ATTEMPTS:
                self.mail.setdefault(command.to.name, []).append(command.message)
            elif isinstance(command, SetTimer) and isinstance(command.message, GpusWanted):
                self.mail.setdefault(to, []).append(command.message)
            elif isinstance(effect := getattr(command, "effect", None), Start):
                self.starts.append(effect)
                assert len(effect.gpus) == self.counts[to]
            elif isinstance(effect, Permit):
                self.permits.append(effect)
                assert len(effect.gpus) == self.counts[to]

    def check(self) -> None:
        """No GPU is anybody's twice: of those that may have a process, or get one."""
        runs = [each for each in self.attempts.values() if each.phase in BUSY]
        had = [uuid for each in runs for uuid in each.gpus]
        assert len(dict.fromkeys(had)) == len(had)
        for each in runs:
            assert len(each.gpus) == self.counts[each.uid]
            assert not each.gpus or self.registry.gpus[each.uid].gpus == each.gpus

    def deliver(self, to: str, most: int = 1000) -> None:
        for _ in range(min(most, len(self.mail.get(to, ())))):
            self.tell(to, self.mail[to].pop(0))

    def drain(self) -> None:
        for _ in range(40):
            for to in list(self.mail):
                self.deliver(to)

    def restart(self) -> None:
        """The worker is killed, and the next process of it replays the records. Mail is lost."""
        self.registry = AttemptRegistry()
        for record in self.records[""]:
            registry.evolve(self.registry, record)
        compacted = AttemptRegistry()
        for record in registry.compact(self.registry):
            registry.evolve(compacted, record)
        assert compacted.gpus == self.registry.gpus
        self.mail = {"": []}
        for uid in self.registry.known:
            attempt = self.attempts[uid] = Attempt(uid)
            for record in self.records.get(uid, ()):
                lifecycle.evolve(attempt, record)
            self.follow(uid, lifecycle.resume(attempt, Ctx(1)))
            self.mail.setdefault(uid, []).append(ReportNow())
        self.check()

    # What a controller and the world do

    def order(self, uid: str, count: int) -> None:
        if uid not in self.counts:
            self.counts[uid] = count
            self.tell("", RunAttempt(Order(uid, "00", "job-a/0", 0, 0)))
            self.deliver(uid)

    def fetched(self, uid: str) -> None:
        if self.phase(uid) is AttemptPhase.FETCHING:
            self.tell(uid, Completed("fetch", Fetch(Order(uid, "00", "job-a/0", 0, 0)), self.counts[uid]))

    def started(self, uid: str) -> None:
        if self.phase(uid) in (AttemptPhase.STARTING, AttemptPhase.WITHDRAWN):
            self.tell(uid, Completed("start", Start(Order(uid, "00", "", 0, 0)), Started(5, 0, ())))

    def ends(self, uid: str) -> None:
        if self.phase(uid) in (AttemptPhase.RUNNING, AttemptPhase.STOPPING, AttemptPhase.SUSPENDING):
            self.tell(uid, Completed("await", AwaitEnd(uid), EXITED))

    def stop(self, uid: str) -> None:
        self.tell("", StopAttempt(uid, StopCause.KILLED, 0))

    def freeze(self, uid: str) -> None:
        if self.phase(uid) is AttemptPhase.RUNNING:
            self.tell(uid, SuspendAttempt(uid))
            self.tell(uid, Completed("await", AwaitEnd(uid), GONE))

    def resume(self, uid: str) -> None:
        if self.phase(uid) is AttemptPhase.SUSPENDED:
            number = self.grants[uid] = self.grants.get(uid, 0) + 1
            leave = Resumption(f"g{number}", "/w", gpus=self.attempts[uid].gpus)
            self.tell("", RunAttempt(Order(uid, "", "job-a/0", 0, 0, resumption=leave)))

    def again(self, uid: str) -> None:
        """The order to come back is repeated."""
        if uid in self.grants:
            leave = Resumption(f"g{self.grants[uid]}", "/w", gpus=UUIDS[: self.counts[uid]])
            self.tell("", RunAttempt(Order(uid, "", "job-a/0", 0, 0, resumption=leave)))

    def thawed(self, uid: str) -> None:
        if self.phase(uid) is AttemptPhase.RESUMING:
            self.tell(uid, Completed("thaw", AwaitThaw(uid, "g"), None))

    def found(self, uid: str) -> None:
        """After a restart its process is looked for."""
        if self.phase(uid) in (
            AttemptPhase.FETCHING,
            AttemptPhase.STARTING,
            AttemptPhase.RUNNING,
            AttemptPhase.STOPPING,
            AttemptPhase.SUSPENDING,
        ):
            here = self.phase(uid) is not AttemptPhase.FETCHING
            self.tell(uid, Completed("adopt", Adopt(uid, ended=False), here))

    def forget(self, uid: str) -> None:
        if self.phase(uid) is AttemptPhase.ENDED and not self.attempts[uid].revoked:
            self.tell("", ForgetAttempt(uid))
            self.deliver(uid)
            self.tell(uid, Completed("remove", Remove(uid), None))

    def report(self, uid: str) -> None:
        if uid in self.registry.known:
            self.mail.setdefault(uid, []).append(ReportNow())

    def phase(self, uid: str) -> AttemptPhase | None:
        return self.attempts[uid].phase if uid in self.attempts and uid in self.registry.known else None


BUSY = (
    *(
        AttemptPhase.STARTING,
        AttemptPhase.WITHDRAWN,
        AttemptPhase.RUNNING,
        AttemptPhase.STOPPING,
        AttemptPhase.SUSPENDING,
    ),
    *(AttemptPhase.RESUMING, AttemptPhase.REVOKING),
)
DOES = ("fetched", "started", "ends", "stop", "freeze", "resume", "again", "thawed", "forget", "report")
MAIL = ("order", "deliver", "deliver one", "registry", "restart")
STEPS = st.tuples(st.sampled_from((*DOES, *MAIL)), st.integers(0, 5))


@given(st.lists(STEPS, max_size=60))
def test_no_gpu_is_ever_two_attempts_own(steps: list) -> None:
    """Whatever happens in whatever order, also over deaths of the worker; and at the end all are free."""
    bench = Bench()
    for verb, number in steps:
        uid = f"a{number}"
        match verb:
            case "order":
                bench.order(uid, number)
            case "deliver":
                bench.deliver(uid)
            case "deliver one":
                bench.deliver(uid, 1)
            case "registry":
                bench.deliver("", number)
            case "restart":
                bench.restart()
                for each in list(bench.attempts):
                    bench.found(each)
            case _:
                getattr(bench, verb)(uid)
    bench.drain()
    for uid in bench.counts:
        bench.stop(uid)
        bench.drain()
        for verb in (bench.started, bench.ends, bench.thawed, bench.ends):
            verb(uid)
            bench.drain()
        if bench.phase(uid) is AttemptPhase.REVOKING:
            bench.tell(uid, Completed("thaw", AwaitThaw(uid, "g"), None))
    left = {uid: each for uid, each in bench.registry.gpus.items() if bench.phase(uid) not in BUSY}
    assert left == {}


def test_adopted_attempts_keep_theirs() -> None:
    """A worker that was killed hands out nothing that its attempts still have."""
    bench = Bench()
    for uid, count in (("a1", 3), ("a2", 3)):
        bench.order(uid, count)
        bench.fetched(uid)
        bench.drain()
        bench.started(uid)
    bench.restart()
    for uid in ("a1", "a2"):
        bench.found(uid)
    assert [bench.attempts[uid].observation().gpus for uid in ("a1", "a2")] == [UUIDS[:3], UUIDS[3:6]]
    bench.order("a3", 2)
    bench.fetched("a3")
    bench.drain()
    assert bench.starts[-1].gpus == UUIDS[6:]


def test_too_few_are_the_workers_failure_and_not_the_jobs() -> None:
    """It ends as not started, by name; with what others leave it would have begun."""
    bench = Bench()
    for uid, count in (("a1", 5), ("a2", 4)):
        bench.order(uid, count)
        bench.fetched(uid)
        bench.drain()
    seen = bench.attempts["a2"].observation()
    assert (seen.ending, seen.started) == (Ending.REFUSED, False)
    assert (seen.end.fault.kind, seen.end.fault.text) == (
        "TooFewGpus",
        "it needs 4 GPUs, and 3 of this worker's are free",
    )
    bench.started("a1")
    bench.ends("a1")
    bench.order("a3", 8)
    bench.fetched("a3")
    bench.drain()
    assert bench.starts[-1].gpus == UUIDS


def test_what_was_suspended_gets_as_many_and_the_same_if_it_can() -> None:
    """Its own are free while it is a checkpoint; what is not free then is replaced, in its place."""
    bench = Bench()
    bench.order("a1", 2)
    bench.fetched("a1")
    bench.drain()
    bench.started("a1")
    bench.freeze("a1")
    bench.drain()
    assert bench.registry.gpus == {}
    bench.order("a2", 1)
    bench.fetched("a2")
    bench.drain()
    bench.resume("a1")
    bench.drain()
    assert bench.permits[-1].gpus == ("GPU-2", "GPU-1")
    assert bench.attempts["a1"].observation().gpus == ("GPU-2", "GPU-1")


def test_what_is_said_late_frees_nothing_of_the_next_leave() -> None:
    """It says again that it holds nothing, while the registry gives it GPUs to come back with."""
    bench = Bench()
    bench.order("a1", 2)
    bench.fetched("a1")
    bench.drain()
    bench.started("a1")
    bench.freeze("a1")
    bench.drain()
    bench.resume("a1")
    bench.deliver("a1")
    bench.report("a1")
    bench.deliver("")
    bench.drain()
    assert bench.phase("a1") is AttemptPhase.RESUMING
    bench.order("a2", 2)
    bench.fetched("a2")
    bench.drain()
    assert (bench.attempts["a1"].gpus, bench.attempts["a2"].gpus) == (UUIDS[:2], UUIDS[2:4])


def test_what_can_come_back_only_here_waits_for_gpus() -> None:
    """Nobody else could bring it back, so it is not lost for want of them."""
    bench = Bench()
    bench.order("a1", 2)
    bench.fetched("a1")
    bench.drain()
    bench.started("a1")
    bench.freeze("a1")
    bench.drain()
    bench.order("a2", 8)
    bench.fetched("a2")
    bench.drain()
    bench.resume("a1")
    bench.drain()
    assert bench.phase("a1") is AttemptPhase.SUSPENDED
    assert not bench.permits
    bench.started("a2")
    bench.ends("a2")
    bench.drain()
    assert bench.permits[-1].gpus == UUIDS[:2]


# What a program sees


@pytest.fixture
def machine() -> GpuOffer:
    """Eight GPUs that no other worker claims."""
    own = uuid.uuid4().hex[:8]
    return GpuOffer(tuple(Gpu("NVIDIA H100 80GB HBM3", f"GPU-{own}-{number}", 80 << 30, number) for number in range(8)))


def numbers(gpus: Iterable[str]) -> list[int]:
    return [int(each.rpartition("-")[2]) for each in gpus]


SHOWN = (
    "import json, os; print(json.dumps({name: os.environ.get(name) for name in ("
    "'CUDA_VISIBLE_DEVICES', 'NVIDIA_VISIBLE_DEVICES', 'IRIS_GPU_INDICES', 'CUDA_DEVICE_ORDER')}))"
)
WAITS = f"{SHOWN}; import signal; signal.pause()"


async def test_two_tasks_of_one_worker_see_different_gpus(tmp_path: Path, machine: GpuOffer) -> None:
    """Each sees its own by UUID and by number, whatever other variables say; one without sees none."""
    capacity = Capacity(1000, 1 << 30, 1 << 30, gpu_count=8, gpu_class="H100")
    async with world(tmp_path, capacity=capacity, gpus=machine) as (controller, _):
        for uid, count in (("a1", 3), ("a2", 4), ("a3", 0)):
            everything = {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}
            await controller.run(uid, argv=WAITS, environment=everything, gpus=count)
            await controller.until(lambda uid=uid: controller.log(uid).endswith("}\n"))
        seen = {uid: json.loads(controller.log(uid)) for uid in ("a1", "a2", "a3")}
        told = [numbers(controller.observed[uid].gpus) for uid in ("a1", "a2", "a3")]
        await controller.stop("a1", 0)
        ended = await controller.ended("a1")
        await controller.run("a4", argv=WAITS, gpus=4)
        await controller.running("a4")
    assert told == [[0, 1, 2], [3, 4, 5, 6], []]
    own = ",".join(gpu.uuid for gpu in machine.gpus[:3])
    assert seen["a1"] == {
        "CUDA_VISIBLE_DEVICES": own,
        "NVIDIA_VISIBLE_DEVICES": own,
        "IRIS_GPU_INDICES": "0,1,2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert seen["a2"]["IRIS_GPU_INDICES"] == "3,4,5,6"
    assert (seen["a3"]["CUDA_VISIBLE_DEVICES"], seen["a3"]["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert numbers(ended.gpus) == [0, 1, 2]
    assert numbers(controller.observed["a4"].gpus) == [0, 1, 2, 7]


async def test_a_thread_of_the_worker_is_told_too(tmp_path: Path, machine: GpuOffer) -> None:
    """It has no environment of its own: its context says which GPUs are its own."""
    controller, inline = Controller(), InlineRuntime(tmp_path / "inline")
    capacity = Capacity(1000, 1 << 30, 1 << 30, gpu_count=8)
    async with serving(controller) as server:
        given = settings(tmp_path / "cache", server.address, capacity=capacity, gpus=machine)
        async with Worker(given, runtime=inline):
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", function=_own, args=(str(tmp_path / "own"),), gpus=2)
            seen = await controller.ended("a1")
    assert seen.state is v1.TaskState.SUCCEEDED
    assert numbers((tmp_path / "own").read_text().split(",")) == numbers(seen.gpus) == [0, 1]


def _own(path: str) -> None:
    Path(path).write_text(",".join(context().gpus))


async def test_workers_of_one_machine_offer_different_gpus(tmp_path: Path, machine: GpuOffer) -> None:
    """Each as many as it promised. One that would get fewer does not start; one that promised none takes the rest."""
    three = Capacity(1000, 1 << 30, 1 << 30, gpu_count=3)
    controller = Controller()

    def worker(name: str, capacity: Capacity, **more: object) -> Worker:
        return Worker(settings(tmp_path, server.address, worker_id=name, capacity=capacity, gpus=machine, **more))

    async with serving(controller) as server, worker("w1", three):
        async with worker("w2", three):
            with pytest.raises(GpusTaken, check=that(names=("3", "GPUs", "2"))):
                async with worker("w3", three):
                    pass
            async with worker("w4", attrs.evolve(three, gpu_count=8), fewer_gpus=True):
                await controller.until(lambda: len(controller.hellos) == 3)
        async with worker("w3", three):
            await controller.until(lambda: len(controller.hellos) == 4)
    assert [(each.worker_id, each.capacity.gpu_count) for each in controller.hellos] == [
        ("w1", 3),
        ("w2", 3),
        ("w4", 2),
        ("w3", 3),
    ]


def test_a_worker_cannot_offer_what_it_cannot_hand_out(tmp_path: Path) -> None:
    """Its machine has to have as many."""
    with pytest.raises(InvalidArgument, check=that(comes_from="assembly._enough", names=("9", "8"))):
        settings(tmp_path, "127.0.0.1:1", capacity=Capacity(gpu_count=9), gpus=OFFER)


# Instances of GPUs that are divided (MIG)


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.20gb     Device  0: (UUID: MIG-4dde2b0e-0000-5000-8000-000000000001)
  MIG 1g.5gb      Device  1: (UUID: MIG-4dde2b0e-0000-5000-8000-000000000002)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c)
  MIG 1g.5gb+me   Device  0: (UUID: MIG-GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c/1/0)
"""
"""As drivers from 470 on write it, and in the last line as earlier ones did."""

WHOLES = tuple(
    Gpu("NVIDIA A100-SXM4-40GB", uuid, 40 << 30, number)
    for number, uuid in enumerate(
        (
            "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
            "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
            "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c",
        )
    )
)


def test_instances_stand_in_the_place_of_the_gpu_that_is_divided() -> None:
    """By their own UUIDs, each of a kind that says its size; what is whole stays whole."""
    found = divided(LISTED, WHOLES)
    assert [(gpu.uuid, gpu.kind, gpu.memory_bytes >> 30, gpu.index) for gpu in found] == [
        ("MIG-4dde2b0e-0000-5000-8000-000000000001", "A100-3g.20gb", 20, 0),
        ("MIG-4dde2b0e-0000-5000-8000-000000000002", "A100-1g.5gb", 5, 0),
        (WHOLES[1].uuid, "A100", 40, 1),
        ("MIG-GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c/1/0", "A100-1g.5gb-me", 5, 2),
    ]
    assert [gpu.whole for gpu in found] == [WHOLES[0].uuid, WHOLES[0].uuid, "", WHOLES[2].uuid]


@pytest.mark.parametrize("text", ["", "no devices", LISTED.replace("GPU-5c", "GPU-9").replace("GPU-4", "GPU-8")])
def test_gpus_of_which_nothing_is_listed_are_whole(text: str) -> None:
    """A listing of other GPUs, or none, says nothing of these."""
    assert divided(text, WHOLES) == WHOLES


@given(st.text())
def test_any_listing_is_survived(text: str) -> None:
    """Whatever the machine says."""
    assert len(divided(text + LISTED + text, WHOLES)) >= len(WHOLES)


def test_instances_are_handed_out_like_gpus() -> None:
    """One attempt each, and without a number: CUDA would take that for the first instance, whosever it is."""
    offer = GpuOffer(divided(LISTED, WHOLES))
    first = offer.choose(offer.free([]), 1)
    assert first is not None
    assert first[0].startswith("MIG-")
    second = offer.choose(offer.free([first]), 1)
    assert second is not None
    assert (first[0] in second, offer.indices(first)) == (False, ())
    assert offer.indices([WHOLES[1].uuid]) == (1,)
    assert parse_topology("\tGPU0\tGPU1\nGPU0\tX\tNV12\nGPU1\tNV12\tX\n", offer.gpus) == {}
