"""One leads at a time, whatever is lost, late or wrong; and when all is well again somebody does."""

import heapq
import itertools
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from iriscw.cloud.kube.leadership import MAX_DURATION, Candidate, Standing, Terms
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiResponse
from iriscw.errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store

PATH = "/apis/coordination.k8s.io/v1/namespaces/iris/leases/iris-controller"
EPOCH = 1_800_000_000 * SECOND
TERMS = Terms()
NAMED = {"name": "iris-controller", "namespace": "iris"}
FREED = {"metadata": NAMED, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
UNHELD = {"metadata": NAMED, "spec": {}}


class Controller:
    """A candidate with a clock of its own, which runs too fast or too slow, and asks again and again."""

    def __init__(self, world, name, rate):
        self.world, self.rate = world, rate
        self.offset = world.rng.randrange(10**15)
        self.candidate = Candidate(PATH, name)
        self.busy = False
        world.after(0, self.turn)

    @property
    def clock(self):
        """Its monotonic clock."""
        return self.offset + int(self.world.now * self.rate)

    @property
    def acts(self):
        """Whether it believes that it may act."""
        return self.candidate.standing is Standing.LEADING and self.clock < self.candidate.acts_until

    def turn(self):
        """Ask, if nothing is under way."""
        self.candidate.look(self.clock)
        if self.candidate.standing is not Standing.OVER:
            self.world.after(TERMS.renewal, self.turn)
        request = None if self.busy else self.candidate.next(self.clock, self.world.rng.randrange(10**18))
        if request is not None:
            self.busy = True
            self.world.send(request, self, self.clock)

    def told(self, request, answer, sent):
        """Hear what became of it."""
        self.busy = False
        self.candidate.heard(request, answer, sent, self.clock)


class World:
    """A store, time, and requests that are lost, land late, or are not answered."""

    def __init__(self, rng, trouble):
        self.rng, self.trouble, self.now = rng, trouble, 0
        self.store = Store(rng=Random(1))
        self.do(ApiRequest("POST", "/api/v1/namespaces", body={"metadata": {"name": "iris"}}))
        self.do(ApiRequest("POST", PATH.rpartition("/")[0], body=FREED))
        self._heap, self._numbers = [], itertools.count()
        self.controllers = []

    def after(self, delay, function, *args):
        """Do something later."""
        heapq.heappush(self._heap, (self.now + delay, next(self._numbers), function, args))

    def do(self, request):
        """Carry a request out."""
        query = Request(request.method, request.path, request.query, request.body, request.content_type)
        answer = self.store.handle(query, EPOCH + self.now)
        return ApiResponse(answer.code, thaw(answer.body))

    def send(self, request, controller, sent):
        """Let a request land, or not, and be answered, or not."""
        fate = self.rng.random() if self.rng.random() < self.trouble else 1
        delay = self.rng.randrange(SECOND)
        if fate < 0.3:  # it never lands
            self.after(5 * SECOND, controller.told, request, None, sent)
        elif fate < 0.6:  # it lands, some time, and nobody is told
            self.after(self.rng.randrange(60 * SECOND), self.do, request)
            self.after(5 * SECOND, controller.told, request, None, sent)
        elif fate < 0.7:
            self.after(delay, controller.told, request, ApiResponse(500, {"message": "no"}), sent)
        else:
            self.after(delay, self.land, request, controller, sent, 20 * SECOND if fate < 1 else SECOND)

    def land(self, request, controller, sent, most):
        """Carry a request out, and answer it a little later."""
        answer = self.do(request)
        self.after(self.rng.randrange(most), controller.told, request, answer, sent)

    def run(self, span):
        """Let time pass; nobody may ever act beside another."""
        until = self.now + span
        while self._heap and self._heap[0][0] <= until:
            self.now, _, function, args = heapq.heappop(self._heap)
            function(*args)
            acting = [each.candidate.identity for each in self.controllers if each.acts]
            assert len(acting) <= 1, f"at {self.now / SECOND}: {acting} act"
        self.now = until

    def add(self):
        """Start a controller."""
        name = f"controller-{len(self.controllers)}"
        self.controllers.append(Controller(self, name, self.rng.uniform(0.9, 1.1)))
        return self.controllers[-1]

    @property
    def leaders(self):
        """Who acts now."""
        return [each for each in self.controllers if each.acts]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.6, 0.95]))
def test_never_two_and_at_last_one(seed, trouble):
    """Three controllers, one after another replaced when it is over; then all is well for a minute."""
    world = World(Random(seed), trouble)
    for _ in range(3):
        world.add()
    for _ in range(20):
        world.run(20 * SECOND)
        if world.rng.random() < 0.1:
            world.do(ApiRequest("DELETE", PATH))
            if world.rng.random() < 0.5:
                world.do(ApiRequest("POST", PATH.rpartition("/")[0], body=world.rng.choice((UNHELD, FREED))))
        if all(each.candidate.standing is Standing.OVER for each in world.controllers):
            world.add()
    world.trouble = 0
    world.run(70 * SECOND)  # what was late has landed
    world.add()
    world.run(60 * SECOND)
    assert len(world.leaders) == 1
    leader = world.leaders[0]
    world.run(600 * SECOND)
    assert world.leaders == [leader], "a leader that is well goes on"


@pytest.fixture
def calm():
    """A world without trouble."""
    return World(Random(1), 0.0)


def test_a_lease_that_is_freed_is_taken_at_once(calm):
    """The next one need not wait for a lease to end."""
    first = calm.add()
    calm.run(5 * SECOND)
    assert calm.leaders == [first]
    second = calm.add()
    calm.run(5 * SECOND)
    request = first.candidate.release()
    assert not first.acts
    assert calm.do(request).code == 200
    calm.run(6 * SECOND)
    assert calm.leaders == [second]
    assert second.candidate.holder == "controller-1"


def test_who_is_over_asks_for_nothing(calm):
    """Neither after a release nor after its time is over."""
    first = calm.add()
    calm.run(5 * SECOND)
    first.candidate.look(first.candidate.acts_until)
    assert first.candidate.standing is Standing.OVER
    assert "ran out" in first.candidate.reason
    assert first.candidate.next(0, 0) is None
    assert first.candidate.release() is None


def test_who_does_not_lead_says_why(calm):
    """Who does, or that nobody answers."""
    calm.add()
    calm.run(5 * SECOND)
    second = calm.add()
    calm.run(5 * SECOND)
    assert second.candidate.reason == "controller-0 leads"
    second.candidate.heard(ApiRequest("GET", PATH), None, 0, 0)
    assert "does not answer" in second.candidate.reason
    second.candidate.heard(ApiRequest("GET", PATH), ApiResponse(403, {"message": "you may not"}), 0, 0)
    assert second.candidate.reason == "you may not"


def test_a_lease_that_somebody_took_ends_the_leader(calm):
    """Whoever it was, and however it was taken: by kubectl, too."""
    first = calm.add()
    calm.run(5 * SECOND)
    lease = calm.do(ApiRequest("GET", PATH)).body
    lease["spec"]["holderIdentity"] = "somebody"
    calm.do(ApiRequest("PUT", PATH, body=lease))
    calm.run(6 * SECOND)
    assert first.candidate.standing is Standing.OVER
    assert first.candidate.reason == "somebody holds the Lease now"


def test_a_lease_that_is_deleted_is_made_anew(calm):
    """Its holder goes on, also beside others who want to lead: they wait as long as a lease lasts."""
    first = calm.add()
    calm.run(5 * SECOND)
    calm.add()
    calm.do(ApiRequest("DELETE", PATH))
    calm.run(20 * SECOND)
    assert calm.leaders == [first]
    assert calm.do(ApiRequest("GET", PATH)).body["spec"]["holderIdentity"] == "controller-0"


@pytest.mark.parametrize("made", [UNHELD, FREED])
def test_a_lease_that_a_stranger_made_anew_gives_no_lead(calm, made):
    """Who acted under the old one may act still: who saw that one waits, whatever the new one says."""
    first = calm.add()
    calm.run(5 * SECOND)
    second = calm.add()
    calm.run(5 * SECOND)
    calm.do(ApiRequest("DELETE", PATH))
    calm.do(ApiRequest("POST", PATH.rpartition("/")[0], body=made))
    calm.run(5 * SECOND)
    assert first.candidate.reason == "nobody holds the Lease now"
    assert not calm.leaders
    calm.run(20 * SECOND)
    assert calm.leaders == [second]


def test_a_lease_without_a_holder_that_nobody_freed_is_waited_for(calm):
    """Somebody may have made it under one who acts, before we first looked."""
    calm.do(ApiRequest("DELETE", PATH))
    calm.do(ApiRequest("POST", PATH.rpartition("/")[0], body=UNHELD))
    first = calm.add()
    calm.run(12 * SECOND)
    assert not calm.leaders
    calm.run(15 * SECOND)
    assert calm.leaders == [first]


@pytest.mark.parametrize("anew", [True, False])
def test_a_write_is_to_the_very_lease_that_was_seen(calm, anew):
    """A write that lands late, after the Lease was deleted or made anew, changes nothing: it names the uid."""
    first = calm.add()
    calm.run(5 * SECOND)
    late = first.candidate.next(first.clock, 0)
    assert late.method == "PUT"
    calm.do(ApiRequest("DELETE", PATH))
    if anew:
        calm.do(ApiRequest("POST", PATH.rpartition("/")[0], body=FREED))
        del late.body["metadata"]["resourceVersion"]  # which alone refuses what is there, and makes what is not
    there = calm.do(ApiRequest("GET", PATH)).body
    assert calm.do(late).code == 409
    assert calm.do(ApiRequest("GET", PATH)).body == there


@pytest.mark.parametrize("seconds", [10**9, 60])
def test_a_foreign_lease_is_waited_for_as_long_as_it_says(calm, seconds):
    """Within reason."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": seconds}
    assert calm.do(ApiRequest("PATCH", PATH, body={"spec": spec}, content_type=MERGE_PATCH)).code == 200
    first = calm.add()
    calm.run(min(seconds * SECOND, MAX_DURATION) * 8 // 10)
    assert not calm.leaders
    calm.run(MAX_DURATION)
    assert calm.leaders == [first]


def test_transitions_are_counted(calm):
    """Once for each new holder, the first one among them, not for renewals."""
    first = calm.add()
    calm.run(60 * SECOND)
    second = calm.add()
    calm.do(first.candidate.release())
    calm.run(60 * SECOND)
    assert calm.leaders == [second]
    assert calm.do(ApiRequest("GET", PATH)).body["spec"]["leaseTransitions"] == 2


def test_where_there_is_no_lease_somebody_leads_after_one(calm):
    """It may have been deleted under somebody who acts; that nobody does shows after as long as a lease lasts."""
    calm.do(ApiRequest("DELETE", PATH))
    first = calm.add()
    calm.run(10 * SECOND)
    assert not calm.leaders
    assert "no Lease" in first.candidate.reason
    calm.run(20 * SECOND)
    assert calm.leaders == [first]


@pytest.mark.parametrize("wrong", [{"margin": 14 * SECOND}, {"duration": SECOND // 2}, {"renewal": 0}, {"margin": -1}])
def test_terms_that_leave_no_time_are_refused(wrong):
    """A leader must be able to renew."""
    with pytest.raises(InvalidArgument):
        Terms(**wrong)


def takes_at_once(self, seen, now):
    """Take what another one holds."""
    return True


def counts_from_the_answer(heard):
    """Act for a lease after the answer came, not after the write left."""

    def change(self, request, answer, sent, now):
        heard(self, request, answer, now + TERMS.margin, now)

    return change


def some_seeds():
    """Run some worlds with much trouble."""
    for seed in range(60):
        world = World(Random(seed), 0.6)
        for _ in range(3):
            world.add()
        world.run(400 * SECOND)


@pytest.mark.parametrize(
    ("name", "change"),
    [("_is_free", takes_at_once), ("heard", counts_from_the_answer(Candidate.heard))],
)
def test_planted_bugs_are_found(monkeypatch, name, change):
    """Each breaks the law within some seeds."""
    monkeypatch.setattr(Candidate, name, change)
    with pytest.raises(AssertionError, match="act"):
        some_seeds()
