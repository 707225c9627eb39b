"""A whole worker against a controller double, over the real protocol."""

import errno
import hashlib
import json
import os
import resource
import sys
import uuid
from pathlib import Path

import anyio
import pytest
import trustme

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import JOB_TOKEN, TOKEN, Controller, alive, authenticate, serving, settings, world

from iriscw._errors import InvalidArgument, JournalLocked
from iriscw.bundles.pack import pack
from iriscw.client.client import connect
from iriscw.cloud.model import Capacity
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tls import server_tls
from iriscw.rpc.tokens import Secret, digest_of
from iriscw.task.result import load_result
from iriscw.worker.assembly import Worker
from iriscw.worker.drivers import gpu_watch
from iriscw.worker.gpus import Gpu, GpuOffer
from iriscw.worker.runtimes.inline import InlineRuntime
from raised import that


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


async def test_a_program_runs_and_its_log_arrives_before_its_end(cache: Path) -> None:
    """A program's output, exit and sizes come back, and every byte of log was sent before the end."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="print('hello'); import sys; print('oops', file=sys.stderr)")
        seen = await controller.ended("a1")
    assert seen.state == v1.TaskState.SUCCEEDED
    assert seen.exit == v1.ProcessExit(code=0)
    assert seen.was_started
    assert controller.log("a1") == "hello\noops\n"
    assert seen.log_end_offset == 11
    assert controller.logs_at_end["a1"] == 11
    assert 0 < seen.started_at_ms <= seen.finished_at_ms
    assert controller.goodbyes == ["the worker ends"]


async def test_a_callable_returns_its_value(cache: Path) -> None:
    """A callable's result arrives whole, with its hash, before the end."""
    async with world(cache) as (controller, _):
        await controller.run("a1", function=sum, args=([1, 2, 3],))
        seen = await controller.ended("a1")
    assert seen.state == v1.TaskState.SUCCEEDED
    whole = bytes(controller.results["a1"])
    assert load_result(whole) == 6
    assert (seen.result.size_bytes, seen.result.sha256) == (len(whole), hashlib.sha256(whole).digest())


async def test_a_callable_that_raises_says_what(cache: Path) -> None:
    """The fault of a callable is its exception, with the traceback."""
    async with world(cache) as (controller, _):
        await controller.run("a1", function=divmod, args=(1, 0))
        seen = await controller.ended("a1")
    assert seen.state == v1.TaskState.FAILED
    assert seen.was_started
    assert seen.fault.kind == "ZeroDivisionError"
    assert "ZeroDivisionError" in seen.fault.text  # no frame of the user's was reached


async def test_a_program_that_fails(cache: Path) -> None:
    """An exit code and a signal are told apart, and both are failures."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="raise SystemExit(7)")
        await controller.run("a2", argv="import os; os.kill(os.getpid(), 9)")
        first, second = await controller.ended("a1"), await controller.ended("a2")
    assert (first.state, first.exit) == (v1.TaskState.FAILED, v1.ProcessExit(code=7))
    assert (second.state, second.exit) == (v1.TaskState.FAILED, v1.ProcessExit(signal=9))


async def test_what_cannot_start_says_why(cache: Path) -> None:
    """A missing program, another Python, a damaged and an unknown bundle: ended, never started, by name."""
    good = Controller()
    good.bundles["ab" * 32] = b"not the bundle that was meant"
    async with world(cache, good) as (controller, _):
        await controller.run("a1", argv=["/no/such/program"])
        await controller.run("a2", function=sum, args=([1],), python="2.7")
        await controller.run("a3", argv="print(1)", bundle="ab" * 32)
        seen = [await controller.ended(uid) for uid in ("a1", "a2", "a3")]
    assert [each.fault.kind for each in seen] == ["ProgramMissing", "PayloadRefused", "BundleCorrupt"]
    assert [each.state for each in seen] == [
        v1.TaskState.FAILED,
        v1.TaskState.FAILED,
        v1.TaskState.WORKER_FAILED,
    ]
    assert not any(each.was_started for each in seen)


async def test_a_worker_says_that_attempts_can_be_freezable(cache: Path, tmp_path: Path) -> None:
    """One that runs processes says so, and keeps io_uring from them; one whose attempts are threads does neither."""
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 0, None); print(ctypes.get_errno())"
    async with world(tmp_path / "processes") as (controller, _):
        await controller.run("a1", argv=code, freezable=True)
        await controller.ended("a1")
        assert controller.log("a1") == f"{errno.ENOSYS}\n"
        assert controller.hellos[0].attributes["freezable"].text == "true"
    controller = Controller()
    inline = InlineRuntime(tmp_path / "inline")
    async with serving(controller) as server, Worker(settings(cache, server.address), runtime=inline):
        await controller.run("a2", function=sum, args=([1],), freezable=True)
        seen = await controller.ended("a2")
    assert (seen.state, seen.fault.kind, seen.was_started) == (v1.TaskState.FAILED, "NotFreezable", False)
    assert "freezable" not in controller.hellos[0].attributes


async def test_an_order_without_its_specification_is_missing(cache: Path) -> None:
    """A worker that does not hold the specification says so; nothing starts."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="print(1)", tell=False)
        await controller.send(run=controller.desired["a1"])
        seen = await controller.ended("a1")
    assert (seen.state, seen.was_started) == (v1.TaskState.MISSING, False)


async def test_a_bundle_is_fetched_once_and_is_the_working_folder(cache: Path, tmp_path: Path) -> None:
    """The bundle's files are in the working folder; a second attempt does not fetch it again."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "data.txt").write_text("from the bundle" * 200)
    with (tmp_path / "zip").open("w+b") as file:
        packed = pack(source, file)
    double = Controller()
    double.bundles[packed.bundle_id] = (tmp_path / "zip").read_bytes()
    async with world(cache, double) as (controller, _):
        for uid in ("a1", "a2"):
            await controller.run(uid, argv="print(open('data.txt').read()[:15])", bundle=packed.bundle_id)
            await controller.ended(uid)
    assert controller.log("a1") == controller.log("a2") == "from the bundle\n"
    assert controller.bundle_calls == 1


async def test_the_environment_has_the_token_file_and_the_ports(cache: Path) -> None:
    """The job's token is in a file of mode 0600; named ports are free numbers; the order's environment wins."""
    code = (
        "import os; path = os.environ['IRIS_TOKEN_FILE'];"
        "print(open(path).read(), oct(os.stat(path).st_mode & 0o777), os.environ['IRIS_PORT_WEB'], os.environ['A'],"
        " os.environ['IRIS_WORKER_ID'], os.environ['IRIS_TASK_ID'])"
    )
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=code, ports=("web",), environment={"A": "order"})
        seen = await controller.ended("a1")
    port = seen.ports["web"]
    assert controller.log("a1").split() == [JOB_TOKEN, "0o600", str(port), "order", "worker-1", "job-a/0"]
    journal = b"".join(path.read_bytes() for path in (cache / "worker-1").rglob("journal/*") if path.is_file())
    assert JOB_TOKEN.encode() not in journal


async def test_stop_asks_then_kills_the_whole_tree(cache: Path) -> None:
    """A program that ignores SIGTERM is killed after the grace, with its children."""
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen(['sleep', '1000']); print(child.pid); signal.pause()"
    )
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=code)
        await controller.until(lambda: "\n" in controller.log("a1"))
        await controller.stop("a1", grace_ms=200, reason=v1.StopReason.PREEMPTED)
        seen = await controller.ended("a1")
        assert not alive(int(controller.log("a1")))
    assert seen.state == v1.TaskState.PREEMPTED
    assert seen.was_started


async def test_orders_come_in_one_message(cache: Path) -> None:
    """A worker says that it takes batches, and does what each message in one says, in their order."""
    async with world(cache) as (controller, _):
        await controller.run("a0", argv="pass")
        await controller.ended("a0")
        await controller.run("a1", argv="print('one')", tell=False)
        await controller.run("a2", argv="print('two')", tell=False)
        messages = [
            v1.ControllerMessage(specification=v1.Specification(hash=digest, content=content))
            for digest, content in controller.specifications.items()
        ]
        messages += [v1.ControllerMessage(run=controller.desired[uid]) for uid in ("a1", "a2")]
        messages.append(v1.ControllerMessage(forget=v1.ForgetAttempt(attempt_uid="a0")))
        await controller.send(batch=v1.Batch(messages=messages))
        ends = [await controller.ended(uid) for uid in ("a1", "a2")]
        assert [controller.log(uid) for uid in ("a1", "a2")] == ["one\n", "two\n"]
    assert [seen.state for seen in ends] == [v1.TaskState.SUCCEEDED] * 2
    assert controller.hellos[0].takes_batches


async def test_a_timeout_ends_the_attempt(cache: Path) -> None:
    """An attempt that runs longer than its specification allows fails with the controller's word for it."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="import signal; signal.pause()", timeout_ms=200)
        seen = await controller.ended("a1")
    assert (seen.state, seen.fault.kind) == (v1.TaskState.FAILED, "TaskTimeout")


async def test_a_repeated_order_starts_nothing(cache: Path) -> None:
    """However often an attempt is ordered, it runs once; after its release, a late order is answered MISSING."""
    marks = cache.parent / "marks"
    code = f"open({str(marks)!r}, 'a').write('x')"
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=code)
        order = controller.desired["a1"]
        for _ in range(3):
            await controller.send(run=order)
        await controller.ended("a1")
        await controller.send(run=order)
        await controller.forget("a1")
        with anyio.fail_after(20):
            while controller.observed["a1"].state != v1.TaskState.MISSING:
                await controller.send(run=order)
                await anyio.sleep(0.05)
    assert marks.read_text() == "x"


async def test_a_released_attempt_leaves_nothing(cache: Path) -> None:
    """After its release the attempt's folder is gone, and the next set does not name it."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="print(1)")
        await controller.run("a2", argv="import signal; signal.pause()")
        await controller.ended("a1")
        await controller.running("a2")
        await controller.forget("a1")
        with anyio.fail_after(20):
            while (cache / "worker-1/life-1/attempts/a1").exists():  # noqa: ASYNC110  # a folder has no event
                await anyio.sleep(0.02)
        controller.cut()
        await controller.until(lambda: len(controller.hellos) == 2 and len(controller.sets) == 4)
        assert [each.attempt_uid for each in controller.sets[-1].attempts] == ["a2"]


async def test_a_broken_stream_is_dialled_again_and_nothing_is_lost(cache: Path) -> None:
    """An attempt runs on while the stream is down; what it wrote and how it ended come over the next one."""
    gate = cache.parent / "gate"
    code = (
        f"import os, time\nprint('first')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\nprint('second')"
    )
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=code)
        await controller.until(lambda: controller.log("a1") == "first\n")
        controller.cut()
        gate.touch()
        seen = await controller.ended("a1")
        await controller.until(lambda: controller.log("a1") == "first\nsecond\n")
    assert seen.state == v1.TaskState.SUCCEEDED
    assert len(controller.hellos) >= 2
    assert controller.hellos[1].specification_hashes == list(controller.specifications)


async def test_what_is_not_desired_is_stopped(cache: Path) -> None:
    """After a reconnect an attempt that the controller does not know is ended and reported."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="import signal, os; print(os.getpid()); signal.pause()")
        await controller.until(lambda: "\n" in controller.log("a1"))
        del controller.desired["a1"]
        controller.cut()
        seen = await controller.ended("a1")
        assert not alive(int(controller.log("a1")))
    assert seen.state == v1.TaskState.KILLED


async def test_without_contact_for_the_lease_attempts_are_killed(cache: Path) -> None:
    """A controller that acknowledges nothing for the lease finds the attempts dead, by the worker's own clock."""
    double = Controller()
    double.lease_ms = 1000
    async with world(cache, double) as (controller, _):
        await controller.run("a1", argv="import signal, os; print(os.getpid()); signal.pause()")
        await controller.until(lambda: "\n" in controller.log("a1"))
        controller.ack_heartbeats = False
        seen = await controller.ended("a1")
        assert not alive(int(controller.log("a1")))
    assert (seen.state, seen.was_started) == (v1.TaskState.WORKER_FAILED, True)


async def test_the_lease_holds_while_heartbeats_are_acknowledged(cache: Path) -> None:
    """Contact renews the lease: an attempt outlives several of them."""
    double = Controller()
    double.lease_ms = 600
    async with world(cache, double) as (controller, _):
        await controller.run("a1", argv="import time; time.sleep(1.5)")
        seen = await controller.ended("a1")
    assert seen.state == v1.TaskState.SUCCEEDED


async def test_a_log_waits_for_its_window(cache: Path) -> None:
    """Without acknowledgements no more than a window is sent; with them the rest follows."""
    double = Controller()
    double.window_bytes = 64 << 10
    double.ack_logs = False
    async with world(cache, double) as (controller, _):
        await controller.run("a1", argv="print('x' * 300_000)")
        await controller.until(lambda: controller.log_bytes.get("a1") == 64 << 10)
        assert "a1" not in controller.logs_at_end
        controller.ack_logs = True
        await controller.send(log_ack=v1.LogAck(attempt_uid="a1", offset=64 << 10))
        seen = await controller.ended("a1")
    assert seen.log_end_offset == 300_001 == controller.log_bytes["a1"]


async def test_a_store_that_lost_bytes_gets_them_again(cache: Path) -> None:
    """An acknowledgement behind an earlier one sends the log from there."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv="print('0123456789'); import signal; signal.pause()")
        await controller.until(lambda: controller.log("a1") == "0123456789\n")
        del controller.logs["a1"][4:]
        controller.log_bytes["a1"] = 4
        await controller.send(log_ack=v1.LogAck(attempt_uid="a1", offset=4))
        await controller.until(lambda: controller.log("a1") == "0123456789\n")
        await controller.stop("a1")
        await controller.ended("a1")


async def _one_line(cache: Path, mebibytes: int) -> int:
    """Send one line of that size; give by how much the process's memory peak grew, in bytes."""
    double = Controller()
    double.keep_logs = False
    code = f"import sys\nfor _ in range({mebibytes}): sys.stdout.write('x' * (1 << 20))\nprint()"
    async with world(cache, double) as (controller, _):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await controller.run("a1", argv=code)
        seen = await controller.ended("a1", wait_s=1000)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert seen.log_end_offset == (mebibytes << 20) + 1 == controller.log_bytes["a1"]
    assert controller.largest_chunk <= 256 << 10
    return (after - before) << 10


@pytest.mark.slow
async def test_a_line_of_64_mib_takes_no_memory(cache: Path) -> None:
    """A long line arrives in pieces; the memory of both sides together grows by less than half of it."""
    assert await _one_line(cache, 64) < 32 << 20


@pytest.mark.soak
async def test_a_line_of_1_gib_takes_no_memory(cache: Path) -> None:
    """The same for the largest line that anybody wrote."""
    assert await _one_line(cache, 1024) < 64 << 20


async def test_a_worker_that_leaves_ends_its_attempts(cache: Path) -> None:
    """The end of the worker is the end of its attempts: reported, with their logs, before the goodbye."""
    double = Controller()
    async with world(cache, double) as (controller, worker):
        await controller.run("a1", argv="import signal, os; print(os.getpid()); signal.pause()")
        await controller.until(lambda: "\n" in controller.log("a1"))
        await worker.leave("test", grace_s=1)
        assert not alive(int(controller.log("a1")))
    assert double.observed["a1"].state == v1.TaskState.WORKER_FAILED
    assert double.goodbyes == ["test"]


async def test_a_worker_that_is_not_wanted_leaves(cache: Path) -> None:
    """A refusal without a time to come back ends the worker; one with a time does not."""
    double = Controller()
    double.refuse = v1.Refused(reason=v1.RefusalReason.BUSY, text="later", retry_after_ms=10)
    async with serving(double) as server, Worker(settings(cache, server.address)) as worker:
        await double.until(lambda: len(double.hellos) == 2)
        double.refuse = v1.Refused(reason=v1.RefusalReason.UNKNOWN_WORKER, text="who are you?")
        with anyio.fail_after(20):
            away = await worker.wait()
    assert away is not None
    assert (away.reason, away.text) == ("unknown_worker", "who are you?")


async def test_health_and_metrics(cache: Path) -> None:
    """/health is public; /metrics wants the token and counts."""
    async with world(cache) as (controller, worker):
        await controller.run("a1", argv="print(1)")
        await controller.ended("a1")
        status, body = await _get(worker.address, "/health")
        assert (status, json.loads(body)["connected"]) == (200, True)
        assert (await _get(worker.address, "/metrics"))[0] == 401
        status, body = await _get(worker.address, "/metrics", TOKEN.reveal())
    assert status == 200
    assert 'iriscw_worker_attempts_ended_total{ending="SUCCEEDED"} 1.0' in body


async def test_a_workers_actors_are_shown_to_its_token(cache: Path) -> None:
    """Those of its attempts, too; the token for metrics does not open that."""
    double = Controller()
    told = {"metrics_digest": digest_of(Secret("for-metrics"))}
    async with serving(double) as server, Worker(settings(cache, server.address, **told)) as worker:
        await double.run("a1", argv="import signal; signal.pause()")
        await double.until(lambda: "a1" in double.observed)
        async with connect(str(worker.address), TOKEN) as client:
            paths = [each.path for each in await client.actors()]
        assert (paths[0], "/attempts/a1" in paths) == ("/", True)
        async with connect(str(worker.address), Secret("for-metrics")) as client:
            with pytest.raises(PermissionDenied):
                await client.actors()


async def test_a_workers_gpus_are_shown_and_counted(cache: Path, tmp_path: Path, monkeypatch) -> None:
    """To its token; also where ``nvidia-smi`` has begun to hang: nothing else of the worker waits for it."""
    name = f"GPU-{uuid.uuid4()}"
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\necho {name}, 97, 40960, 81559, 61, 688.21\n")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    offer = GpuOffer((Gpu("NVIDIA H100", name, 80 << 30, 3),))
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 1.0)
    told = {"gpus": offer, "capacity": Capacity(4000, 1 << 30, 0, 1, "H100")}
    double = Controller()
    async with serving(double) as server, Worker(settings(cache, server.address, **told)) as worker:
        async with connect(str(worker.address), TOKEN) as client:
            while (await client.gpus())[0].problem:  # noqa: ASYNC110 - another process answers
                await anyio.sleep(0.02)
            (gpu,) = await client.gpus()
        assert (gpu.uuid, gpu.index, gpu.utilization_percent, gpu.power_w) == (name, 3, 97, 688.21)
        _, body = await _get(worker.address, "/metrics", TOKEN.reveal())
        assert f'iriscw_worker_gpu_temperature_celsius{{gpu="{name}",index="3"}} 61.0' in body
        smi.write_text(f"#!/bin/sh\ntouch {tmp_path}/hangs\nexec sleep 600\n")
        while not (tmp_path / "hangs").exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.02)
        await double.run("a1", argv="print(1)")
        with anyio.fail_after(20):
            await double.ended("a1")


async def test_a_worker_without_gpus_asks_nobody(cache: Path, tmp_path: Path, monkeypatch) -> None:
    """And shows none, without an error."""
    monkeypatch.setattr(gpu_watch.subprocess, "Popen", lambda *_, **__: pytest.fail("nvidia-smi was asked"))
    async with serving(Controller()) as server, Worker(settings(cache, server.address)) as worker:
        async with connect(str(worker.address), TOKEN) as client:
            assert await client.gpus() == []
        _, body = await _get(worker.address, "/metrics", TOKEN.reveal())
    assert "gpu" not in body


async def test_a_token_for_metrics_reads_a_workers_figures(cache: Path) -> None:
    """By its digest, which is all that the worker has of it; the digest itself is not a token."""
    digest = digest_of(Secret("for-metrics"))
    told = {"metrics_digest": digest}
    async with serving(Controller()) as server, Worker(settings(cache, server.address, **told)) as worker:
        for right in ("for-metrics", TOKEN.reveal()):
            assert (await _get(worker.address, "/metrics", right))[0] == 200
        for wrong in (digest, "for-metric", ""):
            assert (await _get(worker.address, "/metrics", wrong))[0] == 401
        assert sorted(worker._figures.routes()) == ["/health", "/metrics"]


@pytest.mark.parametrize("digest", ["for-metrics", "A" * 64, "a" * 63])
def test_what_is_no_digest(cache: Path, digest: str) -> None:
    """It is refused at the start: nobody would ever be let in by it."""
    with pytest.raises(InvalidArgument, check=that(comes_from="assembly._digest")):
        settings(cache, "127.0.0.1:1", metrics_digest=digest)


async def _get(address, path: str, token: str = "") -> tuple[int, str]:
    async with await anyio.connect_tcp(address.host, address.port) as stream:
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        await stream.send(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        data = b""
        async for piece in stream:
            data += piece
    return int(data.split()[1]), data.partition(b"\r\n\r\n")[2].decode()


async def test_two_processes_are_never_one_worker(cache: Path) -> None:
    """A second process of the same life is refused by name."""
    async with world(cache) as (controller, _):
        with pytest.raises(JournalLocked):
            async with Worker(settings(cache, f"127.0.0.1:{controller.port}")):
                raise AssertionError("two workers of one life")


async def _fail_inside(cache: Path, controller: Controller) -> None:
    async with world(cache, controller):
        await controller.run("a1", argv="import signal, os; print(os.getpid()); signal.pause()")
        await controller.until(lambda: "\n" in controller.log("a1"))
        raise KeyError("the host's own")


async def test_an_error_in_the_block_leaves_no_orphan(cache: Path) -> None:
    """Leaving with an error ends the attempts too, without grace, and the error goes on."""
    double = Controller()
    with pytest.raises(ExceptionGroup) as raised:
        await _fail_inside(cache, double)
    assert raised.group_contains(KeyError)
    assert not alive(int(double.log("a1")))


async def test_secrets_of_tasks(cache: Path) -> None:
    """Every task has them, unless its job sets the same variable; they are in no log line, journal or order."""
    code = "import os; print(os.environ['A'], os.environ['B'], os.environ['IRIS_BIND_HOST'])"
    more = {"task_secrets": {"A": "secret-a", "B": "secret-b"}, "task_bind_host": "0.0.0.0"}
    async with world(cache, **more) as (controller, worker):
        await controller.run("a1", argv=code, environment={"B": "order"})
        await controller.ended("a1")
        assert "secret-" not in repr(worker.settings)
    assert controller.log("a1").split() == ["secret-a", "order", "0.0.0.0"]
    journal = b"".join(path.read_bytes() for path in (cache / "worker-1").rglob("journal/*") if path.is_file())
    assert b"secret-" not in journal


async def test_a_controller_with_a_certificate_of_its_own_authority(cache: Path, tmp_path: Path) -> None:
    """The worker trusts what it is told to trust, and dials over TLS."""
    authority, controller = trustme.CA(), Controller()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    tls = server_tls(tmp_path / "tls.pem", tmp_path / "tls.pem")
    async with RpcServer([controller], authenticate=authenticate, tls=tls) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        async with Worker(settings(cache, address, authority=tmp_path / "ca.crt")):
            await controller.until(lambda: controller.outgoing is not None)
            await controller.run("a1", argv="import os; print(os.environ['IRIS_CA_FILE'])")
            await controller.ended("a1")
    assert controller.log("a1").strip() == str(tmp_path / "ca.crt")
    assert str(address).startswith("https://")


TELLS = """
import os, pathlib, time
folder, go = pathlib.Path(os.environ["IRIS_WORKDIR"], ".iris"), pathlib.Path({go!r})
def say(text):
    (folder / "next").write_text(text)
    (folder / "next").rename(folder / "progress")
say(chr(91) + "1, 2, " + chr(34) + chr(92) + "ud800" + chr(34) + "]")
say("[7]")
say("[1000, 2000, " + chr(34) + "half" + chr(34) + "]")
while not go.exists():
    time.sleep(0.01)
"""


async def test_a_program_tells_how_far_it_is(cache: Path, tmp_path: Path) -> None:
    """What is no progress is passed over, and harms nobody; what is one is told on each stream."""
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=TELLS.format(go=str(tmp_path / "go")))
        await controller.until(lambda: controller.told)
        controller.cut()
        await controller.until(lambda: len(controller.told) == 2)
        (tmp_path / "go").touch()
        seen = await controller.ended("a1")
        assert len(controller.hellos) == 2, "no stream broke by itself"
    half = v1.Progress(done_milli=1000, total_milli=2000, text="half")
    assert seen.state == v1.TaskState.SUCCEEDED
    assert controller.told == [v1.ProgressReport(attempt_uid="a1", progress=half)] * 2
