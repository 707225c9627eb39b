"""Calls are given what they ask for: in turn, within their deadline, and closed whatever happens."""

import time

import anyio
import attrs
import pytest
from drivers_world import LIMITS, LIST, SETTINGS, pod, pods
from hypothesis import given, strategies as st
from raw_server import serving

from iriscw.cloud.drivers.kube import calls
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.drivers import KubePodDriver, Shell, open_drivers
from iriscw.cloud.drivers.kube.task_pods import KubeTaskPods
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable, Pause
from iriscw.cloud.model import CloudError, Gone, Throttled, Unavailable
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from raised import that


class Scripted:
    """An API that answers by a script, and notes when it was asked."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.asked = []

    async def request(self, request):
        self.asked.append(time.monotonic())
        answer = self.answers.pop(0) if self.answers else ApiResponse(200, {})
        if answer is None:
            await anyio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Noted:
    """A call that notes what it was told, and that it was closed."""

    def __init__(self, *steps):
        self.steps = steps
        self.told = []
        self.closed = False

    def __call__(self):
        try:
            for step in self.steps:
                try:
                    self.told.append((yield step))
                except ApiUnreachable as silence:
                    self.told.append(silence)
            return "done"
        finally:
            self.closed = True


def caller(api, timeout_s=5, **changes):
    return Caller(api, attrs.evolve(SETTINGS, **changes), timeout_s=timeout_s)


async def test_a_call_is_told_what_came_of_each_step():
    """Answers, silence, and the end of a pause; then it returns."""
    silence = ApiUnreachable("no")
    call = Noted(LIST, Pause(20 * MILLISECOND), LIST)
    began = time.monotonic()
    shell = caller(Scripted(ApiResponse(503, None), silence))
    assert await shell.carry_out(call()) == "done"
    assert call.told == [ApiResponse(503, None), None, silence]
    assert time.monotonic() - began >= 0.02
    assert (shell.statistics().calls, shell.statistics().open_calls) == (1, 0)


async def test_a_call_raises_what_it_raises():
    """The shell adds nothing."""

    def call():
        yield LIST
        raise Gone("it is gone")

    with pytest.raises(Gone):
        await caller(Scripted()).carry_out(call())


@pytest.mark.parametrize("steps", [(LIST,), (Pause(10**12),)], ids=["silence", "a pause"])
async def test_the_deadline(steps):
    """It covers everything; the call is closed, and its caller told that the effect is unknown."""
    call = Noted(*steps)
    shell = caller(Scripted(None), timeout_s=0.05)
    with pytest.raises(Unavailable, check=that(comes_from="calls.Caller.carry_out", names="0.05")):
        await shell.carry_out(call())
    assert call.closed
    assert (shell.statistics().timed_out, shell.statistics().open_calls) == (1, 0)


async def test_a_cancelled_call_is_closed():
    """And it is no timeout."""
    call = Noted(LIST)
    shell = caller(Scripted(None))
    with anyio.move_on_after(0.02):
        await shell.carry_out(call())
    assert call.closed
    assert (shell.statistics().timed_out, shell.statistics().open_calls) == (0, 0)


async def test_the_rate():
    """A burst, then one by one, in the order in which they came."""
    api, order = Scripted(), []
    shell = caller(api, qps=100, burst=5)

    async def one(number):
        await shell.request(LIST)
        order.append(number)

    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(15):
            tasks.start_soon(one, number)
    assert order == sorted(order)
    assert time.monotonic() - began >= 0.1 - 0.01
    gaps = [later - sooner for sooner, later in zip(api.asked[4:], api.asked[5:], strict=False)]
    assert sum(gaps) >= 0.09


async def test_those_who_gave_up_leave_the_line():
    """Their places are nobody's: who comes after them does not wait for them too."""
    api = Scripted()
    shell = caller(api, qps=20, burst=1)
    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(shell.request, LIST)
        await anyio.sleep(0.12)
        assert shell.statistics().waiting > 150
        tasks.cancel_scope.cancel()
    assert shell.statistics().waiting == 0
    began = time.monotonic()
    await shell.request(LIST)
    assert time.monotonic() - began < 5
    assert len(api.asked) < 10


class Hours:
    """A clock for turns, and a sleep on it that ends late by what is drawn."""

    def __init__(self, late):
        self.now = 5
        self.late = [*late]

    def monotonic_ns(self):
        return self.now

    async def rest(self, span):
        self.now += max(1, span + (self.late.pop(0) if self.late else 0))


@given(
    st.integers(1, 200),
    st.integers(1, 6),
    st.lists(st.integers(0, SECOND), min_size=2, max_size=30),
    st.lists(st.integers(-5, SECOND), max_size=30),
)
def test_never_more_than_burst_and_rate(qps, burst, gaps, late):
    """In any window of time, counted as requests leave: however late, or a bit early, those wake who waited."""
    hours, left = Hours(late), []

    async def turns():
        shell = caller(Scripted(), qps=float(qps), burst=burst)
        for gap in gaps:
            hours.now += gap
            await shell.turn()
            left.append(hours.now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "time", hours)
        patch.setattr(calls, "rest", hours.rest)
        anyio.run(turns)
    interval = round(SECOND / qps)
    for first in range(len(left)):
        for last in range(first, len(left)):
            assert last - first + 1 <= burst + (left[last] - left[first]) // interval


async def test_who_gives_up_its_turn_takes_no_place():
    """Not even the first in line, who already waits for the rate."""
    shell = caller(Scripted(), qps=0.01, burst=1)
    await shell.turn()
    for _ in range(5):
        with anyio.move_on_after(0.01):
            await shell.turn()
    assert 90 * SECOND < shell._limit.wait(time.monotonic_ns()) <= 100 * SECOND


# Over HTTP


async def test_a_storm_of_429():
    """A bounded number of requests, then the contract's own error, with what the server asked for."""

    async def script(peer):
        await peer.answer(429, b"<html>slow down</html>", Retry_After="0")

    async with serving(script) as server, open_drivers(server.access, SETTINGS, limits=LIMITS) as drivers:
        with pytest.raises(Throttled):
            await drivers.pods.list({})
        assert len(server.asked) == SETTINGS.attempts
        assert drivers.statistics().api.throttled == SETTINGS.attempts


async def test_more_patience_than_anybody_has():
    """A server that says "in an hour" is told of at once."""

    async def script(peer):
        await peer.answer(429, {}, Retry_After="3600")

    async with serving(script) as server, open_drivers(server.access, SETTINGS, limits=LIMITS) as drivers:
        with pytest.raises(Throttled) as throttled:
            await drivers.pods.list({})
        assert throttled.value.retry_after == 3600 * 10**9
        assert len(server.asked) == 1


MOODS = {
    "broken": lambda peer: peer.cut(),
    "garbage": lambda peer: peer.raw(b"\x00\x01\x02\r\n\r\n"),
    "html": lambda peer: peer.answer(200, b"<html>sign in</html>"),
    "nothing": lambda peer: peer.answer(200, b""),
    "a number": lambda peer: peer.answer(200, b"17"),
    "a list of nonsense": lambda peer: peer.answer(200, {"metadata": {"resourceVersion": "1"}, "items": [1, None, {}]}),
    "a redirect": lambda peer: peer.answer(302, b"", Location="http://127.0.0.1:1/"),
    "too old": lambda peer: peer.answer(410, {"code": 410, "reason": "Expired"}),
    "a proxy": lambda peer: peer.answer(502, b"<html>Bad Gateway</html>"),
    "gone": lambda peer: peer.answer(404, {}),
    "unknown": lambda peer: peer.answer(599, {}),
    "not modified": lambda peer: peer.answer(304, b""),
}


@pytest.mark.parametrize("mood", MOODS)
async def test_only_the_contracts_errors(mood):
    """Whatever a server does, calls raise what the port names, after a bounded number of requests."""

    async def script(peer):
        said = MOODS[mood](peer)
        if said is not None:
            await said
        if mood == "garbage":
            peer.cut()

    async with serving(script) as server, open_drivers(server.access, SETTINGS, limits=LIMITS) as drivers:
        for call, others in (
            (drivers.pods.list({}), ()),
            (drivers.node_pools.list({}), ()),
            (drivers.pods.delete("a", "b"), (Gone,)),
            (drivers.node_pools.delete("a", "b"), (Gone,)),
        ):
            before = len(server.asked)
            try:
                found = await call
            except CloudError as error:
                found = error
            assert found == () or isinstance(found, (Unavailable, *others)), found
            assert len(server.asked) - before <= 3 * SETTINGS.attempts


async def test_silence_is_asked_again():
    """A request that went silent is made once more, within the deadline of the call."""

    async def script(peer):
        if len(server.asked) < 3:
            await peer.reader.read()
        else:
            await peer.answer(200, pods(pod(1, 1)))

    limits = attrs.evolve(LIMITS, request_s=0.1)
    async with serving(script) as server, open_drivers(server.access, SETTINGS, limits=limits) as drivers:
        (found,) = await drivers.pods.list({})
        assert found.name == "p1"
        assert len(server.asked) == 3


async def test_cancelled_calls_leave_nothing():
    """At any moment of a list that takes a while."""

    async def script(peer):
        await anyio.sleep(0.003)
        await peer.answer(200, pods(*(pod(number, number) for number in range(100))))

    async with serving(script) as server:
        async with open_api(server.access, LIMITS) as api:
            shell = Caller(api, SETTINGS)
            for step in range(20):
                with anyio.move_on_after(step * 0.0005):
                    await shell.request(LIST)
            assert (await shell.request(LIST)).code == 200
        await server.gone()


async def test_who_may_not_act_asks_for_no_change():
    """The fence is asked when a request leaves, after its wait; looks go through."""
    api = Scripted()

    def fenced():
        raise PermissionError("not the leader")

    shell = Caller(api, SETTINGS, fence=fenced)
    assert (await shell.request(LIST)).code == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(PermissionError):
            await shell.request(attrs.evolve(LIST, method=method))
    assert len(api.asked) == 1


class OnePod:
    """An API with one pod of ours, which keeps what deletions ask for."""

    def __init__(self):
        self.graces = []

    async def request(self, request):
        if request.method == "DELETE":
            self.graces.append(request.body["gracePeriodSeconds"])
        return ApiResponse(200, pod(1, 7))


@pytest.mark.parametrize(("grace_s", "asked"), [(0, 1), (2.5, 3), (45, 45)])
async def test_a_pod_gets_its_grace(grace_s, asked):
    """In whole seconds, as the API counts it, and never less than its caller gave: workers' pods and tasks' pods."""
    api = OnePod()
    shell = caller(api)
    await KubePodDriver(Shell(shell)).delete("p1", "u1", grace_s)
    await KubeTaskPods(shell, None, None).delete("p1", "u1", grace_s)
    assert api.graces == [asked, asked]
