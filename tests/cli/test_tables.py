"""Every table fits a terminal, whatever is in it, with names that are whole; what is cut stands in JSON as a whole."""

import ast
import inspect
import json
import time
from unittest.mock import AsyncMock

import click
import pytest

from iriscw.bench import (
    calls,
    control_plane,
    freezing as bench_freezing,
    pools,
    repositories,
    runtime,
    simulation,
    whole,
)
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.model import ArtifactCopy, ListedArtifact
from iriscw.cli import at_agent, at_controller, at_here, attempts, doctor, measure, output, reference
from iriscw.cli.app import app
from iriscw.cli.balancing import BalancedCheckpoint
from iriscw.cli.output import show, table
from iriscw.client.model import (
    ActorStatus,
    AmountStatus,
    AttemptStatus,
    Ending,
    GpuStatus,
    JobState,
    JobStatus,
    NodeStatus,
    PoolDemand,
    PoolPassed,
    PoolStatus,
    SliceStatus,
    TaskState,
    TaskStatus,
    TierStatus,
    WorkerStatus,
)
from iriscw.client.nodes import Checkpoint
from iriscw.doctor.examination import Examination
from iriscw.doctor.findings import wrong
from iriscw.fleet.model import NoSuchGroup
from iriscw.proto.iriscw import v1

COLUMNS = 100
HOURS_AGO_MS = time.time_ns() // 1_000_000 - 71 * 3_600_000
SENTENCE = (
    "no process of a GPU can be frozen here: the kernel has not loaded NVIDIA's driver: there is no"
    " /proc/driver/nvidia; install driver 570 or newer, and `cuda-checkpoint` from"
    " https://github.com/NVIDIA/cuda-checkpoint beside it"
)
GPU = "GPU-7b830e8d-3118-7a62-67a4-182a14f08219"
NODE = "ip-10-120-233-147.ec2.internal"
GROUP = "h100-training-spot"
WORKER = f"iris-{GROUP}-4f9c2e81-0"
AMOUNT = AmountStatus(cpu_milli=128_000, memory_bytes=2 << 40, gpu_count=8, gpu_class="H100_NVLINK_80GB")
JOB = "job-01jdn3w5r8x9k2m4p6q7s8t9v0"

JOBS = [
    JobStatus(
        JOB, "u", "pretrain-llama-70b-tokens-3.2T-ablation-17-warmup", JobState.RUNNING, 1, 4096,
        {TaskState.PENDING: 1024, TaskState.ASSIGNED: 96, TaskState.RUNNING: 2048, TaskState.FAILED: 17},
        SENTENCE, SENTENCE, "python train.py", AMOUNT, 3, 2, submitted_at_ms=HOURS_AGO_MS, suspended=512,
    )
]  # fmt: skip
ATTEMPTS = tuple(
    AttemptStatus(
        f"u{number}", number, TaskState.COSCHED_FAILED, WORKER, -15, Ending.GANG_STOPPED, SENTENCE, SENTENCE, 0,
        HOURS_AGO_MS, HOURS_AGO_MS,
        gpus=tuple(f"GPU-{index:08x}-0000-0000-0000-000000000000" for index in range(8)),
    )
    for number in (112, 111)
)  # fmt: skip
TASKS = [TaskStatus(f"{JOB}/4095", 4095, TaskState.COSCHED_FAILED, SENTENCE, ATTEMPTS, worker_id=WORKER)]
SLICES = [
    SliceStatus(
        f"{GROUP}-4f9c2e81", GROUP, "INITIALIZING", SENTENCE, HOURS_AGO_MS, 1, HOURS_AGO_MS,
        (WorkerStatus(WORKER, "i", True, "10.0.0.1:1", AMOUNT, AMOUNT, 128),) * 16,
    )
]  # fmt: skip
DEMAND = PoolDemand(
    "demand-0123456789ab", AMOUNT, 4096, 2048, SENTENCE, (PoolPassed("h100-spot", SENTENCE),), 1, (JOB,)
)
POOLS = [
    PoolStatus(
        GROUP, "QUOTA_EXCEEDED", SENTENCE, 0, 128, 64, dict.fromkeys(("REQUESTING", "BOOTING", "READY"), 21), AMOUNT,
        quota_pool="H100_NVLINK_80GB", quota_used_up_by="h100-spot", routed_tasks=2048, demand=(DEMAND,),
    )
]  # fmt: skip
TIERS = tuple(TierStatus(name, 2 << 40, 1 << 40, 1) for name in ("ram", "disk", "s3"))
NODES = [
    NodeStatus(NODE, "CONNECTED", 1, criu=SENTENCE, cuda=SENTENCE, gpus=("H100",) * 8, tiers=TIERS, checkpoints=120)
]
ACTORS = [
    ActorStatus(
        f"/fleet/{GROUP}", "group", "QUARANTINED", 1024, 71 * 3_600_000, 16_384, 16_384, 512,
        4096, SENTENCE, 71 * 3_600_000,
    )
]  # fmt: skip
CHECKPOINTS = [
    Checkpoint(
        "ck-20261126-234501-7b830e8d31187a62", NODE, "path:/mnt/checkpoints/team-a/experiments", 83_000_000_000,
        4_194_304, 1024, "python3.11", HOURS_AGO_MS, {"job": JOB, "task": "4095", "attempt": "112"}, "", HOURS_AGO_MS,
    )
]  # fmt: skip


class Client:
    """A cluster whose texts are long."""

    seen, id = JOBS[0], JOB

    async def jobs(self, **_):
        return [self]

    async def job(self, _):
        return self

    async def status(self):
        return JOBS[0]

    async def tasks(self):
        return TASKS

    async def slices(self, _=""):
        return SLICES

    async def pools(self):
        return POOLS

    async def nodes(self):
        return NODES

    async def reopen_pool(self, scale_group):
        if scale_group != GROUP:
            raise NoSuchGroup(f"there is no scale group {scale_group!r}")

    async def actors(self, _, **__):
        return ACTORS

    async def checkpoints(self, **_):
        return CHECKPOINTS

    async def gpus(self):
        return [GpuStatus(GPU, "NVIDIA H100 80GB HBM3", 7, 100, 79 << 30, 80 << 30, 88, 699.5, SENTENCE)]


@pytest.fixture
def cluster(monkeypatch):
    """Have every command talk to that cluster, at a terminal of 100 columns, or of as many as it is called with."""
    import anyio

    def with_client(_address, _token_file, work):
        return anyio.run(work, Client())

    for module in ("connection", "fleet", "inspection", "jobs"):
        monkeypatch.setattr(f"iriscw.cli.{module}.with_client", with_client)

    def set_columns(columns):
        for module in (attempts, doctor, output):
            monkeypatch.setattr(module, "terminal_columns", lambda: columns)

    set_columns(COLUMNS)
    monkeypatch.setattr(Tiers, "verify_copies", AsyncMock(return_value=[ArtifactCopy("ram", 1)]))
    monkeypatch.setattr(
        doctor,
        "examine",
        lambda: [doctor.Finding("cuda checkpoint", SENTENCE, good=False), doctor.Finding("cpu", "2")],
    )
    return set_columns


NAMES = {
    ("jobs",): (JOB, "RUNNING"),
    ("job",): (JOB, WORKER, "COSCHED_FAILED"),
    ("slices",): (f"{GROUP}-4f9c2e81", f" {GROUP} ", "INITIALIZING"),
    ("pools",): (GROUP, "QUOTA_EXCEEDED"),
    ("pools", "demand"): (DEMAND.demand_id, GROUP),
    ("inspect", "tree"): (f"/fleet/{GROUP}", "QUARANTINED"),
    ("nodes",): (NODE, "CONNECTED"),
    ("checkpoints",): (CHECKPOINTS[0].id, NODE),
    ("inspect", "gpus"): (GPU,),
}
"""What other commands take, and states."""

LISTINGS = {
    ("jobs",): (),
    ("job",): ("x",),
    ("slices",): (),
    ("pools",): (),
    ("pools", "demand"): ("--group", GROUP),
    ("inspect", "tree"): (f"/fleet/{GROUP}",),
    ("nodes",): (),
    ("checkpoints",): ("--cluster",),
    ("doctor",): (),
    ("tiers",): (),
    ("verify",): ("ck-1",),
    ("inspect", "gpus"): (),
}
"""Commands with a table of what there is, and what to say beside their names."""

BENCHES = {
    "bench calls": calls,
    "bench control-plane": control_plane,
    "bench end-to-end": whole,
    "bench freeze": bench_freezing,
    "bench pools": pools,
    "bench repository": repositories,
    "bench runtime": runtime,
    "bench simulation": simulation,
}

FIGURES = {tuple(name.split()) for name in BENCHES}
"""Tables of figures of a few digits, a column for each size; their texts are the program's own."""

LINES = {
    *(("checkpoint",), ("move",), ("restore",), ("resume",), ("connect",), ("submit",), ("wait",)),
    *(("export",), ("import",)),
    *(("sim", "run"), ("sim", "replay")),
}
"""Commands that write lines."""

CLUSTER = """\
name: research
platform: { coreweave: { region: LGA1 } }
controller: { coreweave: { insecure_plaintext: true } }
scale_groups:
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    slice_template: { coreweave: { instance_type: cd-gp-a192-genoa } }
"""


def formatted(command, *names):
    """Yield the names of all commands that have ``-o table``."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from formatted(command.get_command(click.Context(command), name), *names, name)
    if any("--output" in each.opts for each in command.params):
        yield names


def test_every_table_is_tried():
    """A command with a table of its own is on this page."""
    assert {*formatted(app)} == {*LISTINGS} | FIGURES | LINES


@pytest.mark.parametrize("columns", [80, COLUMNS])
@pytest.mark.parametrize("names", LISTINGS, ids="-".join)
def test_tables_fit_a_terminal(iriscw, cluster, names, columns):
    """No line is longer than 80 columns, or 100; what other commands take is whole, and JSON has the rest."""
    cluster(columns)
    code, out, _ = iriscw(*names, *LISTINGS[names])
    assert code == 0
    lines = out.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= columns, out
    assert [each for each in NAMES.get(names, ()) if each not in out] == [], out
    whole = json.loads(iriscw(*names, *LISTINGS[names], "-o", "json")[1])
    assert SENTENCE in json.dumps(whole) or names in (("checkpoints",), ("tiers",), ("verify",))
    if isinstance(whole, list) and names != ("doctor",):
        first = next(iter(whole[0].values()))
        assert lines[1].startswith(first + " "), out


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_names_are_whole_where_nothing_has_room(iriscw, cluster, names):
    """The terminal breaks the line: a name that was cut could not be copied into the next command."""
    cluster(20)
    out = iriscw(*names, *LISTINGS[names])[1]
    assert [each for each in NAMES[names] if each not in out] == [], out


@pytest.fixture
def findings(monkeypatch):
    """Have what needs a cluster, or a checkpoint of this machine, show one row."""
    monkeypatch.setattr(Examination, "run", AsyncMock(return_value=[wrong("c", SENTENCE, SENTENCE)]))
    monkeypatch.setattr(Tiers, "listing", AsyncMock(return_value=[ListedArtifact("ck-1", "ram", 1)]))
    monkeypatch.setattr(Tiers, "verify_copies", AsyncMock(return_value=[ArtifactCopy("ram", 1)]))
    moved = BalancedCheckpoint("ck-1", "demote", "ram", "disk", 1, "", "planned")
    monkeypatch.setattr(at_here, "balance", AsyncMock(return_value=[moved]))


ASKED = {
    "job": ("job", "x"),
    "inspect tree": ("inspect", "tree", f"/fleet/{GROUP}"),
    "inspect gpus": ("inspect", "gpus"),
    "checkpoints": ("checkpoints", "--state-dir", "{tmp}"),
    "tiers --balance": ("tiers", "--balance", "--state-dir", "{tmp}"),
    "verify": ("verify", "ck-1", "--state-dir", "{tmp}"),
    "doctor --kube": ("doctor", "--kube", "{tmp}/cluster.yaml"),
}
"""What says more than the words of the page."""


@pytest.mark.parametrize("command", reference.LISTINGS)
def test_json_has_the_fields_that_the_page_names(iriscw, cluster, findings, tmp_path, command):
    """No more and no less: docs/cli.md says what a program may rely on."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    words = [each.format(tmp=tmp_path) for each in ASKED.get(command, command.split())]
    found = json.loads(iriscw(*words, "-o", "json")[1])
    assert {*(found[0] if isinstance(found, list) else found)} == {*reference.json_fields(command)}


def test_the_page_names_the_fields_of_every_table_and_report():
    """A new listing, or a new report, is documented."""
    named = {tuple(each.partition(" --")[0].split()) for each in {**reference.LISTINGS, **reference.REPORTS}}
    assert named >= {*formatted(app)} - LINES
    assert named >= {("sim", "run"), ("sim", "replay")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [each for each in reference.REPORTS if each.startswith("sim")])
def test_reports_of_runs_have_the_fields_that_the_page_names(iriscw, command):
    """No more and no less."""
    asked = ["--seeds", "1"] if command == "sim run" else ["0"]
    found = json.loads(iriscw(*command.split(), *asked, "-o", "json")[1])
    assert {*found} == {*reference.REPORTS[command]}
    if command == "sim run":
        assert {*found["runs"][0]} == {*reference.RUN}


@pytest.mark.parametrize("command", [each for each in reference.REPORTS if each.startswith("bench")])
def test_reports_of_figures_have_the_fields_that_the_page_names(command):
    """No more and no less. They take minutes: so the keys are those that stand where the report is made."""
    tree = ast.parse(inspect.getsource(BENCHES[command].run))
    (made,) = (each.value for each in ast.walk(tree) if isinstance(each, ast.Return))
    assert [key.value for key in made.keys] == [*reference.REPORTS[command]]


def test_a_group_is_reopened_by_its_name(iriscw, cluster):
    """What was done is said, with where to look next; a name that is none is an error of whoever wrote it."""
    code, out, _ = iriscw("pools", "reopen", GROUP)
    assert (code, out.startswith(f"{GROUP} is tried again")) == (0, True)
    assert iriscw("pools", "reopen", "nobody")[0] == 2
    assert "options come after reopen" in iriscw("pools", "--address", "x:1", "reopen", GROUP)[2]


def test_a_sentence_about_a_machine_is_not_cut(iriscw, cluster):
    """It says what to do: half a command is none."""
    assert " ".join(SENTENCE.split()) in " ".join(iriscw("doctor")[1].split())
    found = wrong("storage s3://a-bucket-with-a-long-name/and/a/long/prefix/below/it/for/bundles", SENTENCE, SENTENCE)
    lines = list(doctor._lines(found))
    text = table(["CHECK", "", "FOUND"], lines, COLUMNS, whole=True)
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert " ".join(text.split()).count(SENTENCE) == 2


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 20])
def test_a_terminal_of_a_few_columns_is_no_bug(columns):
    """Nothing fits, and all of it is written."""
    text = table(["CHECK", "", "FOUND"], [["criu", "wrong", SENTENCE]], columns, whole=True)
    assert "".join(SENTENCE.split()) in "".join(text.split())


def test_nodes_say_in_a_word_that_something_is_missing(iriscw, cluster, monkeypatch):
    """Also where no terminal cuts anything: a sentence in a column would make each line as long."""
    monkeypatch.setattr(output, "terminal_columns", lambda: None)
    head, row = iriscw("nodes")[1].splitlines()
    assert row[head.index("CRIU") :].split()[:2] == ["none", "none"]
    assert "TiB" not in row
    assert len(row.rpartition("  ")[0]) <= COLUMNS


def test_checkpoints_of_this_machine_fit(capsys, monkeypatch):
    """Those of the commands, and those that an agent tells."""
    monkeypatch.setattr(output, "terminal_columns", lambda: COLUMNS)
    show(
        [ListedArtifact("ck-20261126-234501-7b830e8d31187a62", "disk", 83 << 30, None, SENTENCE)],
        "table",
        at_here._COLUMNS,
    )
    view = v1.CheckpointView(
        checkpoint_id="ck-20261126-234501-7b830e8d31187a62",
        tier="path:/mnt/checkpoints/team-a/experiments/of-this-week",
        size_bytes=83 << 30,
        pid=4_194_304,
        processes=1024,
        program="python3.11",
        labels={"job": JOB, "node": NODE},
    )
    show([view], "table", at_agent._COLUMNS)
    show(CHECKPOINTS, "table", at_controller._COLUMNS)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= COLUMNS, out


def test_columns_in_the_middle_are_cut_before_a_short_last_one():
    """The widest first, down to the beginning of a text; the first column is whole."""
    heads = ["NAME", "GROUP", "STATE", "N"]
    rows = [["n" * 30, "g" * 60, "s" * 20, "12"]]
    line = table(heads, rows, 80).splitlines()[1]
    assert (len(line), line.endswith(" 12"), "n" * 30 in line, "s" * 20 in line) == (80, True, True, True)
    assert table(heads, [["n" * 200, "g" * 60, "s" * 20, "12"]], 80).splitlines()[1] == "n" * 200
    assert table(heads, rows).splitlines()[1] == "  ".join(rows[0])


def test_figures_fit():
    """The widest that there are."""
    report = {"ratios": {"queue": {"tell_command": 0.123, "tell_state": 1.5}}, "bytes_per_idle_actor": 1234}
    text = measure.ratios_table(report, {"queue": {"tell_command": 0.4}})
    assert max(map(len, text.splitlines())) <= COLUMNS
