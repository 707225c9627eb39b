"""Watches over HTTP: lines of JSON that come when something happens, and an end that is one."""

import attrs
import pytest
from serve_caller import MAPS, Caller, a_map, raw

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import Limits, ServeSettings
from iriscw_sims.serve.watching import lines, waits
from waiting import until

SECOND = 1_000_000_000


def test_events_come_in_pieces():
    """One line each, several in a piece up to its size."""
    small = [*lines([{"n": number} for number in range(3)])]
    assert small == [b'{"n":0}\n{"n":1}\n{"n":2}\n']
    large = [*lines([{"text": "x" * 50_000}] * 5)]
    assert len(large) == 3
    assert b"".join(large).count(b"\n") == 5


@pytest.mark.parametrize(
    ("now", "timeout_s", "seconds"), [(0, 0, 60), (10, 0, 50), (60, 0, 60), (0, 30, 28), (28, 30, 2), (61, 62, 1)]
)
def test_a_watch_is_left_alone_until_it_has_something_to_say(now, timeout_s, seconds):
    """A bookmark once a minute, one before the end, the end."""
    assert waits(0, now * SECOND, timeout_s) == seconds * SECOND


async def test_what_happens_is_told(caller):
    """In order, with the object as it was written, and only what was selected."""
    async with caller.watch(MAPS, labelSelector="a=b") as event:
        created = await caller.done("POST", MAPS, a_map() | {"metadata": {"name": "c", "labels": {"a": "b"}}})
        await caller.done("POST", MAPS, a_map("other"))
        await caller.done("DELETE", f"{MAPS}/c")
        assert await event() == {"type": "ADDED", "object": created}
        assert (await event())["type"] == "DELETED"


async def test_a_watch_ends_at_its_time_with_a_bookmark(caller):
    """The end is the end of the answer, not of the connection."""
    async with caller.watch(MAPS, timeoutSeconds="3", allowWatchBookmarks="true") as event:
        begun, last = await event(), await event()
        assert begun["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert last["type"] == "BOOKMARK"
        assert await event() is None
    assert await caller.done("GET", "/version")


async def test_a_version_too_old_is_an_error_event(server, caller):
    """200, one ERROR, and the end."""
    for number in range(3):
        await caller.done("POST", MAPS, a_map(f"c{number}"))
    server.store.compact(server.store.revision)
    async with caller.watch(MAPS, resourceVersion="2") as event:
        told = await event()
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
        assert await event() is None


async def test_a_watch_may_be_a_table(caller):
    """Columns once, then rows: what ``kubectl get -w`` asks for."""
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    caller.session.headers.update(headers)
    async with caller.watch(MAPS) as event:
        await caller.done("POST", MAPS, a_map("c", x="1"))
        await caller.done("POST", MAPS, a_map("d"))
        first, second = await event(), await event()
    assert first["object"]["rows"][0]["cells"][:2] == ["c", 1]
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]


async def test_watches_that_cannot_be_are_refused(caller):
    """As the store says it, as a Status."""
    assert (await caller.refused("GET", "/api/v1/nothing", watch="1"))[0] == 404
    assert (await caller.refused("GET", MAPS, watch="1", timeoutSeconds="x"))[0] == 400


@pytest.fixture
async def small():
    """A server that lends little."""
    limits = Limits(watches=3, write_s=1.0)
    async with SimServer(ServeSettings(limits=limits, controllers=False)) as server:
        yield server


async def test_watches_are_counted(small):
    """One more than the limit is told to come back; one that ended leaves its place."""
    async with Caller(small) as caller, caller.watch(MAPS), caller.watch(MAPS):
        async with caller.watch(MAPS):
            status, headers, body = await caller.ask("GET", MAPS, watch="1")
            assert (status, headers["Retry-After"], body["reason"]) == (429, "1", "TooManyRequests")
        await until(lambda: small.statistics().door.open_watches == 2)
        async with caller.watch(MAPS):
            assert small.statistics().door.open_watches == 3
    await until(lambda: not small.statistics().door.open_watches)


async def test_a_reader_that_does_not_read_is_cut_off(small, caplog):
    """It holds a piece of text while it waits, and no more than the limit's time."""
    async with Caller(small) as caller, raw(small) as (reader, writer):
        token = small.token.reveal()
        writer.transport.pause_reading()
        writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        await until(lambda: small.statistics().door.open_watches)
        big = a_map("c", text="x" * 500_000)
        await caller.done("POST", MAPS, big)
        for number in range(30):
            change = {"data": {"text": f"{number}" + "x" * 500_000}}
            await caller.done("PATCH", f"{MAPS}/c", change, content_type="application/merge-patch+json")
        await until(lambda: not small.statistics().door.open_watches)
        await until(lambda: small.statistics().connections <= 1)  # the caller's own is left
        assert reader is not None
    assert not caplog.text


async def test_a_reader_that_leaves_is_noticed(server, caller):
    """Without an event that has to be written first."""
    async with caller.watch(MAPS):
        assert server.statistics().door.open_watches == 1
    await until(lambda: not server.statistics().door.open_watches)


async def test_the_end_of_the_server_is_told():
    """Every watch ends as if its time were over; nothing is cut in the middle."""
    settings = ServeSettings(controllers=False)
    async with SimServer(settings) as server:
        caller = await Caller(server).__aenter__()
        watch = caller.watch(MAPS)
        event = await watch.__aenter__()
    assert await event() is None
    await watch.__aexit__(None, None, None)
    await caller.__aexit__(None, None, None)
    assert attrs.asdict(server.statistics().door)["open_watches"] == 0
