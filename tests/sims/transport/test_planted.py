"""Bugs planted in the transport policy: each of them is caught by one of the properties, so the properties bite."""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpclib.protocol import Connection, H2Protocol

from iriscw.client import calls
from iriscw.rpc import client, client_call, server, server_calls, transport, unfinished
from iriscw.worker import session
from iriscw.worker.drivers import shipping
from iriscw_sims.transport.network import Fault, FaultKind


def sibling(name):
    """Return the tests beside these of that name: other folders have files of the same."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"transport_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


test_calls = sibling("test_calls")
test_policy = sibling("test_policy")
test_sessions = sibling("test_sessions")

Plant = Callable[[pytest.MonkeyPatch], None]


def inner(test: Any) -> Callable[..., None]:
    """Return what a property does with one example."""
    return test.hypothesis.inner_test  # type: ignore[no-any-return]


def no_deadline(patch: pytest.MonkeyPatch) -> None:
    original = client_call.CallStream.__aenter__

    async def enter(call: client_call.CallStream) -> Any:
        call.timeout_s = 1e6
        return await original(call)

    patch.setattr(client_call.CallStream, "__aenter__", enter)


def repeats_everything(patch: pytest.MonkeyPatch) -> None:
    original = client.RpcChannel.unary

    async def unary(channel: client.RpcChannel, *args: Any, **options: Any) -> Any:
        return await original(channel, *args, **{**options, "safe": True})

    patch.setattr(client.RpcChannel, "unary", unary)


def no_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client, "BACKOFF_LONGEST_S", client.BACKOFF_FIRST_S)


def no_jitter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("random.Random.uniform", lambda _self, _low, high: high)


def beyond_the_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client.RpcDeadline, "retryable", True)
    original = client.RpcChannel.unary

    async def unary(channel: client.RpcChannel, *args: Any, timeout_s: float = 60, **options: Any) -> Any:
        return await original(channel, *args, timeout_s=2 * timeout_s, **options)

    patch.setattr(client.RpcChannel, "unary", unary)


def no_keepalive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "initialize", lambda _connection: None)


def cancelled_calls_keep_their_stream(patch: pytest.MonkeyPatch) -> None:
    async def leave(call: client_call.CallStream, *_: object) -> None:
        assert call.timer is not None
        call.timer.cancel()

    patch.setattr(client_call.CallStream, "__aexit__", leave)


def swallowed_breaks(patch: pytest.MonkeyPatch) -> None:
    def lost(protocol: transport.BoundedProtocol, _: object) -> None:
        protocol.connection.close()
        protocol.connection.ended()
        protocol.handler.close()

    patch.setattr(transport.BoundedProtocol, "connection_lost", lost)


def bare_errors(patch: pytest.MonkeyPatch) -> None:
    def translated(_: object) -> Any:
        return pytest.MonkeyPatch.context()

    patch.setattr(client_call, "translated", translated)


def answers_lost_in_a_goodbye(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client_call.CallStream, "_has_all", False)


def a_cut_after_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transport.BoundedConnection, "ended", lambda _connection: None)


def tasks_without_a_first_step(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server_calls.RequestTasks, "accept", server_calls.GrpclibTasks.accept)


def forgotten_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server_calls.RequestTasks, "close", server_calls.GrpclibTasks.close)


def resets_that_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transport.BoundedProtocol, "resume_writing", H2Protocol.resume_writing)


def calls_that_keep_their_share(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transport.BoundedStream, "released", lambda _stream: None)


def no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unfinished.Share, "take", lambda _share, _size: None)
    patch.setattr(unfinished.Share, "give", lambda _share, _size: None)


def a_drain_that_waits_for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transport, "LINGER_S", 60)
    patch.setattr(server, "LINGER_S", 60)


def endless_patience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "PATIENCE_S", 1e6)
    patch.setattr(calls.MethodCalls.__init__, "__kwdefaults__", {"patience_s": 1e6, "owner": None})


def a_worker_that_dials_once(patch: pytest.MonkeyPatch) -> None:
    dial = session._dial
    patch.setattr(session, "_dial", lambda now, ctx: () if now.dialling.dials else dial(now, ctx))


def logs_taken_for_sent(patch: pytest.MonkeyPatch) -> None:
    original = shipping.Shipment.__init__
    begun: list[str] = []

    def begin(shipment: Any, uid: str, held: Any, window: int, log_sent: int = 0, result_sent: int = 0) -> None:
        original(shipment, uid, held, window, len(held.running.log) if uid in begun else log_sent, result_sent)
        begun.append(uid)

    patch.setattr(shipping.Shipment, "__init__", begin)


every_call = inner(test_calls.test_every_call_keeps_its_word)
PLANTED: list[tuple[Plant, Callable[..., None]]] = [
    (no_deadline, partial(every_call, 1, [Fault(FaultKind.VANISH, 0.2)], [(0, "plain", 1000, 90_000, 0, None)])),
    (repeats_everything, partial(every_call, 1, [Fault(FaultKind.BREAK, 1)], [(0, "plain", 60_000, 3000, 0, None)])),
    (no_backoff, partial(inner(test_policy.test_repetitions_back_off), 1, 60)),
    (no_jitter, test_policy.test_repetitions_are_spread),
    (beyond_the_deadline, partial(every_call, 1, [], [(0, "safe", 1000, 90_000, 0, None)])),
    (no_keepalive, partial(inner(test_policy.test_half_open_connections_are_noticed), FaultKind.HALF_OPEN_UP, 1, 5000)),
    (cancelled_calls_keep_their_stream, partial(every_call, 1, [], [(0, "plain", 60_000, 3000, 0, 100)])),
    (swallowed_breaks, partial(inner(test_policy.test_breaks_are_told_at_once), 1, 1000, "stream")),
    (bare_errors, partial(every_call, 1, [Fault(FaultKind.REFUSE, 0, 60)], [(5, "plain", 1000, 0, 0, None)])),
    (answers_lost_in_a_goodbye, partial(test_policy.test_what_was_answered_is_answered, "goodbye")),
    (a_cut_after_the_end, test_policy.test_a_farewell_that_had_to_wait_leaves_no_error),
    (tasks_without_a_first_step, partial(inner(test_policy.test_calls_that_are_given_up_at_once), 1, 1000)),
    (forgotten_tasks, test_policy.end_a_connection_with_answers_that_wait),
    (resets_that_stay, test_policy.test_a_reset_that_had_to_wait_for_room_is_sent),
    (calls_that_keep_their_share, test_policy.test_unfinished_messages_are_given_back),
    (no_budget, test_policy.test_unfinished_messages_are_bounded),
    (a_drain_that_waits_for_everybody, test_policy.test_a_drain_waits_for_nobody_who_vanished),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_planted_bug_is_caught(plant: Plant, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The check holds for the code as it is, and not with the bug."""
    check()
    plant(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017 - a failed assertion, a stuck loop, a bare error
        check()


@pytest.mark.parametrize(
    ("plant", "breaks_s", "order_s"),
    [
        (a_worker_that_dials_once, [1], 5),
        (logs_taken_for_sent, [tenths_ms / 10_000 for tenths_ms in range(150, 700, 50)], 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_planted_bug_of_workers_is_caught(
    plant: Plant,
    breaks_s: list[float],
    order_s: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Likewise for the worker's stream, which breaks at one of several moments."""
    check = inner(test_sessions.test_a_broken_stream_is_opened_again_and_syncs)

    def check_all() -> None:
        for at_s in breaks_s:
            check(tmp_path_factory, 1, [Fault(FaultKind.BREAK, at_s)], [order_s])

    check_all()
    plant(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017 - see above
        check_all()


def test_planted_bug_of_clients_is_caught(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Likewise for the client's patience."""
    test_sessions.test_patience_ends_and_is_told_once(caplog)
    endless_patience(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017 - see above
        test_sessions.test_patience_ends_and_is_told_once(caplog)


def test_the_folder_of_tests_is_seen() -> None:
    """The plants patch the modules that the properties run."""
    assert Path(test_calls.__file__).parent == Path(__file__).parent
