"""The effects of attempts: ports, and how an end reads in the worker's words."""

import hashlib
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from iriscw.jobs.model import GangPlace
from iriscw.processes.ends import ProcessEnd
from iriscw.proto.iriscw import v1
from iriscw.task.result import encode_exception, encode_value
from iriscw.worker.drivers.desk import (
    PORT_RANGE,
    AttemptDesk,
    TaskSurroundings,
    TooFewPorts,
    finish,
    free_ports,
    meeting_port,
    read_result,
)
from iriscw.worker.drivers.specifications import Specifications
from iriscw.worker.effects import AwaitEnd, Permit, Start, Withdraw
from iriscw.worker.model import Order
from iriscw.worker.ports import AttemptWithdrawn, Whereabouts
from iriscw.worker.runtimes.process import ProcessRuntime
from raised import that


def test_ports_are_different_and_free() -> None:
    """Each name gets a number of its own, on which one can listen."""
    ports = free_ports(("a", "b", "c"), "127.0.0.1")
    assert len(dict.fromkeys(ports.values())) == 3
    for number in ports.values():
        with socket.socket() as each:
            each.bind(("127.0.0.1", number))


def test_no_port_on_a_foreign_address() -> None:
    """An address that is not this machine's is an error by name."""
    with pytest.raises(TooFewPorts):
        free_ports(("a",), "192.0.2.1")


def test_an_end_and_what_it_left() -> None:
    """The end is passed on as it was seen, and a result that is there is described."""
    end = ProcessEnd(signal=9, stopped=True, killed=True, text="r", log_bytes=5)
    told = finish(end, encode_value(1), 77)
    assert (told.end, told.wall_ns) == (end, 77)
    assert told.result is not None
    assert told.fault is None


def test_a_result_that_is_a_failure() -> None:
    """The exception is named; bytes that are no result are named too; a lone surrogate does not travel."""
    _, fault = read_result(encode_exception(ValueError("bad \ud800")))
    assert fault is not None
    assert fault.kind == "ValueError"
    fault.text.encode()
    _, damaged = read_result(b"no result")
    assert damaged is not None


async def test_a_start_that_was_withdrawn_never_comes_to_the_runtime(tmp_path: Path) -> None:
    """The stop overtook it while its bundle was brought here."""

    class Bundles:
        """The cache, at a moment when the stop comes."""

        async def fetch(self, bundle_id: str) -> Path:
            await desk.withdraw(Withdraw("a1"))
            return tmp_path

    run = v1.Entrypoint(command=v1.Command(argv=["/bin/true"]))
    content = bytes(v1.TaskSpecification(entrypoint=run, bundle_id="ab", job_id="job-a"))
    name = hashlib.sha256(content).hexdigest()
    specifications = Specifications(tmp_path / "specifications")
    specifications.put(name, content)
    attempts = tmp_path / "attempts"
    desk = AttemptDesk(
        ProcessRuntime(attempts), specifications, Bundles(), TaskSurroundings("w-0", "", "127.0.0.1", "127.0.0.1")
    )
    with pytest.raises(AttemptWithdrawn, check=that(comes_from="desk.AttemptDesk.start", names="a1")):
        await desk.start(Start(Order("a1", name, "job-a/0", 0, 0)))
    assert not attempts.exists()
    assert not desk.held


def test_a_port_to_meet_at() -> None:
    """It is free on all addresses, and none that the kernel gives to who asks for no number."""
    first, last = map(int, PORT_RANGE.read_text().split())
    for _ in range(20):
        number = meeting_port()
        assert not first <= number <= last
        with socket.create_server(("", number)):
            pass


class NoBundles:
    """For jobs that have none."""

    async def fetch(self, bundle_id: str) -> Path:
        raise AssertionError(bundle_id)


async def test_a_gangs_leader_and_a_member_start(tmp_path: Path) -> None:
    """The leader is told its worker's address and a port that it reports; a member what it was ordered."""
    content = v1.TaskSpecification(
        job_id="job-a", entrypoint=v1.Entrypoint(command=v1.Command(argv=["/usr/bin/env"])), num_tasks=2, ports=["web"]
    )
    specifications = Specifications(tmp_path / "specifications")
    name = hashlib.sha256(bytes(content)).hexdigest()
    specifications.put(name, bytes(content))
    runtime = ProcessRuntime(tmp_path / "attempts", one_log=True)
    desk = AttemptDesk(runtime, specifications, NoBundles(), TaskSurroundings("w-0", "", "127.0.0.1", "127.0.0.9"))
    leads = GangPlace(0, 1, 0, 2, leads=True)
    joins = GangPlace(0, 1, 1, 2, leads=False, leader_host="10.0.0.1", leader_port=20_000)
    started, told = [], []
    for index, place in enumerate((leads, joins)):
        order = Order(f"a{index}", name, f"job-a/{index}", index, 0, gang=place)
        started.append(await desk.start(Start(order)))
        await desk.await_end(AwaitEnd(order.uid))
        lines = desk.held[order.uid].running.stdout.read_text().splitlines()
        told.append(dict(line.partition("=")[::2] for line in lines))
    assert [each.host for each in started] == ["127.0.0.9", "127.0.0.9"]
    port = started[0].rendezvous_port
    assert (started[1].rendezvous_port, port > 0, "web" in dict(started[0].ports)) == (0, True, True)
    assert [(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in told] == [
        ("127.0.0.9", str(port)),
        ("10.0.0.1", "20000"),
    ]
    assert [(each["RANK"], each["NODE_RANK"]) for each in told] == [("0", "0"), ("1", "1")]


@pytest.mark.parametrize(("told", "expected"), [("10.0.0.1", "10.0.0.1"), ("", "127.0.0.9")])
async def test_what_goes_on_here_keeps_its_address(tmp_path: Path, told: str, expected: str) -> None:
    """Its context says where it was reached before; where nobody knows, at its new worker's address."""
    asked: list[Whereabouts] = []

    class Runtime:
        """Takes note of what the attempt will be told."""

        async def permit(self, uid: str, folder: Path, grant: str, where: Whereabouts) -> SimpleNamespace:
            asked.append(where)
            return SimpleNamespace(uid=uid)

    desk = AttemptDesk(
        Runtime(), Specifications(tmp_path), NoBundles(), TaskSurroundings("w-0", "c:1", "127.0.0.1", "127.0.0.9")
    )
    await desk.permit(Permit("a1", "g1", "/w/a1", host=told))
    assert [each.advertise_host for each in asked] == [expected]
