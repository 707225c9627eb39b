"""Commands in pods, against a served simulation whose containers are processes of this machine."""

import asyncio
import logging
import os
import signal
from contextlib import aclosing
from pathlib import Path

import anyio
import attrs
import pytest
from local_streams import LocalStreams
from served_pods import drivers_of, made_pod, running_pod, serve

from iriscw.cloud.drivers import attended as attended_module
from iriscw.cloud.drivers.kube import exec as exec_module
from iriscw.cloud.drivers.kube.streams import V4
from iriscw.cloud.model import ExecOutput, Forbidden, Gone, InvalidSpec, Unavailable
from iriscw.cloud.ports import Connection
from iriscw.testing.conformance.connection import ConnectionConformance, sh
from raised import that
from waiting import until


@pytest.fixture
def streams(tmp_path):
    """The inside of the simulated containers; ``reachable`` says whether their node's tunnel stands."""
    (tmp_path / "pods").mkdir()
    return LocalStreams(tmp_path / "pods")


@pytest.fixture
async def server(tmp_path, streams):
    """A simulated cluster."""
    async with serve(tmp_path, streams) as running:
        yield running


@pytest.fixture
async def drivers(server):
    """The drivers of that cluster."""
    async with drivers_of(server) as opened:
        yield opened


@pytest.fixture
async def pod(drivers):
    """A pod that runs."""
    return await running_pod(drivers)


@pytest.fixture
async def connection(drivers, pod):
    """The way into it."""
    return drivers.connection(pod.name, pod.uid)


class TestConformance(ConnectionConformance):
    """The contract of the port, over version 5 of the protocol."""


async def test_it_is_the_port(connection):
    """As far as the runtime can tell."""
    assert isinstance(connection, Connection)


async def test_version_4_does_all_of_it(connection):
    """A deadline included: its kill is a byte, for version 4 has no end of input."""
    old = attrs.evolve(connection, protocols=(V4,))
    result = await old.run(sh("cat; echo out; exit 3"), 20)
    assert (result.exit_code, result.stdout) == (3, b"out\n")
    with pytest.raises(TimeoutError, check=that(comes_from="attended.AttendedConnection.run", names="0.5")):
        await old.run(sh("sleep 600"), 0.5)


@pytest.mark.parametrize("how", ["deadline", "cancelled", "left"])
async def test_who_is_told_of_an_end_can_rely_on_it(connection, streams, pod, how):
    """Nothing of the command runs any more at that very moment."""
    child = streams.folder / pod.uid / "child"
    script = sh("sleep 600 & echo $! > child.new; mv child.new child; echo there; wait")
    if how == "deadline":
        with pytest.raises(TimeoutError, check=that(comes_from="attended.AttendedConnection.run", names="2")):
            await connection.run(script, 2)
    elif how == "cancelled":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run, script, 30)
            await until(child.exists)
            tasks.cancel_scope.cancel()
    else:
        async with aclosing(connection.stream(script)) as stream:
            assert await anext(stream) == ExecOutput(b"there\n")
    assert not is_alive(child.read_text().strip())


def is_alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_bytes().rpartition(b")")[2].split()[0] != b"Z"


async def test_outputs_are_binary(connection):
    """Every byte, on both outputs, whatever it is."""
    every = bytes(range(256))
    script = "import sys;e=bytes(range(256))*300;sys.stdout.buffer.write(e);sys.stderr.buffer.write(e)"
    result = await connection.run(["python3", "-c", script], 20)
    assert (result.stdout, result.stderr) == (every * 300, every * 300)


async def test_a_signals_code_is_the_shells(connection):
    """And what is left behind is killed, so nothing waits for it."""
    result = await connection.run(sh("sleep 600 & kill -KILL $$"), 20)
    assert result.exit_code == 137


async def test_arguments_and_environment_stay_out_of_the_url(connection, streams, caplog):
    """The API server writes URLs to its audit log. So they may be long, too."""
    caplog.set_level(logging.DEBUG)
    secret = "s3cret" * 20_000
    result = await connection.run(["sh", "-c", 'printf "%s" "${#X} ${#1}"', "sh", secret], 20, {"X": secret})
    assert result.stdout == b"120000 120000"
    assert not any("s3cret" in word for argv in streams.argvs for word in argv)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("argv", "environment"),
    [([], {}), (["a\0"], {}), (["a"], {"X": "\0"}), (["a"], {"": "x"}), (["a"], {"a=b": "x"}), (["a" * 2**21], {})],
)
async def test_what_no_machine_can_run_is_refused_here(connection, streams, argv, environment):
    """Before anything is asked."""
    with pytest.raises(InvalidSpec):
        await connection.run(argv, 20, environment)
    assert not streams.argvs


async def test_a_container_without_an_interpreter_is_told(connection):
    """By name: it does not get better by itself."""
    with pytest.raises(InvalidSpec, check=that(comes_from="exec.Attended._hear")):
        await attrs.evolve(connection, interpreter=("no-such-python",)).run(["true"], 20)


async def test_another_pod_of_the_same_name_is_not_it(drivers, connection, pod):
    """Nothing is run in it, though it was there to be run in."""
    other = drivers.connection(pod.name, "another-uid")
    for attempt in (other.run(["true"], 20), other.wait_until_ready(20), anext(other.stream(["true"]))):
        with pytest.raises(Gone):
            await attempt
    with pytest.raises(Gone):
        await drivers.connection("no-such-pod", pod.uid).run(["true"], 20)
    with pytest.raises(Gone):
        await drivers.connection("No Pod", pod.uid).run(["true"], 20)


async def test_a_pod_that_went_is_gone(drivers, connection, pod):
    """Also for whoever waits for it."""
    await drivers.pods.delete(pod.name, pod.uid, 1)
    async for event in drivers.pods.watch({}):
        if type(event).__name__ == "Removed" or event == type(event)(()):
            break
    for attempt in (connection.run(["true"], 20), connection.wait_until_ready(20)):
        with pytest.raises(Gone):
            await attempt


async def test_a_wrong_token_is_forbidden(server, pod):
    """As CoreWeave says it: 403."""
    async with drivers_of(server, "CW-SECRET-wrong") as wrong:
        connection = wrong.connection(pod.name, pod.uid)
        for attempt in (connection.run(["true"], 20), connection.wait_until_ready(20)):
            with pytest.raises(Forbidden) as refused:
                await attempt
            assert "CW-SECRET" not in str(refused.value)


async def test_a_node_that_cannot_be_reached_yet_is_waited_for(connection, streams):
    """500 is answered until its tunnel stands. The command runs once."""
    tries = []
    streams._reachable = lambda _node: len(tries) > 3 or tries.append(1)
    assert (await connection.run(sh("echo x >> ran; cat ran"), 20)).stdout == b"x\n"
    assert len(streams.argvs) == 1
    tries.clear()
    await connection.wait_until_ready(20)
    assert len(tries) == 4


async def test_a_node_that_is_never_reached_is_told(connection, streams, monkeypatch):
    """Nothing was run, and both ways of running say so; waiting says that it took too long."""
    streams._reachable = lambda _node: False
    monkeypatch.setattr(attended_module, "BEGIN_S", 0.3)
    for attempt in (connection.run(["true"], 20), anext(connection.stream(["true"]))):
        with pytest.raises(Unavailable, check=that(comes_from="places.PodPlace.reached")):
            await attempt
    with pytest.raises(Unavailable):  # either of two clocks that end at the same moment says it
        await connection.run(["true"], 0.1)
    with pytest.raises(TimeoutError):
        await connection.wait_until_ready(0.3)
    assert not streams.argvs


async def test_a_pod_that_does_not_run_yet_is_waited_for(drivers):
    """From the moment it was made."""
    pod = await made_pod(drivers)
    connection = drivers.connection(pod.name, pod.uid)
    with anyio.fail_after(30):
        await connection.wait_until_ready(30)
    assert (await connection.run(["true"], 20)).exit_code == 0


async def test_a_cancelled_command_is_killed(connection):
    """With all it started, before the cancellation goes on; and nothing is left open."""
    with anyio.move_on_after(1):
        await connection.run(sh("sleep 600 & echo $! > child; wait"), 20)
    left = await connection.run(sh('test -s child && ! kill -0 "$(cat child)"'), 20)
    assert left.exit_code == 0
    assert connection.api.statistics().open_streams == 0
    assert not any("pulse" in repr(task) for task in asyncio.all_tasks())


async def test_a_cut_connection_kills(connection):
    """The lifeline's end is the command's; and whoever waits for it is told that nobody saw it."""
    async with connection._attended(20) as attended:
        await attended.begin(exec_module.ExecOrder(tuple(sh("sleep 600 & echo $! | tee child; wait"))).encoded())
        async with aclosing(attended.output()) as output:
            assert (await anext(output))[1].strip().isdigit()
        attended._channels.abort()
        with pytest.raises(Exception, check=that(comes_from="streams.Channels.receive")):  # noqa: B017 - check says which
            await attended.result()
    script = 'while kill -0 "$(cat child)"; do sleep 0.05; done 2>/dev/null'
    assert (await connection.run(sh(script), 20)).exit_code == 0


@pytest.mark.slow
async def test_silence_ends_a_command(connection, monkeypatch):
    """A lease that nobody renews runs out; one that is renewed does not."""
    monkeypatch.setattr(exec_module, "LEASE_S", 0.6)
    monkeypatch.setattr(exec_module, "PULSE_S", 0.1)
    assert (await connection.run(sh("sleep 1.2; echo done"), 20)).stdout == b"done\n"
    monkeypatch.setattr(exec_module, "PULSE_S", 600)
    assert (await connection.run(sh("sleep 600"), 20)).exit_code == 137


@pytest.mark.slow
async def test_a_stream_whose_pod_is_gone_is_told(drivers, connection, pod, monkeypatch):
    """Some runtimes keep the streams of a dead container open: who is told nothing asks whether it is there."""
    monkeypatch.setattr(exec_module, "KILL_S", 0.1)
    async with aclosing(connection.stream(sh("echo $PPID; exec sleep 600"))) as stream:
        attendant = int((await anext(stream)).data)
        monkeypatch.setattr(exec_module, "LEASE_S", 0.2)
        os.kill(attendant, signal.SIGSTOP)
        try:
            await drivers.pods.delete(pod.name, pod.uid, 1)
            with anyio.fail_after(20), pytest.raises(Gone):
                await anext(stream)
        finally:
            os.kill(attendant, signal.SIGKILL)


async def test_a_stream_waits_for_its_reader(drivers, connection):
    """What is not read is not taken from the server, beyond a bound."""
    async with aclosing(connection.stream(["yes"])) as stream:
        await anext(stream)
        received = []
        for _ in range(3):
            received.append(drivers.statistics().api.received_bytes)
            await anyio.sleep(0.2)
        assert received[0] == received[-1]
        assert (await anext(stream)).data.startswith((b"y", b"\n"))
    assert connection.api.statistics().open_streams == 0


async def test_what_a_command_costs(connection):
    """Two requests, three to learn that a pod that runs is ready; and no socket stays behind."""
    await connection.run(["true"], 20)
    before = connection.api.statistics()
    for _ in range(5):
        await connection.run(["true"], 20)
    after = connection.api.statistics()
    assert after.requests - before.requests == 10
    await connection.wait_until_ready(20)
    assert connection.api.statistics().requests - after.requests == 3
    assert after.open_sockets <= before.open_sockets + 1
    assert (after.open_streams, after.unreachable) == (0, before.unreachable)


async def test_commands_at_the_same_time(connection):
    """Each has its own outputs."""
    results = {}

    async def one(number):
        results[number] = (await connection.run(sh(f"sleep 0.1; echo {number}"), 30)).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(one, number)
    assert results == {number: f"{number}\n".encode() for number in range(5)}
