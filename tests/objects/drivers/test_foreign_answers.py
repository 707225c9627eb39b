"""Answers that are not the service's: a proxy's page, a console's port, a service that leaves things out (INV-C11)."""

import asyncio
from contextlib import asynccontextmanager

import attrs
import pytest
from gs_stage import QUICK as GS_QUICK
from hypothesis import given, strategies as st
from s3_stage import QUICK

from iriscw._errors import OperationError
from iriscw.objects.drivers.gs import GsObjectStore
from iriscw.objects.drivers.gs_place import GsPlace
from iriscw.objects.drivers.s3 import S3ObjectStore
from iriscw.objects.drivers.s3_answers import FIELDS, NO_CONTENT, foreign, tag
from iriscw.objects.drivers.s3_place import S3Place
from iriscw.objects.ports import IfAbsent, IfMatch, ObjectNotFound, StoreAccessDenied, StoreUnreachable
from raised import that

pytestmark = pytest.mark.usefixtures("credentials")

LOGIN = b"<html><body>log in</body></html>"
LISTING = (
    b'<?xml version="1.0"?><ListBucketResult><Name>bkt</Name><Prefix>p/</Prefix><KeyCount>1</KeyCount>'
    b"<IsTruncated>%s</IsTruncated>%s</ListBucketResult>"
)
ENTRY = b"<Contents><Key>p/k</Key><Size>1</Size>%s</Contents>"
ETAG = 'ETag: "e"\r\n'

NOBODYS = {
    "a page for logging in": ("200 OK", "Content-Type: text/html\r\n", LOGIN),
    "nothing": ("200 OK", "", b""),
    "no content": ("204 No Content", "", b""),
    "another root": ("200 OK", "", b"<?xml version='1.0'?><Error2><Code>x</Code></Error2>"),
    "JSON": ("200 OK", "Content-Type: application/json\r\n", b"{}"),
    "JSON of a list": ("200 OK", "Content-Type: application/json\r\n", b'{"items": []}'),
    "a list": ("200 OK", "", b"[]"),
    "a word": ("200 OK", "", b"ok"),
    "accepted": ("202 Accepted", "", b""),
    "a page that is not there": ("404 Not Found", "Content-Type: text/html\r\n", b"<html>no such page</html>"),
    "nothing there": ("404 Not Found", "", b""),
    "gone": ("410 Gone", "", b"<html>gone</html>"),
    "a redirection to a page": ("302 Found", "Location: http://login.example/\r\n", LOGIN),
}
"""What others answer: whatever is asked."""


@asynccontextmanager
async def answering(status, headers, body, chunked=False):
    """Serve one answer to everybody; give the port."""

    async def serve(reader, writer):
        while head := await _head(reader):
            method = head.split()[0]
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if _is_length(line)), 0)
            await reader.readexactly(length)
            said = "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {len(body)}\r\n"
            writer.write(f"HTTP/1.1 {status}\r\n{'' if status.startswith('204') else said}{headers}\r\n".encode())
            if method != b"HEAD" and not status.startswith("204"):
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _head(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _is_length(line):
    return line.lower().startswith(b"content-length:")


@asynccontextmanager
async def store_at(kind, port):
    """Yield a driver that takes that port for its service's."""
    endpoint = f"http://127.0.0.1:{port}"
    store: object
    if kind == "s3":
        limits = attrs.evolve(QUICK, attempts=2)
        store = S3ObjectStore(S3Place("bkt", "p/", endpoint, "eu-test-1", "path"), limits)
    else:
        limits = attrs.evolve(GS_QUICK, attempts=2)
        store = GsObjectStore(GsPlace("bkt", "p/", endpoint, anonymous=True), limits)
    try:
        yield store
    finally:
        await store.aclose()


async def _read(store):
    async with store.get("k") as reading:
        return b"".join([chunk async for chunk in reading])


CALLS = {
    "list": lambda store: store.list(),
    "stat": lambda store: store.stat("k"),
    "get": _read,
    "put": lambda store: store.put("k", b"x"),
    "put if absent": lambda store: store.put("k", b"x", condition=IfAbsent()),
    "put if match": lambda store: store.put("k", b"x", condition=IfMatch("1")),
    "put in parts": lambda store: store.put("k", b"x" * 700_000),
    "delete": lambda store: store.delete("k"),
    "delete if match": lambda store: store.delete("k", condition=IfMatch("1")),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("answer", NOBODYS)
@pytest.mark.parametrize("kind", ["s3", "gs"])
async def test_nothing_is_believed_of_what_others_say(kind, answer):
    """No method says that something is not there, or was done; and none raises anything but the port's errors."""
    done = {("no content", "delete"), ("no content", "delete if match")}  # all that these services say of it
    async with answering(*NOBODYS[answer]) as port, store_at(kind, port) as store:
        for name, call in CALLS.items():
            if (answer, name) in done:
                await call(store)
                continue
            with pytest.raises((StoreUnreachable, StoreAccessDenied)) as told:
                await call(store)
            assert not isinstance(told.value, ObjectNotFound), name


@pytest.mark.parametrize("kind", ["s3", "gs"])
async def test_the_answer_is_shown(kind):
    """People read what came instead."""
    async with answering(*NOBODYS["a page for logging in"]) as port, store_at(kind, port) as store:
        with pytest.raises(StoreUnreachable, check=that(names="<html><body>log")):
            await store.list()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (LISTING % (b"false", ENTRY % b""), that(names="ETag")),
        (LISTING % (b"true", b""), that(comes_from="s3_connection.S3Connection._once")),
        (
            LISTING % (b"false", b"<Contents><Key>q/k</Key><Size>1</Size><ETag>e</ETag></Contents>"),
            that(comes_from="s3_connection.S3Connection._once"),
        ),
        (b"<ListBucketResult><Name>bkt</Name></ListBucketResult>", that(names="IsTruncated")),
    ],
)
async def test_listings_that_leave_something_out(body, said):
    """An object without a tag, a page that promises more behind nothing, and one of another prefix."""
    async with answering("200 OK", "", body) as port, store_at("s3", port) as store:
        with pytest.raises(StoreUnreachable, check=said):
            await store.list()


async def test_a_listing_that_begins_anew():
    """A service that does not know where to go on would be listed for ever."""
    page = LISTING % (b"true", ENTRY % b"<ETag>e</ETag>")
    async with answering("200 OK", "", page) as port, store_at("s3", port) as store:
        first = await store.list()
        with pytest.raises(StoreUnreachable, check=that(comes_from="s3_connection.S3Connection._once")):
            await store.list(after=first.next_after)


async def test_an_empty_bucket_is_still_empty():
    """What S3 says of one."""
    async with answering("200 OK", "", LISTING % (b"false", b"")) as port, store_at("s3", port) as store:
        page = await store.list()
        assert page.objects == ()
        assert page.next_after is None


async def test_an_answer_without_a_length():
    """A HEAD or GET in pieces does not say how long the object is."""
    async with answering("200 OK", ETAG, b"abc", chunked=True) as port, store_at("s3", port) as store:
        for call in (store.stat("k"), _read(store)):
            with pytest.raises(StoreUnreachable, check=that(names="ContentLength")):
                await call


async def test_a_weak_tag_is_the_services_own():
    """A proxy that compresses marks it; what is sent back is what the service made."""
    headers = 'ETag: W/"abc"\r\n'
    async with answering("200 OK", headers, b"abc") as port, store_at("s3", port) as store:
        assert (await store.stat("k")).etag == "abc"
    assert tag({"ETag": '"x"'}) == "x"


ANSWERS = st.dictionaries(
    st.sampled_from(sorted({field for of in FIELDS.values() for field in of})), st.none() | st.just("x")
)


@given(st.sampled_from([*FIELDS, *NO_CONTENT]), ANSWERS, st.integers(200, 299))
def test_no_answer_is_believed_without_its_fields(operation, answer, status):
    """Whatever else it holds."""
    said = {**answer, "ResponseMetadata": {"HTTPStatusCode": status}}
    whole = all(said.get(field) is not None for field in FIELDS.get(operation, ()))
    if operation in NO_CONTENT:
        whole = status == 204
    assert (foreign(operation, said, {}) is None) is (
        whole and not (operation == "list_objects_v2" and not said.get("Contents"))
    )


def test_errors_are_the_ports():
    """A caller need not know this module."""
    assert issubclass(StoreUnreachable, OperationError)
