"""The worker as a process: signals, exit codes, kill -9 and what the next process makes of it."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import JOB_TOKEN, TOKEN, Controller, alive, serving, settings

from iriscw._errors import UsageError
from iriscw.cloud.kube.tasks import TaskPods, encode_task_pods
from iriscw.cloud.model import Capacity
from iriscw.proto.iriscw import v1
from iriscw.rpc.tokens import write_token_file
from iriscw.worker.__main__ import (
    EXIT_CODES,
    EXIT_LESS_THAN_PROMISED,
    EXIT_ORPHANED,
    EXIT_TURNED_AWAY,
    EXIT_USAGE,
    Incomplete,
    MachineTooSmall,
    check_promise,
    main,
    parser,
    promise_of,
    settings_of,
)
from iriscw.worker.assembly import Worker
from iriscw.worker.drivers.gpus import GpusTaken
from iriscw.worker.gpus import Gpu, GpuOffer
from iriscw.worker.probe import ProbedMachine
from raised import Check, that

CONFIG = """
name: test
platform: {local: {workdir: /tmp/nowhere}}
scale_groups:
  small:
    accelerator_type: cpu
    num_vms: 1
    min_slices: 0
    max_slices: 1
    resources: {cpu: 2, ram: 4GB, disk: 1GB}
"""


@asynccontextmanager
async def process(folder: Path, controller: Controller, **options: str) -> AsyncIterator[anyio.abc.Process]:
    """Run a worker as a process; kill it at the end."""
    write_token_file(folder / "token", TOKEN)
    values = {
        "controller": f"127.0.0.1:{controller.port}",
        "worker-id": "worker-1",
        "incarnation": "life-1",
        "cache-dir": str(folder / "cache"),
        "token-file": str(folder / "token"),
        "port": "0",
        **options,
    }
    argv = [sys.executable, "-m", "iriscw.worker", "serve", *(f"--{name}={value}" for name, value in values.items())]
    with (folder / "worker.log").open("ab") as lines:
        worker = await anyio.open_process(argv, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines)
    try:
        yield worker
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "worker.log").read_text().splitlines()]


async def test_after_kill_9_attempts_are_taken_up_and_nothing_starts_twice(tmp_path: Path) -> None:
    """A killed worker's attempts run on; the next process reports them with the whole log, and starts none again."""
    controller, gate, marks = Controller(), tmp_path / "gate", tmp_path / "marks"
    waits = (
        f"import os, time; open({str(marks)!r}, 'a').write('x'); print('before')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)\nprint('after')"
    )
    async with serving(controller) as server:
        async with process(tmp_path, controller) as worker:
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv=waits)
            await controller.run("a2", argv="print('early')")
            await controller.until(lambda: controller.log("a1") == "before\n")
            await controller.ended("a2")
            worker.kill()
            await worker.wait()
        await controller.until(lambda: controller.outgoing is None)
        controller.observed.clear()
        async with Worker(settings(tmp_path / "cache", server.address)):
            await controller.until(lambda: len(controller.hellos) == 2 and "a1" in controller.observed)
            assert controller.observed["a1"].state == v1.TaskState.RUNNING
            assert controller.observed["a2"].state == v1.TaskState.SUCCEEDED
            gate.touch()
            seen = await controller.ended("a1")
            await controller.until(lambda: controller.log("a1") == "before\nafter\n")
    assert seen.state == v1.TaskState.SUCCEEDED
    assert marks.read_text() == "x"


@pytest.mark.slow
async def test_after_kill_9_gpus_stay_with_their_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process of the worker has the same GPUs, as its attempt has; another worker gets none of them."""
    own = uuid.uuid4().hex[:8]
    (tmp_path / "nvidia-smi").write_text(SMI.replace("GPU-", f"GPU-{own}-"))
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("IRISCW_GPU_COUNT", "2")
    machine = GpuOffer(tuple(Gpu("NVIDIA H100", f"GPU-{own}-{number}", 1, number) for number in range(4)))
    had, four = machine.gpus[0].uuid, Capacity(1000, 1 << 30, 1 << 30, gpu_count=4)
    controller = Controller()
    async with serving(controller) as server:
        async with process(tmp_path, controller) as worker:
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv="import signal; print('up'); signal.pause()", gpus=1)
            await controller.until(lambda: controller.log("a1") == "up\n")
            assert list(controller.observed["a1"].gpus) == [had]
            worker.kill()
            await worker.wait()
        await controller.until(lambda: controller.outgoing is None)
        other = settings(tmp_path / "other", server.address, worker_id="other", capacity=four, gpus=machine)
        with pytest.raises(GpusTaken, check=that(comes_from="gpus.claim", names="a1")):
            async with Worker(other):
                pass
        controller.observed.clear()
        async with process(tmp_path, controller):
            await controller.until(lambda: "a1" in controller.observed)
            assert list(controller.observed["a1"].gpus) == [had]
            assert controller.hellos[-1].capacity.gpu_count == 2
            await controller.run("a2", argv="import signal; print('up'); signal.pause()", gpus=1)
            await controller.until(lambda: controller.log("a2") == "up\n")
            assert list(controller.observed["a2"].gpus) == [machine.gpus[1].uuid]


@pytest.mark.slow
async def test_what_was_lost_with_the_worker_is_missing(tmp_path: Path) -> None:
    """An attempt whose supervisor died with its worker is reported MISSING, though it is ordered again."""
    controller, marks = Controller(), tmp_path / "marks"
    code = f"import os, signal; open({str(marks)!r}, 'a').write('x'); print(os.getpid()); signal.pause()"
    async with serving(controller) as server:
        async with process(tmp_path, controller) as worker:
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv=code)
            await controller.until(lambda: "\n" in controller.log("a1"))
            worker.kill()
            await worker.wait()
        identity = json.loads((tmp_path / "cache/worker-1/life-1/attempts/a1/identity.json").read_text())
        os.kill(identity["supervisor"]["pid"], signal.SIGKILL)
        async with Worker(settings(tmp_path / "cache", server.address)):
            seen = await controller.ended("a1")
            assert not alive(int(controller.log("a1")))
    assert (seen.state, seen.was_started) == (v1.TaskState.MISSING, True)
    assert marks.read_text() == "x"


async def test_the_next_incarnation_ends_what_the_last_one_left(tmp_path: Path) -> None:
    """Processes of an earlier life of the same worker are gone before the new one takes work."""
    controller = Controller()
    async with serving(controller) as server:
        async with process(tmp_path, controller) as worker:
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv="import os, signal; print(os.getpid()); signal.pause()")
            await controller.until(lambda: "\n" in controller.log("a1"))
            worker.kill()
            await worker.wait()
        await controller.until(lambda: controller.outgoing is None)
        controller.desired.clear()
        async with Worker(settings(tmp_path / "cache", server.address, incarnation="life-2")):
            await controller.until(lambda: len(controller.hellos) == 2 and controller.outgoing is not None)
            assert not alive(int(controller.log("a1")))
            assert controller.sets[-1].attempts == []


@pytest.mark.slow
async def test_after_kill_9_attempts_end_with_the_lease(tmp_path: Path) -> None:
    """Nobody starts the worker again: at the end of the lease its attempts are gone, with all that they started.

    The one that is started too late finds no attempt to go on with, and starts none again.
    """
    controller, marks = Controller(), tmp_path / "marks"
    controller.lease_ms = 6000
    code = (
        f"import os, signal; open({str(marks)!r}, 'a').write('x'); signal.signal(15, signal.SIG_IGN)\n"
        "if os.fork() == 0: os.setsid()\n"
        "os.write(1, b'%d\\n' % os.getpid())\nsignal.pause()"  # one write: print makes two, and two processes' mix
    )
    lease = tmp_path / "cache/worker-1/life-1/lease"
    async with serving(controller) as server:
        async with process(tmp_path, controller) as worker:
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv=code)
            await controller.until(lambda: controller.log("a1").count("\n") == 2)
            worker.kill()
            await worker.wait()
        pids = [int(pid) for pid in controller.log("a1").split()]
        assert all(map(alive, pids)), "not before the end of the lease"
        with anyio.fail_after(60):
            while any(map(alive, pids)):  # noqa: ASYNC110 - processes that are not our children
                await anyio.sleep(0.05)
        assert int(lease.read_text().split()[1]) <= time.monotonic_ns(), "not before its end"
        async with Worker(settings(tmp_path / "cache", server.address)):
            await controller.until(lambda: len(controller.hellos) == 2)
            seen = await controller.ended("a1")
    assert (seen.state, seen.was_started) == (v1.TaskState.WORKER_FAILED, True)
    assert "lease" in seen.fault.text
    assert marks.read_text() == "x"


@pytest.mark.slow
async def test_a_worker_that_nobody_waits_for_exits_with_6(tmp_path: Path) -> None:
    """Its controller is gone for good: attempts end, then the worker, and it says why."""
    controller = Controller()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(controller))
        worker = await stack.enter_async_context(process(tmp_path, controller, **{"orphan-after": "5"}))
        await controller.until(lambda: controller.outgoing is not None)
        await controller.run("a1", argv="import os, signal; print(os.getpid()); signal.pause()")
        await controller.until(lambda: "\n" in controller.log("a1"))
        await server.drain(0)
        with anyio.fail_after(60):
            assert await worker.wait() == EXIT_ORPHANED
    assert not alive(int(controller.log("a1")))
    assert any("no contact with a controller" in line["message"] for line in lines(tmp_path))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_in_order_without_a_secret_in_its_lines(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM or SIGHUP: attempts end and are reported, exit code 0; lines are JSON, with ids and without secrets."""
    controller = Controller()
    async with serving(controller), process(tmp_path, controller) as worker:
        await controller.until(lambda: controller.outgoing is not None)
        await controller.run("a1", argv="import signal; print('up'); signal.pause()", environment={"S": "hidden-value"})
        await controller.until(lambda: controller.log("a1") == "up\n")
        worker.send_signal(number)
        with anyio.fail_after(30):
            assert await worker.wait() == 0
    assert controller.observed["a1"].state == v1.TaskState.WORKER_FAILED
    assert controller.goodbyes == [f"{number.name} to the worker"]
    assert any(each.get("attempt") == "a1" and each["task"] == "job-a/0" for each in lines(tmp_path))
    text = (tmp_path / "worker.log").read_text()
    assert not any(secret in text for secret in (TOKEN.reveal(), JOB_TOKEN, "hidden-value"))


@pytest.mark.slow
async def test_a_worker_that_is_not_wanted_exits_with_4(tmp_path: Path) -> None:
    """A final refusal is an exit code of its own: whoever starts the process must not start it again."""
    controller = Controller()
    controller.refuse = v1.Refused(reason=v1.RefusalReason.UNKNOWN_WORKER, text="who are you?")
    async with serving(controller), process(tmp_path, controller) as worker:
        with anyio.fail_after(30):
            assert await worker.wait() == EXIT_TURNED_AWAY
    assert "who are you?" in lines(tmp_path)[-1]["message"]


def machine(**changes: int) -> ProbedMachine:
    return ProbedMachine(
        Capacity(**{"cpu_milli": 2000, "memory_bytes": 4 * 10**9, "disk_bytes": 10**9, **changes}), (), "x"
    )


def test_a_machine_with_less_than_promised_is_refused(tmp_path: Path) -> None:
    """What is short is named; a machine that has it all passes; an unknown group is a slip of the caller."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CONFIG)
    check_promise("small", promise_of(path, "small"), machine())
    with pytest.raises(MachineTooSmall, check=that(names="memory")):
        check_promise("small", promise_of(path, "small"), machine(memory_bytes=10**9))
    with pytest.raises(Incomplete, check=that(comes_from="__main__.promise_of")):
        promise_of(path, "large")


SMI = """#!/bin/sh
case "$1" in topo | -L) exit 3 ;; esac
echo called >> "$0.calls"
for number in 0 1 2 3; do
    echo "NVIDIA H100 80GB HBM3, GPU-$number, 81559, $number"
done
"""


@pytest.mark.parametrize(
    ("told", "bound", "count", "gpus", "calls"),
    [
        ({"IRISCW_GPU_COUNT": "2"}, None, 2, "0123", 1),
        ({"IRISCW_GPU_COUNT": "0"}, None, 0, "", 0),
        ({"IRISCW_CONFIG": "gpus", "IRISCW_GROUP": "two"}, None, 2, "0123", 1),
        ({"IRISCW_CONFIG": "gpus", "IRISCW_GROUP": "none"}, None, 0, "", 0),
        ({}, None, 4, "0123", 1),
        ({}, "3,GPU-1,nonsense,2", 2, "13", 1),
        ({"IRISCW_GPU_COUNT": "3"}, "3,1", None, "only 2 may be", 1),
        ({"IRISCW_CONFIG": "gpus", "IRISCW_GROUP": "two"}, "", None, "gpu", 1),
    ],
)
def test_a_worker_offers_what_its_group_promises_and_no_more(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: dict,
    bound: str | None,
    count: int | None,
    gpus: str,
    calls: int,
) -> None:
    """Whatever the machine has; of those that CUDA_VISIBLE_DEVICES leaves it. Who promises none does not look."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    config = {"name": "test", "platform": {"local": {}}, "scale_groups": {"none": GROUP, "two": GPU_GROUP}}
    (tmp_path / "cluster.yaml").write_text(json.dumps(config))
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    environment = {**dialling(tmp_path), **told}
    if bound is not None:
        environment["CUDA_VISIBLE_DEVICES"] = bound
    if "IRISCW_CONFIG" in told:
        environment["IRISCW_CONFIG"] = str(tmp_path / "cluster.yaml")
    arguments = parser(environment).parse_args(["serve"])
    if count is None:
        with pytest.raises(MachineTooSmall):
            settings_of(arguments, environment)
    else:
        made = settings_of(arguments, environment)
        assert made.capacity.gpu_count == count
        assert made.capacity.gpu_class == ("H100" if count else "")
        assert "".join(gpu.uuid[-1] for gpu in made.gpus.gpus) == gpus
        assert made.fewer_gpus == (told == {})
    found = tmp_path / "nvidia-smi.calls"
    assert (len(found.read_text().splitlines()) if found.exists() else 0) == calls


def test_a_number_of_gpus_that_is_none_is_a_slip(tmp_path: Path) -> None:
    """By its name, before anything starts."""
    environment = {**dialling(tmp_path), "IRISCW_GPU_COUNT": "two"}
    with pytest.raises(Incomplete, check=that(names="IRISCW_GPU_COUNT")):
        settings_of(parser(environment).parse_args(["serve"]), environment)


GROUP = {"resources": {"cpu": "1m", "ram": "1MiB"}}
GPU_GROUP = {
    "accelerator_type": "gpu",
    "accelerator_variant": "H100",
    "resources": {**GROUP["resources"], "gpu_count": 2},
}


def dialling(folder: Path) -> dict[str, str]:
    """What a worker has to be told at least."""
    return {
        "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:10000",
        "IRIS_WORKER_ID": "w",
        "IRISCW_INCARNATION": "i",
        "IRISCW_CACHE_DIR": str(folder / "cache"),
        "IRISCW_TOKEN_FILE": str(folder / "token"),
    }


def test_what_is_missing_is_named() -> None:
    """A worker that was not told its controller says so."""
    arguments = parser({}).parse_args(["serve"])
    with pytest.raises(Incomplete, check=that(names="controller")):
        settings_of(arguments, {})


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """For how long a worker waits is a number of seconds from 0."""
    write_token_file(tmp_path / "token", TOKEN)
    options = {
        "controller": "127.0.0.1:1",
        "worker-id": "w",
        "incarnation": "i",
        "cache-dir": str(tmp_path),
        "token-file": str(tmp_path / "token"),
    }
    arguments = parser({}).parse_args([*(f"--{name}={value}" for name, value in options.items())])
    arguments.orphan_after = text
    named = "--orphan-after" if text == "soon" else "orphan_after_s"  # the option, or what it becomes
    with pytest.raises(UsageError, check=that(names=named)):
        settings_of(arguments, {"IRIS_VM_ADDRESS": "127.0.0.1"})


def test_the_environment_fills_in(tmp_path: Path) -> None:
    """Each option has a variable; the command line wins over it."""
    write_token_file(tmp_path / "token", TOKEN)
    environment = {
        "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:10000",
        "IRIS_WORKER_ID": "w",
        "IRISCW_POD_UID": "u",
        "IRISCW_CACHE_DIR": str(tmp_path / "cache"),
        "IRIS_TOKEN_FILE": str(tmp_path / "token"),
        "IRIS_VM_ADDRESS": "127.0.0.1",
        "IRISCW_ATTRIBUTES": '{"zone": "z", "rank": 3}',
        "IRISCW_ORPHAN_AFTER_S": "2.5",
    }
    arguments = parser(environment).parse_args(["serve", "--worker-id", "mine"])
    assert isinstance(arguments, argparse.Namespace)
    made = settings_of(arguments, environment)
    assert (made.worker_id, made.incarnation, made.port) == ("mine", "u", 10001)
    assert made.orphan_after_s == 2.5
    assert parser({}).parse_args([]).orphan_after == "0", "nobody said so: never"
    assert made.attributes.get("zone") == "z"
    assert made.attributes.get("rank") == 3
    assert made.attributes.get("python") == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert TOKEN.reveal() not in repr(made)


@pytest.mark.parametrize(("config", "code"), [("name: [", EXIT_USAGE), (CONFIG, EXIT_LESS_THAN_PROMISED)])
def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, code: int) -> None:
    """A bad configuration and a small machine each have their exit code."""
    write_token_file(tmp_path / "token", TOKEN)
    (tmp_path / "cluster.yaml").write_text(config)
    monkeypatch.setenv("IRIS_VM_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("IRISCW_CPU_MILLI", "1000")
    options = {
        "controller": "127.0.0.1:1",
        "worker-id": "w",
        "incarnation": "i",
        "cache-dir": str(tmp_path / "cache"),
        "token-file": str(tmp_path / "token"),
        "config": str(tmp_path / "cluster.yaml"),
        "group": "small",
    }
    monkeypatch.setattr(sys, "argv", ["worker", "serve", *(f"--{name}={value}" for name, value in options.items())])
    assert main() == code


def test_the_help_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """It has every variable and every exit code, and the page of the worker has the same codes."""
    with pytest.raises(SystemExit) as ended:
        parser({}).parse_args(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    source = Path(sys.modules["iriscw.worker.__main__"].__file__ or "").read_text()
    variables = re.findall(r"IRIS(?:CW)?_[A-Z_]+", source)
    assert len(set(variables)) > 10
    assert [name for name in variables if name not in said] == []
    page = (Path(__file__).parents[2] / "docs" / "worker.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"  {code}  {meaning}\n" in said
        assert f"| {code} | {meaning.replace('--orphan-after', '`--orphan-after`')} |\n" in page


def test_what_a_pod_tells_its_worker(tmp_path: Path) -> None:
    """Its own token's file goes before a task's; secrets of tasks lose their prefix, and are shown nowhere.

    Tasks listen where others reach them, if nobody says otherwise, and not where the worker's own door is.
    """
    write_token_file(tmp_path / "token", TOKEN)
    environment = {
        "IRIS_CONTROLLER_ADDRESS": "https://iris-controller-svc.iris.svc.cluster.local:10000",
        "IRIS_WORKER_ID": "w",
        "IRISCW_INCARNATION": "i",
        "IRISCW_CACHE_DIR": str(tmp_path / "cache"),
        "IRISCW_TOKEN_FILE": str(tmp_path / "token"),
        "IRIS_TOKEN_FILE": "/nowhere",
        "IRISCW_CA_FILE": "/etc/iris/ca/ca.crt",
        "IRISCW_TASK_BIND_HOST": "0.0.0.0",
        "IRISCW_TASK_SECRET_WANDB_API_KEY": "the-key",
        "IRIS_VM_ADDRESS": "10.0.0.7",
    }
    made = settings_of(parser(environment).parse_args(["serve"]), environment)
    assert made.token == TOKEN
    assert made.authority == Path("/etc/iris/ca/ca.crt")
    assert (made.host, made.bind_host, made.advertise_host) == ("127.0.0.1", "0.0.0.0", "10.0.0.7")
    del environment["IRISCW_TASK_BIND_HOST"]
    made = settings_of(parser(environment).parse_args(["serve"]), environment)
    assert (made.host, made.bind_host, made.advertise_host) == ("127.0.0.1", "10.0.0.7", "10.0.0.7")
    assert made.task_secrets == {"WANDB_API_KEY": "the-key"}
    assert "the-key" not in repr(made)


def in_a_pod_with_task_pods(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a worker whose tasks have pods of their own."""
    write_token_file(tmp_path / "token", TOKEN)
    promise = Capacity(4_000_000, 1 << 20, 0, 8, "H100")
    pods = TaskPods(
        cluster="c", namespace="iris", image="i", cache_dir="/var/cache/iris", node_cache_dir="/mnt/x", promise=promise
    )
    return {
        "IRIS_CONTROLLER_ADDRESS": "10.0.0.1:10000",
        "IRIS_WORKER_ID": "w",
        "IRISCW_INCARNATION": "i",
        "IRISCW_CACHE_DIR": str(tmp_path / "cache"),
        "IRISCW_TOKEN_FILE": str(tmp_path / "token"),
        "IRIS_VM_ADDRESS": "10.0.0.7",
        "IRISCW_TASK_PODS": encode_task_pods(pods),
        "IRISCW_OWN_POD": "w-pod",
        "IRISCW_OWN_POD_UID": "uid",
        "IRISCW_OWN_NODE": "node",
    }


def test_a_worker_whose_tasks_have_pods_promises_what_it_is_told(tmp_path: Path) -> None:
    """GPUs that it cannot see, and of the rest no more than the machine has; tasks see its cache under its path."""
    environment = in_a_pod_with_task_pods(tmp_path)
    made = settings_of(parser(environment).parse_args(["serve"]), environment)
    assert made.task_pods is not None
    pods, owner = made.task_pods
    assert attrs.astuple(owner) == ("w-pod", "uid", "node", "w", "i")
    assert pods.cache_dir == str(tmp_path / "cache")
    assert (made.capacity.gpu_count, made.capacity.gpu_class, made.capacity.memory_bytes) == (8, "H100", 1 << 20)
    assert 0 < made.capacity.cpu_milli < 4_000_000
    assert made.capacity.disk_bytes > 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("IRISCW_OWN_POD_UID", "", that(comes_from="__main__.task_pods")),
        ("IRISCW_TASK_PODS", "nonsense", that(names="IRISCW_TASK_PODS")),
    ],
)
def test_what_a_worker_is_told_in_part_is_refused(tmp_path: Path, name: str, value: str, said: Check) -> None:
    """By the names of the variables."""
    environment = {**in_a_pod_with_task_pods(tmp_path), name: value}
    with pytest.raises(Incomplete, check=said):
        settings_of(parser(environment).parse_args(["serve"]), environment)
