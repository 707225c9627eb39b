"""What holds for object storage behind its front, whatever goes wrong: checks that tests and planted bugs run."""

from random import Random

from objects_world import BUCKET, KEY, World

from iriscw_sims.objects.content import Content, Sized
from iriscw_sims.objects.fault_points import FAULT_POINTS
from iriscw_sims.objects.front import Stage
from iriscw_sims.objects.messages import (
    CompleteMultipartUpload,
    CreateMultipartUpload,
    DeleteObject,
    GetObject,
    PutObject,
    Request,
    UploadPart,
)

ALL_RATES = dict(FAULT_POINTS)


class Sent:
    """A request with what became of it; its content is its own."""

    def __init__(self, world, operation):
        self.request = Request(BUCKET, operation, KEY)
        self.begun = world.now
        self.heard = []
        self.abandoned = self.taken_back = False
        self.exchange = world.front.send(self.request, lambda outcome: self.heard.append((world.now, outcome)))

    def abandon(self):
        """Die."""
        self.taken_back = self.exchange.stage is Stage.SENDING
        self.abandoned = self.abandoned or not self.heard
        self.exchange.abandon()


def draw_operation(rng, serial):
    """Draw an operation on one of two keys."""
    key = rng.choice("ab")
    body = Content(Sized(rng.choice((0, 1, 40_000, 300_000)), serial))
    return rng.choice(
        (
            PutObject(key, body),
            PutObject(key, body, if_none_match="*"),
            GetObject(key),
            GetObject(key),
            DeleteObject(key),
        )
    )


def check_history(seed, rates, count=40):
    """Send many requests at once; check what each sender heard against what landed, and that against what is there."""
    world, rng, sent = World(seed, rates), Random(f"{seed}:history"), []
    for serial in range(count):
        sent.append(Sent(world, draw_operation(rng, serial)))
        world.run(rng.choice((0, 0.1, 1, 5)))
        if rng.random() < 0.2:
            rng.choice(sent[-4:]).abandon()
        if rng.random() < 0.03:
            world.front.outage(int(rng.uniform(0, 10) * 1e9))
    world.run()
    landed = replay(world.storage.landings)
    by_request = {id(each.request): each for each in sent}
    assert len({id(request) for _, request, _ in world.storage.landings}) == len(world.storage.landings)
    assert all(id(request) in by_request for _, request, _ in world.storage.landings)
    for each in sent:
        assert len(each.heard) == (0 if each.abandoned else 1)
        if each.taken_back:
            assert id(each.request) not in landed
        for heard_at, outcome in each.heard:
            check_outcome(each, heard_at, outcome, landed.get(id(each.request)))
    figures = world.front.statistics()
    assert (figures.in_flight, figures.uploads, figures.downloads) == (0, 0, 0)
    return world


def check_outcome(each, heard_at, outcome, landing):
    """Check what one sender heard; ``landing`` is when its request landed, and what it should have read."""
    answer = outcome.answer
    if answer is None or not answer.ok:
        return
    assert landing is not None
    at, body = landing
    assert each.begun <= at <= heard_at
    if isinstance(each.request.operation, GetObject):
        assert answer.result.length == len(body)
        assert answer.body == body.part(0, len(answer.body))
        assert not outcome.whole or len(answer.body) == len(body)


def replay(landings):
    """Give, by request, when it landed and what was there then; check that the storage said what it had to."""
    bodies, found = {}, {}
    for at, request, answer in landings:
        operation = request.operation
        before = bodies.get(operation.key)
        match operation:
            case _ if answer.code == "AccessDenied":
                pass
            case PutObject(if_none_match="*") if before is not None:
                assert answer.code == "PreconditionFailed"
            case PutObject():
                assert answer.ok
                bodies[operation.key] = operation.body
            case DeleteObject():
                assert answer.ok
                bodies.pop(operation.key, None)
            case GetObject():
                assert answer.ok is (before is not None)
        found[id(request)] = at, before
    return found


class Writer:
    """One that wants to create the object, and tries until it knows who did."""

    def __init__(self, world, number, in_parts):
        self.world = world
        self.rng = Random(f"{world.seed}:writer {number}")
        self.in_parts = in_parts
        self.body = Content(Sized(30_000, number))
        self.won = None
        self.acknowledged = 0
        self.send(self.first())

    def first(self):
        """Return the request that everything begins with."""
        return CreateMultipartUpload("k") if self.in_parts else PutObject("k", self.body, if_none_match="*")

    def send(self, operation):
        """Send, and hear of it."""
        self.world.front.send(Request(BUCKET, operation, KEY), lambda outcome: self.hear(operation, outcome))

    def hear(self, operation, outcome):
        """Go on."""
        answer = outcome.answer
        if answer is not None and answer.code == "PreconditionFailed":
            self.send(GetObject("k"))
        elif answer is None or not answer.ok or not outcome.whole:
            reading = isinstance(operation, GetObject) and (answer is None or answer.code != "NoSuchKey")
            again = operation if reading else self.first()
            self.world.after(self.rng.randrange(10**10), self.send, again)
        elif isinstance(operation, GetObject):
            self.won = answer.body == self.body
        elif isinstance(operation, CreateMultipartUpload):
            self.send(UploadPart("k", answer.result.upload_id, 1, self.body))
        elif isinstance(operation, UploadPart):
            tags = ((1, answer.result.etag),)
            self.send(CompleteMultipartUpload("k", operation.upload_id, tags, if_none_match="*"))
        else:
            self.acknowledged += 1
            self.won = True


def check_race(seed, rates, count=5, in_parts=False):
    """Let writers race for one object that only one may create, over and over where they heard nothing."""
    world = World(seed, rates)
    writers = [Writer(world, number, in_parts and number % 2) for number in range(count)]
    contents = []
    while any(writer.won is None for writer in writers):
        assert world.step(), "a writer waits for ever"
        now = world.storage.body(BUCKET, "k")
        if now is not None and (not contents or contents[-1] != now):
            contents.append(now)
    world.run()
    assert [*contents] == [world.storage.body(BUCKET, "k")], "it was created once, and never changed"
    assert [writer.body for writer in writers if writer.won] == contents
    assert sum(writer.acknowledged for writer in writers) <= 1
    return world
