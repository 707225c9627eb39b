"""Events are written one after the other, and whatever becomes of them disturbs nobody."""

import logging
import time
from contextlib import asynccontextmanager
from random import Random

import anyio
import anyio.lowlevel
import pytest

from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.leading import LeadershipLost
from iriscw.cloud.drivers.kube.noticing import Noticing
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.kube.notices import Notice, NoticeLimits
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.kube.store import Store

EVENTS = "/api/v1/namespaces/default/events"
LIMITS = NoticeLimits(waiting=3, spacing=MILLISECOND, pause_least=MILLISECOND, pause_most=MILLISECOND)


@pytest.fixture
def anyio_backend():
    """As in production."""
    return "asyncio"


class Api:
    """A store; it may refuse, be silent, or answer when it is let to."""

    def __init__(self):
        self.store = Store(rng=Random(1), now=time.time_ns())
        self.answer = None
        self.open = anyio.Event()
        self.open.set()
        self.asked = self.under_way = self.most = 0

    async def request(self, request):
        """Carry a request out."""
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.open.wait()
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer or self.do(request.method, request.path, request.body, request.content_type)
        finally:
            self.under_way -= 1

    def do(self, method, path, body=None, content_type="application/json"):
        """Carry a request out at once."""
        answer = self.store.handle(Request(method, path, (), body, content_type), time.time_ns())
        return ApiResponse(answer.code, thaw(answer.body))

    def watch(self, request):
        """Not asked."""
        raise NotImplementedError

    @property
    def reasons(self):
        """What was told, by reason, with its count."""
        return {each["reason"]: each["count"] for each in self.do("GET", EVENTS).body["items"]}


def notice(reason="SlowBoot"):
    """Return something to tell."""
    return Notice("iris-a-b", "u", reason, "why", warning=True, at=time.time_ns())


@asynccontextmanager
async def running(api, fence=lambda: None):
    """Write what is told while the block lasts."""
    noticing = Noticing(Caller(api, KubeSettings(cluster="c", attempts=1), rng=Random(1), fence=fence), LIMITS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(noticing.run)
        yield noticing
        tasks.cancel_scope.cancel()


async def until(noticing, **figures):
    """Wait until figures are as they should be: nothing tells of them."""
    with anyio.fail_after(60):
        while not all(getattr(noticing.statistics(), name) == value for name, value in figures.items()):  # noqa: ASYNC110
            await anyio.sleep(0.002)


async def test_what_is_told_is_written():
    """Also what is told later, and again."""
    api = Api()
    async with running(api) as noticing:
        for reason in ("SlowBoot", "NoCapacity"):
            noticing.tell(notice(reason))
        await until(noticing, told=2, waiting=0)
        noticing.tell(notice())
        await until(noticing, told=3, waiting=0)
    assert api.reasons == {"SlowBoot": 2, "NoCapacity": 1}
    assert api.most == 1


async def test_what_finds_no_room_is_dropped_and_counted():
    """While the API is slow; whoever tells it never waits."""
    api = Api()
    api.open = anyio.Event()
    async with running(api) as noticing:
        noticing.tell(notice("first"))
        await until(noticing, waiting=0)
        for number in range(5):
            noticing.tell(notice(f"R{number}"))
        assert (noticing.statistics().waiting, noticing.statistics().dropped) == (3, 2)
        assert api.asked == 1, "one at a time"
        api.open.set()
        await until(noticing, told=4, waiting=0)
    assert sorted(api.reasons) == ["R0", "R1", "R2", "first"]


async def test_without_the_right_it_is_said_once(caplog):
    """With what to do; what is told later is written when the right is there."""
    caplog.set_level(logging.INFO, "iriscw")
    api = Api()
    api.answer = ApiResponse(403, status_failure(403, "Forbidden", "you may not create events", {}))
    async with running(api) as noticing:
        for number in range(3):
            noticing.tell(notice())
            await until(noticing, lost=number + 1)
        api.answer = None
        noticing.tell(notice())
        await until(noticing, told=1)
    assert len(caplog.records) == 1
    assert "you may not create events" in caplog.text
    assert "--apply" in caplog.text


async def test_an_api_that_is_away_costs_what_was_told_then(caplog):
    """It is said once in a row, and goes on afterwards."""
    caplog.set_level(logging.INFO, "iriscw")
    api = Api()
    api.answer = ApiUnreachable("nobody is there")
    async with running(api) as noticing:
        for number in range(3):
            noticing.tell(notice())
            await until(noticing, lost=number + 1)
        api.answer = None
        noticing.tell(notice())
        await until(noticing, told=1)
    assert len(caplog.records) == 1


async def test_a_controller_that_may_not_act_any_more_writes_nothing():
    """And its writer ends with it, not before: nobody else is disturbed."""
    api = Api()

    def fence():
        raise LeadershipLost("another one leads")

    async with running(api, fence) as noticing:
        for number in range(2):
            noticing.tell(notice())
            await until(noticing, lost=number + 1)
    assert api.asked == 0


async def test_one_that_flaps_holds_up_no_other():
    """What is told while the same Event has to wait is written meanwhile."""
    api = Api()
    caller = Caller(api, KubeSettings(cluster="c"), rng=Random(1))
    noticing = Noticing(caller, NoticeLimits(spacing=3600 * SECOND))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(noticing.run)
        noticing.tell(notice())
        await until(noticing, told=1)
        noticing.tell(notice())
        await anyio.lowlevel.checkpoint()
        noticing.tell(notice("NoCapacity"))
        await until(noticing, told=2)
        tasks.cancel_scope.cancel()
    assert api.reasons == {"SlowBoot": 1, "NoCapacity": 1}
    assert noticing.statistics().waiting == 1
