"""The effects of attempts: ports, and how an end reads in the worker's words."""

import hashlib
import socket
from pathlib import Path

import pytest

from iriscw.proto.iriscw import v1
from iriscw.task.result import encode_exception, encode_value
from iriscw.worker.drivers.desk import Desk, Place, TooFewPorts, finish, free_ports, result_fault
from iriscw.worker.drivers.specifications import Specifications
from iriscw.worker.effects import Start, Withdraw
from iriscw.worker.model import Order
from iriscw.worker.ports import AttemptEnd, AttemptWithdrawn, EndKind
from iriscw.worker.runtimes.process import ProcessRuntime


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


def test_an_end_in_the_workers_words() -> None:
    """Both logs count, and a result that is there is described."""
    end = AttemptEnd(EndKind.STOPPED, signal=9, killed=True, reason="r", stdout_bytes=2, stderr_bytes=3)
    told = finish(end, encode_value(1), 77)
    assert (told.stopped, told.signal, told.log_bytes, told.wall_ns) == (True, 9, 5, 77)
    assert told.result is not None
    assert told.fault is None


def test_a_result_that_is_a_failure() -> None:
    """The exception is named; bytes that are no result are named too; a lone surrogate does not travel."""
    fault = result_fault(encode_exception(ValueError("bad \ud800")))
    assert fault is not None
    assert fault.kind == "ValueError"
    fault.text.encode()
    damaged = result_fault(b"no result")
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
    desk = Desk(ProcessRuntime(attempts), specifications, Bundles(), Place("w-0", "", "127.0.0.1", "127.0.0.1"))
    with pytest.raises(AttemptWithdrawn, match="a1"):
        await desk.start(Start(Order("a1", name, "job-a/0", 0, 0)))
    assert not attempts.exists()
    assert not desk.held
