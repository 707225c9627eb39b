"""The table of who may call what with how much: it is whole, and the worst that passes it is little work."""

import pytest
from controller_world import CLIENTS, WORKERS, FakeWorker, World

from iriscw._errors import InvalidArgument
from iriscw.controller.doors.actor_states import ActorStatesDoor
from iriscw.controller.doors.clients import ClientDoor
from iriscw.controller.doors.commands import CommandsDoor
from iriscw.controller.doors.freezing import NodesDoor
from iriscw.controller.doors.hosted import HostedDoor
from iriscw.controller.doors.names import NamesDoor
from iriscw.controller.doors.overview import ClusterDoor
from iriscw.controller.doors.rules import (
    ACTOR_STATE_RULES,
    CHUNK_BYTES,
    CLIENT_RULES,
    CLUSTER_RULES,
    COMMAND_RULES,
    HOSTED_RULES,
    MAX_HELD_ATTEMPTS,
    NAMES_RULES,
    NODE_RULES,
    WORKER_RULES,
)
from iriscw.controller.doors.workers import WorkerDoor
from iriscw.jobs.model import MAX_CONSTRAINTS, MAX_ENVIRONMENT_BYTES, MAX_PORTS
from iriscw.proto.iriscw import v1
from iriscw.rpc import transport
from iriscw.rpc.anatomy import anatomy_of, by_number, examine
from iriscw.rpc.errors import MalformedMessage, MessageTooLarge, PermissionDenied
from iriscw.rpc.rules import Bounds
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Role
from iriscw.worker.model import MAX_ATTEMPTS, MAX_FAULT_CHARS
from raised import that
from waiting import until

PARTS = {
    ActorStatesDoor: ACTOR_STATE_RULES,
    ClientDoor: CLIENT_RULES,
    ClusterDoor: CLUSTER_RULES,
    CommandsDoor: COMMAND_RULES,
    HostedDoor: HOSTED_RULES,
    NamesDoor: NAMES_RULES,
    NodesDoor: NODE_RULES,
}
"""Of ControllerService."""
DOORS = {**PARTS, WorkerDoor: WORKER_RULES}
REQUESTS = {
    route.rpartition("/")[2]: (handler.request_type, rules[route.rpartition("/")[2]])
    for door, rules in DOORS.items()
    for route, handler in door.__mapping__(door.__new__(door)).items()
    if route.rpartition("/")[2] in rules
}
WORST_PARTS = 17_000
"""Some 3 us each."""


def passes(message: object, bounds: Bounds) -> int:
    """Whether a message passes its bounds; give its parts."""
    data = bytes(message)
    assert len(data) <= bounds.max_bytes
    return examine(data, type(message), bounds.max_parts, by_number(type(message), bounds.field_bytes))


class Raw:
    """Bytes that travel as if they were a message."""

    def __new__(cls, message_type: type, data: bytes) -> object:
        message = message_type()
        message.__class__ = type("Raw", (message_type,), {"__bytes__": lambda _: data})
        return message


def length(number: int) -> bytes:
    """A length as it stands on the wire."""
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def test_every_method_has_a_rule() -> None:
    """There is a rule for each method of each service, one for a method of several parts, and none for no method."""
    for door, rules in DOORS.items():
        routes = door.__mapping__(door.__new__(door))
        named = sorted(name for part in (PARTS if door in PARTS else (door,)) for name in DOORS[part])
        assert sorted(route.rpartition("/")[2] for route in routes) == named
        assert door.method_rules is rules


def test_a_method_without_a_part_is_noticed() -> None:
    """A service of which a part is missing is not served: its methods are promised."""
    parts = [door.__new__(door) for door in PARTS]
    RpcServer(parts, authenticate=lambda _: None)
    with pytest.raises(InvalidArgument, check=that(names="/ExecTask")):
        RpcServer([each for each in parts if not isinstance(each, CommandsDoor)], authenticate=lambda _: None)


@pytest.mark.parametrize("method", REQUESTS)
def test_no_message_is_much_work(method: str) -> None:
    """What passes has a bounded number of parts, few of them where the message is a question."""
    message_type, rule = REQUESTS[method]
    assert rule.request.max_parts <= WORST_PARTS
    assert rule.request.max_bytes <= 8 << 20
    assert rule.roles
    of_jobs = {**CLIENT_RULES, **HOSTED_RULES, **NAMES_RULES, **ACTOR_STATE_RULES}
    assert Role.JOB not in rule.roles or method in of_jobs
    assert (Role.WORKER in rule.roles) == (method in WORKER_RULES)
    assert anatomy_of(message_type).name == message_type.__name__


def test_what_is_documented_fits() -> None:
    """The largest of each kind that the other limits allow passes: submissions, chunks, sets of attempts, cursors."""
    submit = CLIENT_RULES["SubmitJob"].request
    constraint = v1.Constraint(key="k" * 64, op=v1.ConstraintOp.IN, values=[v1.AttributeValue(text="v" * 64)] * 16)
    passes(
        v1.SubmitJobRequest(
            idempotency_key="k" * 128,
            name="n" * 128,
            entrypoint=v1.Entrypoint(callable=v1.Callable(payload=b"x" * (4 << 20), display_name="d" * 256)),
            replicas=100_000,
            resources=v1.Amount(1, 1 << 40, 1 << 40, 8, "h100"),
            environment={f"NAME{number}": "v" * (MAX_ENVIRONMENT_BYTES // 600) for number in range(500)},
            ports=["p" * 64] * MAX_PORTS,
            constraints=[constraint] * MAX_CONSTRAINTS,
        ),
        submit,
    )
    argv = [*["x" * 16] * 8000]
    passes(v1.SubmitJobRequest(entrypoint=v1.Entrypoint(command=v1.Command(argv=argv))), submit)
    cursors = [v1.LogCursor(attempt_uid="a" * 16, offset=1 << 40)] * 1_900
    passes(v1.FetchLogsRequest(cursors=cursors), CLIENT_RULES["FetchLogs"].request)
    passes(v1.PutBundleRequest(data=b"x" * CHUNK_BYTES), CLIENT_RULES["PutBundle"].request)
    stream = WORKER_RULES["Connect"].request
    uid = "a" * 16
    passes(v1.WorkerMessage(log=v1.LogChunk(attempt_uid=uid, offset=1 << 50, data=b"x" * CHUNK_BYTES)), stream)
    passes(v1.WorkerMessage(result=v1.ResultChunk(attempt_uid=uid, offset=1 << 50, data=b"x" * CHUNK_BYTES)), stream)
    attempt = v1.AttemptObserved(
        attempt_uid=uid,
        state=v1.TaskState.FAILED,
        exit=v1.ProcessExit(code=1),
        log_end_offset=1 << 24,
        fault=v1.Fault(kind="ValueError", text="x" * (MAX_FAULT_CHARS - 1024)),
        started_at_ms=1_700_000_000_000,
        finished_at_ms=1_700_000_000_000,
        ports={"http": 8080},
        was_started=True,
        host="h" * 255,
        rendezvous_port=20_000,
    )
    passes(v1.WorkerMessage(observed=attempt), stream)
    passes(v1.WorkerMessage(observed_set=v1.ObservedSet(round=1, attempts=[attempt] * MAX_HELD_ATTEMPTS)), stream)
    hello = v1.Hello(
        worker_id="w" * 64,
        attributes={f"name{number}": v1.AttributeValue(text="v" * 64) for number in range(64)},
        specification_hashes=[b"h" * 32] * 256,
    )
    passes(v1.WorkerMessage(hello=hello), stream)


def test_workers_count_alike() -> None:
    """A worker holds no more attempts than the door believes that any can hold."""
    assert MAX_ATTEMPTS == MAX_HELD_ATTEMPTS


async def test_crowded_submission(world: World) -> None:
    """A submission of a million empty messages is refused by name, from an admin as from a job, and nothing else is."""
    crowd = Raw(v1.SubmitJobRequest, b"\x42\x00" * 1_000_000)
    with pytest.raises(MessageTooLarge, check=that(names=("SubmitJobRequest", "10000"))):
        await world.call("SubmitJob", crowd, v1.SubmitJobResponse)
    with pytest.raises(MessageTooLarge, check=that(names="5242880")):
        await world.call("SubmitJob", v1.SubmitJobRequest(name="x" * (6 << 20)), v1.SubmitJobResponse)
    with pytest.raises(MalformedMessage):
        await world.call("SubmitJob", Raw(v1.SubmitJobRequest, b"\x0a\x02\xc3\x28"), v1.SubmitJobResponse)
    assert (await world.submit()).created


async def test_a_workers_token_is_no_clients(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that submits is refused before a byte of what it says is decoded."""
    monkeypatch.setattr(transport, "decode", lambda *_: pytest.fail("decoded"))
    async with world.channel(world.tokens.worker_token("w-0", "i")) as channel:
        with pytest.raises(PermissionDenied):
            await channel.unary(CLIENTS + "SubmitJob", v1.SubmitJobRequest(name="x"), v1.SubmitJobResponse)


def crowded_set(count: int) -> bytes:
    """A set of empty attempts, on the wire."""
    body = b"\x12\x00" * count
    return b"\x1a" + length(len(body)) + body


LIES = {
    "a set of many": (Raw(v1.WorkerMessage, crowded_set(1_000_000)), MessageTooLarge),
    "a set of more than any holds": (Raw(v1.WorkerMessage, crowded_set(MAX_HELD_ATTEMPTS + 1)), InvalidArgument),
    "a long piece of a log": (v1.WorkerMessage(log=v1.LogChunk(data=b"x" * (1 << 20))), MessageTooLarge),
    "a piece of 15 MiB": (v1.WorkerMessage(log=v1.LogChunk(data=b"x" * (15 << 20))), MessageTooLarge),
    "a long name": (v1.WorkerMessage(observed=v1.AttemptObserved(attempt_uid="u" * 65)), InvalidArgument),
    "a second hello": (v1.WorkerMessage(hello=v1.Hello(worker_id="x" * (65 << 10))), MessageTooLarge),
    "no offset": (v1.WorkerMessage(log=v1.LogChunk(attempt_uid="u", offset=-1)), InvalidArgument),
    "the last offset": (v1.WorkerMessage(log=v1.LogChunk(attempt_uid="u", offset=(1 << 63) - 1)), InvalidArgument),
    "of a result": (v1.WorkerMessage(result=v1.ResultChunk(attempt_uid="u", offset=(1 << 63) - 1)), InvalidArgument),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_no_worker_says(world: World, lie: str) -> None:
    """It ends the worker's stream with a name; the worker may dial again, and its attempts go on."""
    sent, error = LIES[lie]
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        [uid] = worker.runs
        held = dict(worker.held)
        async with (
            world.channel(world.tokens.worker_token(worker.worker_id, worker.incarnation)) as channel,
            channel.bidi(WORKERS + "Connect", v1.WorkerMessage, v1.ControllerMessage) as call,
        ):
            await call.send(v1.WorkerMessage(hello=worker.hello()))
            assert (await call.receive()).welcome is not None
            with pytest.raises(error):  # noqa: PT012 - a long message is refused while it is sent
                await call.send(sent)
                async for _ in call:
                    pass
    async with FakeWorker(world, worker.worker_id, worker.incarnation, manual=True, memory=held) as again:
        await again.finish(uid)
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED


async def test_made_up_attempts_are_answered(world: World) -> None:
    """A worker is told to end what it was not given; what has been answered is not counted any more."""
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        for start in (0, 400):
            attempts = [
                v1.AttemptObserved(attempt_uid=f"{number:016x}", state=v1.TaskState.RUNNING)
                for number in range(start, start + 400)
            ]
            observed = v1.WorkerMessage(observed_set=v1.ObservedSet(attempts=attempts))
            await worker.call.send(observed)
            if start == 0:
                await until(lambda: len(worker.stops) == 400)  # the link answered: it remembers none of them
        await until(lambda: len(worker.stops) == 800)
        assert worker.runs


@pytest.mark.parametrize("rules", PARTS.values())
def test_each_method_for_clients_says_what_its_callers_do(rules):
    """A refusal tells them that, and not what the method is called on the wire."""
    assert all(rule.does and name not in rule.does for name, rule in rules.items())
