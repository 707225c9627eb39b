"""Each thing that can go wrong on the way, by itself."""

import attrs
import pytest
from objects_world import BUCKET, SECOND, SMALL, World

from iriscw_sims.objects.content import EMPTY, Content, Sized
from iriscw_sims.objects.messages import (
    CompleteMultipartUpload,
    CreateMultipartUpload,
    DeleteObject,
    GetObject,
    HeadObject,
    PutObject,
    UploadPart,
)
from iriscw_sims.objects.settings import QUICK

MEGABYTE = Content(Sized(1_000_000, 1))
PATIENCE_S = QUICK.patience / SECOND
ALMOST_S = QUICK.latency.most / SECOND
"""One way."""


@pytest.fixture
def world():
    """A world without faults."""
    return World()


def truth(world, key="k"):
    """What is there."""
    return world.storage.body(BUCKET, key)


def test_requests_take_their_way(world):
    """There and back, and bodies at the bandwidth of a stream."""
    outcome, took_s = world.ask(PutObject("k", Content(b"x")))
    assert outcome.answer.ok
    assert 0.002 <= took_s <= 2 * ALMOST_S + 0.001
    stream_s = len(MEGABYTE) / QUICK.stream_bytes_per_s
    for operation in (PutObject("k", MEGABYTE), GetObject("k")):
        outcome, took_s = world.ask(operation)
        assert outcome.answer.ok
        assert outcome.whole
        assert stream_s <= took_s <= stream_s + 2 * ALMOST_S
    assert outcome.answer.body == MEGABYTE


def test_bodies_share_the_link(world):
    """Eight streams need twice as long as four, which the link holds side by side; up and down are apart."""

    def seconds_of(operations):
        begun, heard = world.now, [world.send(operation)[1] for operation in operations]
        world.run()
        assert all(outcomes[0].answer.ok for outcomes in heard)
        return (world.now - begun) / SECOND

    puts = [PutObject(f"k{number}", MEGABYTE) for number in range(8)]
    alone = seconds_of(puts[:1])
    assert alone <= seconds_of(puts[:4]) <= alone + 2 * ALMOST_S
    assert 1.9 * alone <= seconds_of(puts) <= 2.1 * alone
    both = [*puts[:4], *(GetObject(f"k{number}") for number in range(4, 8))]
    assert seconds_of(both) <= alone + 2 * ALMOST_S


def test_a_lost_request_does_nothing(world):
    """The sender hears of silence, at once or when its patience ends, and of nothing else."""
    world.script("object request lost")
    outcome, took_s = world.ask(PutObject("k", Content(b"x")))
    assert outcome.answer is None
    assert took_s <= PATIENCE_S
    world.run()
    assert truth(world) is None


def test_a_slow_request_is_done(world):
    """Only later."""
    world.script("object request slow")
    outcome, took_s = world.ask(PutObject("k"))
    assert outcome.answer.ok
    assert took_s >= QUICK.latency_slow.least / SECOND


@pytest.mark.parametrize(
    ("fault", "statuses"), [("object throttled", {503}), ("object storage in trouble", {500, 503})]
)
def test_a_refusing_server_does_nothing(world, fault, statuses):
    """Whatever was asked; a HEAD is told a status only."""
    for operation in (PutObject("k", MEGABYTE), GetObject("k"), DeleteObject("k")):
        world.script(fault)
        answer = world.answer(operation)
        assert answer.status in statuses
        assert answer.code
    world.script(fault)
    assert world.answer(HeadObject("k")).code == ""
    assert world.storage.landings == []


def test_a_torn_upload_leaves_nothing(world):
    """Neither an object nor a changed one, nor a part."""
    world.put("k", b"old")
    upload = world.answer(CreateMultipartUpload("k")).result.upload_id
    for operation in (PutObject("k", MEGABYTE), PutObject("l", MEGABYTE), UploadPart("k", upload, 1, MEGABYTE)):
        world.script("object upload torn")
        assert world.ask(operation)[0].answer is None
    world.run()
    assert truth(world) == Content(b"old")
    assert truth(world, "l") is None
    assert world.storage.stored_bytes == 3
    assert world.front.statistics().uploads == 0


def test_a_torn_download_is_a_prefix(world):
    """Of the one version, and known to be torn."""
    world.put("k", MEGABYTE)
    seen = set()
    for _ in range(5):
        world.script("object download torn")
        outcome, _ = world.ask(GetObject("k"))
        assert not outcome.whole
        length = len(outcome.answer.body)
        assert outcome.answer.body == MEGABYTE.part(0, length)
        assert outcome.answer.result.length == 1_000_000
        seen.add(length)
    assert len(seen) == 5
    assert 1_000_000 not in seen


def test_a_lost_reply_means_that_it_happened(world):
    """The sender cannot tell that from a request that was lost."""
    world.script("object reply lost")
    assert world.ask(PutObject("k", Content(b"x")))[0].answer is None
    assert truth(world) == Content(b"x")


def test_a_server_in_trouble_may_have_done_it(world):
    """500 says nothing of what has happened."""
    world.script("object done and in trouble")
    assert world.put("k", b"x").status == 500
    assert truth(world) == Content(b"x")


def test_a_late_landing_comes_after_the_sender_gave_up(world):
    """And overwrites what was written since: unless it was conditional."""
    for options, expected in (({}, b"late"), ({"if_none_match": "*"}, b"since")):
        world.scripted.clear()
        world.answer(DeleteObject("k"))
        world.script("object lands late")
        outcome, took_s = world.ask(PutObject("k", Content(b"late"), **options))
        assert outcome.answer is None
        assert took_s >= PATIENCE_S
        assert truth(world) is None
        assert world.front.statistics().in_flight == 1
        assert world.put("k", b"since").ok
        world.run()
        assert truth(world) == Content(expected)
        assert world.front.statistics().in_flight == 0


def test_conflicts_meet_conditional_writes_only(world):
    """409, and nothing has happened."""
    for name, options, status in (("k", {"if_none_match": "*"}, 409), ("l", {}, 200)):
        world.script("object write conflict")
        assert world.put(name, b"x", **options).status == status
        world.scripted.clear()
    assert truth(world) is None


def test_a_completion_can_fail_under_200(world):
    """A client that reads the status only believes in an object that is not there."""
    upload = world.answer(CreateMultipartUpload("k")).result.upload_id
    tag = world.answer(UploadPart("k", upload, 1, Content(b"x"))).result.etag
    operation = CompleteMultipartUpload("k", upload, ((1, tag),))
    world.script("object completion fails under 200")
    answer = world.answer(operation)
    assert (answer.status, answer.code, answer.ok) == (200, "InternalError", False)
    assert truth(world) is None
    assert world.answer(operation).ok


def test_the_rate_is_bounded():
    """Beyond rate and burst the server throttles, and does nothing."""
    world = World(settings=attrs.evolve(QUICK, requests_per_s=10, burst=2))
    heard = [world.send(PutObject(f"k{number}"))[1] for number in range(20)]
    world.run()
    statuses = [outcomes[0].answer.status for outcomes in heard]
    assert statuses.count(200) == len(world.storage.landings)
    assert 2 <= statuses.count(200) <= 4
    assert statuses.count(503) == 20 - statuses.count(200)


def test_new_keys_take_a_while(world):
    """AccessDenied until they have propagated; a key that worked can be denied for a while too."""
    world.front.add_key("new")
    assert world.ask(GetObject("k"), "new")[0].answer.code == "AccessDenied"
    world.run(QUICK.propagation.most / SECOND)
    assert world.ask(GetObject("k"), "new")[0].answer.code == "NoSuchKey"
    world.script("object key denied")
    assert world.ask(GetObject("k"), "new")[0].answer.code == "AccessDenied"
    world.run(QUICK.denial.most / SECOND)
    assert world.ask(GetObject("k"), "new")[0].answer.code == "NoSuchKey"


def test_an_outage_breaks_what_is_under_way(world):
    """Bodies break, new requests find nobody, what was sent lands with its answer lost; then all is well."""
    world.put("k", MEGABYTE)
    _, torn = world.send(PutObject("l", MEGABYTE))
    _, read = world.send(GetObject("k"))
    world.run(1)
    _, flying = world.send(PutObject("m"))
    world.front.outage(20 * SECOND)
    _, late = world.send(PutObject("n"))
    world.run(10)
    assert [outcomes[0].answer for outcomes in (torn, flying, late)] == [None] * 3
    assert not read[0].whole
    assert 0 < len(read[0].answer.body) < 1_000_000
    assert truth(world, "l") is None
    assert truth(world, "m") == EMPTY
    assert truth(world, "n") is None
    assert world.ask(GetObject("k"))[0].answer is None
    world.front.heal()
    assert world.ask(GetObject("k"))[0].whole


def test_an_outage_meets_bodies_that_are_about_to_begin(world):
    """Those of requests and of answers that were on their way."""
    world.put("k", MEGABYTE)
    heard = []
    for operation, ready in ((PutObject("l", MEGABYTE), "object upload torn"), (GetObject("k"), "object reply lost")):
        world.asked.clear()
        heard.append(world.send(operation)[1])
        while ready == "object reply lost" and ready not in world.asked:
            world.step()
        world.front.outage(SECOND)
        world.run(10)
    assert heard[0][0].answer is None
    assert not heard[1][0].whole
    assert heard[1][0].answer.body == EMPTY
    assert truth(world, "l") is None


def test_who_abandons_hears_nothing(world):
    """A body half sent is torn; what was sent in full lands all the same."""
    world.put("k", MEGABYTE)
    for operation, seconds, key, landed in (
        (PutObject("a", MEGABYTE), 0, "a", False),
        (PutObject("a", MEGABYTE), 1, "a", False),
        (PutObject("b"), 0, "b", True),
        (GetObject("k"), 1, "k", True),
    ):
        exchange, heard = world.send(operation)
        world.run(seconds)
        exchange.abandon()
        exchange.abandon()
        world.run()
        assert heard == []
        assert (truth(world, key) is not None) is landed
    figures = world.front.statistics()
    assert (figures.in_flight, figures.uploads, figures.downloads) == (0, 0, 0)


def test_an_exchange_that_is_over_can_be_abandoned(world):
    """Nothing comes of it."""
    exchange, heard = world.send(GetObject("k"))
    world.run()
    exchange.abandon()
    assert [outcome.answer.code for outcome in heard] == ["NoSuchKey"]


def test_figures(world):
    """What was sent and what landed is counted."""
    world.put("k", b"x")
    world.script("object request lost")
    world.ask(GetObject("k"))
    figures = world.front.statistics()
    assert (figures.sent, figures.landed) == (2, 1)


def test_a_reader_has_one_version(world):
    """What it began to read is what it reads to the end, whatever is written meanwhile."""
    world.put("k", MEGABYTE)
    _, heard = world.send(GetObject("k"))
    world.run(1)
    world.put("k", b"new")
    world.answer(DeleteObject("k"))
    world.run()
    assert heard[0].answer.body == MEGABYTE


def test_the_storage_refuses_by_its_own_rules():
    """The front does not hide the storage's own refusals."""
    world = World(rules=attrs.evolve(SMALL, capacity_bytes=1))
    assert world.put("k", b"xx").code == "QuotaExceeded"
    assert world.ask(PutObject("k"), "nobody")[0].answer.code == "InvalidAccessKeyId"
