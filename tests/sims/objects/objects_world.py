"""A world of nothing but object storage: a clock, a queue of what comes later, chances that a test sets, a record."""

import heapq
from random import Random

import attrs

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.front import ObjectFront
from iriscw_sims.objects.messages import CreateBucket, GetObject, PutObject, Request
from iriscw_sims.objects.rules import COREWEAVE, KIB
from iriscw_sims.objects.settings import QUICK
from iriscw_sims.objects.storage import ObjectStorage

SECOND = 1_000_000_000
BEGIN = 1_767_225_600 * SECOND
BUCKET = "checkpoints"
KEY = "CWKEY"
SMALL = attrs.evolve(COREWEAVE, least_part_bytes=4 * KIB)
"""CoreWeave with parts that tests can hold."""


class Recording(ObjectStorage):
    """A storage that remembers what landed on it, with its answers."""

    def __init__(self, rules=SMALL):
        super().__init__(rules)
        self.landings = []

    def handle(self, request, now):
        """Answer, and remember."""
        answer = super().handle(request, now)
        self.landings.append((now, request, answer))
        return answer


def made(rules=SMALL, buckets=(BUCKET,)):
    """Return a storage with a bucket and a key that works."""
    storage = Recording(rules)
    storage.add_key(KEY)
    for name in buckets:
        assert storage.handle(Request(name, CreateBucket(), KEY), BEGIN).ok
    storage.landings.clear()
    return storage


def asker(storage, bucket=BUCKET, now=BEGIN):
    """Return a function that has an operation answered."""
    return lambda operation, at=now: storage.handle(Request(bucket, operation, KEY), at)


class World:
    """Surroundings, with a storage and its front.

    ``rates`` gives chances in thousandths; ``scripted`` gives the next answers of a chance, before its rate counts.
    """

    def __init__(self, seed=0, rates=None, settings=QUICK, rules=SMALL):
        self.seed = seed
        self.now = BEGIN
        self.rates = dict(rates or {})
        self.scripted = {}
        self.asked = {}
        self.trace = []
        self._queue = []
        self._serial = 0
        self._chances = Random(f"{seed}:chances")
        self.storage = made(rules)
        self.front = ObjectFront(self.storage, self, settings)

    # Surroundings

    def rng(self, name):
        """Return a stream."""
        return Random(f"{self.seed}:{name}")

    def after(self, delay_ns, function, *args):
        """Queue a call."""
        assert delay_ns >= 0
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay_ns, self._serial, function, args))

    def chance(self, name):
        """Answer as scripted, or by the rate."""
        self.asked[name] = self.asked.get(name, 0) + 1
        if self.scripted.get(name):
            return self.scripted[name].pop(0)
        rate = self.rates.get(name, 0)
        came = rate > 0 and self._chances.randrange(1000) < rate
        if came:
            self.note("fault", name)
        return came

    def note(self, *what):
        """Keep the trace."""
        self.trace.append((self.now, *what))

    # Time

    def step(self):
        """Do the next thing, and give whether there was one."""
        if not self._queue:
            return False
        self.now, _, function, args = heapq.heappop(self._queue)
        function(*args)
        return True

    def run(self, seconds=None):
        """Let time pass, or let all happen that will ever happen."""
        end = None if seconds is None else self.now + int(seconds * SECOND)
        while self._queue and (end is None or self._queue[0][0] <= end):
            self.step()
        if end is not None:
            self.now = end

    # Requests

    def script(self, *names):
        """Let chances come true once."""
        for name in names:
            self.scripted.setdefault(name, []).append(True)

    def send(self, operation, access_key=KEY):
        """Send a request; give its exchange and the list that its outcome will stand in."""
        heard = []
        return self.front.send(Request(BUCKET, operation, access_key), heard.append), heard

    def ask(self, operation, access_key=KEY):
        """Send a request, and give its outcome and the seconds that it took."""
        begun = self.now
        _, heard = self.send(operation, access_key)
        while not heard:
            assert self.step(), "nobody ever answers"
        return heard[0], (self.now - begun) / SECOND

    def answer(self, operation):
        """Return the answer to a request that gets one."""
        return self.ask(operation)[0].answer

    def put(self, key, body, **options):
        """Write."""
        return self.answer(PutObject(key, Content(body) if isinstance(body, bytes) else body, **options))

    def get(self, key, **options):
        """Read."""
        return self.answer(GetObject(key, **options))
