"""Bugs planted in the simulated storage and in what uses it: each is caught by one of the laws, so the laws bite."""

import importlib.util
from pathlib import Path

import attrs
import pytest
from driver_laws import check_acknowledged, check_claims, check_log, check_readers
from hypothesis import Phase, given
from laws import check_history, check_race
from objects_world import World

from iriscw.objects.ports import ObjectExists
from iriscw_sims.objects import bucket, driver, listing, multipart
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.front import Exchange, ObjectFront, Stage
from iriscw_sims.objects.link import Link
from iriscw_sims.objects.messages import Answer, GetObject, PutObject
from iriscw_sims.objects.storage import VERBS, ObjectStorage
from iriscw_sims.objects.throttle import Throttle
from profiles import examples


def sibling(name):
    """Return the tests beside these of that name: other folders have files of the same."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"objects_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


test_bucket = sibling("test_bucket")
test_content = sibling("test_content")
test_front = sibling("test_front")
test_link = sibling("test_link")
test_listing = sibling("test_listing")
test_multipart = sibling("test_multipart")
test_throttle = sibling("test_throttle")

TORN = {"object upload torn": 300, "object download torn": 300}
SILENT = {"object reply lost": 300, "object request lost": 200, "object lands late": 200}


def torn_uploads_are_kept(patch):
    original = ObjectFront._break

    def broken(front, exchange):
        if exchange.stage is Stage.SENDING and isinstance(exchange.request.operation, PutObject):
            asked = exchange.request.operation
            moved = front.up.cancel(exchange.transfer) if exchange.transfer else 0
            part = attrs.evolve(asked, body=asked.body.part(0, moved))
            front.storage.handle(attrs.evolve(exchange.request, operation=part), front._world.now)
        original(front, exchange)

    patch.setattr(ObjectFront, "_break", broken)


def conditions_are_judged_too_early(patch):
    """When the request leaves, and not when it lands."""
    send = ObjectFront.send

    def early(front, request, answered):
        asked = request.operation
        if (
            isinstance(asked, PutObject)
            and asked.if_none_match
            and front.storage.body(request.bucket, asked.key) is None
        ):
            request = attrs.evolve(request, operation=attrs.evolve(asked, if_none_match=""))
        return send(front, request, answered)

    patch.setattr(ObjectFront, "send", early)


def if_none_match_is_ignored(patch):
    patch.setattr(bucket, "check_write", lambda present, if_none_match, if_match: None)


def lost_replies_undo(patch):
    """A request whose answer will be lost is not done."""
    original = ObjectFront._done

    def done(front, request):
        if front._world.scripted.get("object reply lost"):
            return Answer(200)
        return original(front, request)

    patch.setattr(ObjectFront, "_done", done)


def acknowledged_before_done(patch):
    """Every other write is answered and forgotten."""
    handle, count = ObjectStorage.handle, iter(range(10**9))

    def forgetful(storage, request, now):
        if isinstance(request.operation, PutObject) and next(count) % 2:
            return Answer(200, bucket.ObjectHead(request.operation.key, len(request.body), "tag", now))
        return handle(storage, request, now)

    patch.setattr(ObjectStorage, "handle", forgetful)


def readers_see_two_versions(patch):
    """The body is read while it is sent: the second half is what is there at the end."""
    original = ObjectFront._downloaded

    def mixed(front, exchange, answer):
        now = front.storage.body(exchange.request.bucket, answer.result.key)
        if isinstance(exchange.request.operation, GetObject) and now is not None:
            half = len(answer.body) // 2
            both = [answer.body.part(0, half), now.part(half, len(answer.body))]
            answer = attrs.evolve(answer, body=Content.joined(both))
        original(front, exchange, answer)

    patch.setattr(ObjectFront, "_downloaded", mixed)


def torn_downloads_look_whole(patch):
    original = Exchange.end
    patch.setattr(Exchange, "end", lambda exchange, outcome: original(exchange, attrs.evolve(outcome, whole=True)))


def senders_hear_twice(patch):
    def end(exchange, outcome):
        if exchange._answered is not None:
            exchange._answered(outcome)

    patch.setattr(Exchange, "end", end)


def the_dead_hear(patch):
    patch.setattr(Exchange, "abandon", lambda exchange: None)


def bodies_of_the_dead_go_on(patch):
    def abandon(exchange):
        exchange._answered = None

    patch.setattr(Exchange, "abandon", abandon)


def late_landings_come_twice(patch):
    original = ObjectFront._fly

    def fly(front, exchange, latency):
        original(front, exchange, latency)
        if front._world.chance("object lands late"):
            front._in_flight += 1
            front._world.after(10**10, front._land, exchange)

    patch.setattr(ObjectFront, "_fly", fly)


def parts_in_the_order_of_arrival(patch):
    original = multipart.Uploads.assemble

    def assemble(uploads, asked):
        made = original(uploads, asked)
        parts = uploads.find(asked.key, asked.upload_id).parts.values()
        return multipart.Assembled(Content.joined(part.body for part in parts), made.etag)

    patch.setattr(multipart.Uploads, "assemble", assemble)


def pages_that_skip(patch):
    original = listing._first
    patch.setattr(listing, "_first", lambda order, prefix, after: original(order, prefix, after) + bool(after))


def folders_that_come_twice(patch):
    """A page that ends with a folder is continued inside of it."""

    def resumed(asked, *_):
        return listing._opened(asked.continuation_token) if asked.continuation_token else asked.start_after.encode()

    patch.setattr(listing, "_resumed", resumed)


def tags_of_lengths(patch):
    patch.setattr(Content, "digest", property(lambda content: b"%016d" % len(content)))


def parts_one_too_long(patch):
    original = Content.part
    patch.setattr(Content, "part", lambda content, start, end: original(content, start, end + 1))


def one_too_many_admitted(patch):
    original = Throttle.__init__
    patch.setattr(Throttle, "__init__", lambda throttle, rate, burst: original(throttle, rate, burst + 1))


def links_that_are_not_shared(patch):
    patch.setattr(Link, "_rate", lambda link: (min(link._stream, link._bytes_per_s), 1))


def renames_that_leave_a_copy(patch):
    patch.setitem(VERBS, bucket.RenameObject, bucket.Bucket.copy)


def exists_means_lost(patch):
    """A writer that takes every ObjectExists for a defeat, although it may meet its own write."""
    original = driver.SimObjectStore.put

    async def put(store, key, data, *, condition=None):
        try:
            return await original(store, key, data, condition=condition)
        except ObjectExists:
            return None

    patch.setattr(driver.SimObjectStore, "put", put)


def silence_means_success(patch):
    def done(operation, outcome, condition):
        if outcome.answer is None and isinstance(operation, PutObject):
            return Answer(200, bucket.ObjectHead(operation.key, len(operation.body), "tag", 0))
        return original(operation, outcome, condition)

    original = driver._done
    patch.setattr(driver, "_done", done)


def the_status_is_enough(patch):
    """A client that does not read what is said under status 200."""
    patch.setattr(Answer, "ok", property(lambda answer: answer.status < 300))
    patch.setattr(
        driver,
        "_result",
        lambda operation, outcome, kind, _=None: outcome.answer.result or bucket.ObjectHead("", 0, "", 0),
    )


def torn_readings_end_quietly(patch):
    original = driver.SimReading
    patch.setattr(driver, "SimReading", lambda info, body, whole: original(info, body, True))


def if_match_is_not_sent(patch):
    patch.setattr(driver, "_if_match", lambda condition: "")


def over_seeds(check, rates, seeds=range(12), **options):
    """Check several histories."""

    def run():
        for seed in seeds:
            check(seed, rates, **options)

    return run


def of_a_law(error):
    """Tell whether an error is a failed assertion, alone or in groups."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(of_a_law, error.exceptions))
    return isinstance(error, AssertionError)


def law(test):
    """Return a property as a plain function, with the same examples each time and no report of its own."""
    found = test.hypothesis.inner_test
    strategies = test.hypothesis._given_kwargs
    again = given(**strategies)(found)
    return examples(120, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate])(again)


PLANTED = [
    (torn_uploads_are_kept, over_seeds(check_history, TORN)),
    (conditions_are_judged_too_early, over_seeds(check_race, {})),
    (if_none_match_is_ignored, over_seeds(check_race, SILENT)),
    (lost_replies_undo, lambda: test_front.test_a_lost_reply_means_that_it_happened(World())),
    (acknowledged_before_done, over_seeds(check_acknowledged, {}, range(1))),
    (readers_see_two_versions, over_seeds(check_history, {})),
    (torn_downloads_look_whole, over_seeds(check_history, TORN)),
    (senders_hear_twice, over_seeds(check_history, SILENT)),
    (the_dead_hear, over_seeds(check_history, {})),
    (bodies_of_the_dead_go_on, over_seeds(check_history, {})),
    (late_landings_come_twice, over_seeds(check_history, SILENT)),
    (parts_in_the_order_of_arrival, law(test_multipart.test_the_object_is_its_parts_in_order)),
    (pages_that_skip, law(test_listing.test_pages_join_to_the_definition)),
    (folders_that_come_twice, law(test_listing.test_pages_join_to_the_definition)),
    (tags_of_lengths, law(test_content.test_equal_is_what_stands_for_the_same)),
    (parts_one_too_long, law(test_content.test_a_part_is_a_slice)),
    (one_too_many_admitted, law(test_throttle.test_in_any_span_no_more_than_the_rate_and_the_burst)),
    (links_that_are_not_shared, law(test_link.test_bodies_take_as_long_as_they_must)),
    (renames_that_leave_a_copy, law(test_bucket.test_a_bucket_is_a_table)),
    (exists_means_lost, over_seeds(check_claims, {}, range(1))),
    (silence_means_success, over_seeds(check_acknowledged, SILENT, range(3))),
    (the_status_is_enough, over_seeds(check_acknowledged, {"object completion fails under 200": 300}, range(3))),
    (torn_readings_end_quietly, over_seeds(check_readers, TORN, range(2))),
    (if_match_is_not_sent, over_seeds(check_log, {}, range(2))),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_planted_bug_is_caught(plant, check, monkeypatch):
    """The law holds for the code as it is, and not with the bug."""
    check()
    plant(monkeypatch)
    with pytest.raises((AssertionError, BaseExceptionGroup)) as caught:
        check()
    assert of_a_law(caught.value)
