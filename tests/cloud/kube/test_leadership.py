"""One leads at a time, whatever is lost, late or wrong; and when all is well again somebody does."""

import heapq
import itertools
from random import Random

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.leadership import MAX_DURATION, RELEASED, Candidate, CandidateStanding, Terms
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiResponse
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from profiles import examples
from raised import that

PATH = "/apis/coordination.k8s.io/v1/namespaces/iris/leases/iris-controller"
EPOCH = 1_800_000_000 * SECOND
TERMS = Terms()
COLLECTION = PATH.rpartition("/")[0]


def unheld():
    """Return a Lease that nobody holds, as anybody may make one."""
    return {"metadata": {"name": "iris-controller", "namespace": "iris"}, "spec": {}}


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
        return self.candidate.standing is CandidateStanding.LEADING and self.clock < self.candidate.acts_until

    def turn(self):
        """Ask, if nothing is under way."""
        self.candidate.look(self.clock)
        if self.candidate.standing is not CandidateStanding.OVER:
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
        self.free()
        self._heap, self._numbers = [], itertools.count()
        self.controllers = []

    def free(self):
        """Have a Lease that its last holder has freed."""
        lease = self.do(ApiRequest("POST", COLLECTION, body=unheld())).body
        freed = {"metadata": {"annotations": {RELEASED: lease["metadata"]["uid"]}}}
        assert self.do(ApiRequest("PATCH", PATH, body=freed, content_type=MERGE_PATCH)).code == 200

    def meddle(self):
        """Delete the Lease, and perhaps make it anew: nameless, with somebody's name, or as it was kept."""
        kept = self.do(ApiRequest("GET", PATH)).body
        self.do(ApiRequest("DELETE", PATH))
        made = unheld()
        match self.rng.randrange(4):
            case 0:
                return
            case 1:
                made["spec"] = {"holderIdentity": self.rng.choice(["somebody", "controller-0"])}
            case 2 if "spec" in kept:
                made["spec"] = kept["spec"]
                made["metadata"]["annotations"] = kept["metadata"].get("annotations", {})
        self.after(self.rng.randrange(3 * SECOND), self.do, ApiRequest("POST", COLLECTION, body=made))

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

    def settle(self, controller):
        """Let it lead, and hear of all that it asked."""
        self.run(5 * SECOND)
        while controller.busy:
            self.run(SECOND // 10)
        assert self.leaders == [controller]

    def add(self):
        """Start a controller."""
        name = f"controller-{len(self.controllers)}"
        self.controllers.append(Controller(self, name, self.rng.uniform(0.9, 1.1)))
        return self.controllers[-1]

    @property
    def leaders(self):
        """Who acts now."""
        return [each for each in self.controllers if each.acts]


@examples(8)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.6, 0.95]))
def test_never_two_and_at_last_one(seed, trouble):
    """Three controllers, one after another replaced when it is over; then all is well for a minute."""
    world = World(Random(seed), trouble)
    for _ in range(3):
        world.add()
    for _ in range(20):
        world.run(20 * SECOND)
        for _ in range(world.rng.choice([0, 0, 0, 1, 3])):
            world.after(world.rng.randrange(20 * SECOND), world.meddle)
        if all(each.candidate.standing is CandidateStanding.OVER for each in world.controllers):
            world.add()
    world.trouble = 0
    world.run(70 * SECOND)  # what was late has landed
    world.add()
    world.run(60 * SECOND)
    assert len(world.leaders) == 1
    leader = world.leaders[0]
    world.run(600 * SECOND)
    assert world.leaders == [leader], "a leader that is well goes on"


@pytest.mark.parametrize("answers", [(0, 0), (0, 4, 4, 4), (0, 1, 0, 4, 2), (4, 1, 4)])
def test_a_lease_counts_from_when_it_was_asked_for(answers):
    """Not from the answer: whoever takes over may have seen the write at any moment behind that (INV-F8).

    It is how long each answer takes: to the look, to the takeover, and to each renewal a second after the one before.
    """
    world = World(Random(1), 0.0)
    it = Candidate(PATH, "a")
    now = 1_000 * SECOND
    for seconds in answers:
        takes = seconds * SECOND
        now += SECOND
        request, sent = it.next(now, 0), now
        answer = world.do(request)
        now += takes
        it.heard(request, answer, sent, now)
        if request.method == "PUT":
            assert it.acts_until == sent + TERMS.duration - TERMS.margin, "neither more nor less"
    assert it.standing is CandidateStanding.LEADING


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
    assert first.candidate.standing is CandidateStanding.OVER
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
    assert first.candidate.standing is CandidateStanding.OVER
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


def test_where_there_is_no_lease_one_is_made_at_once_and_gives_no_lead(calm):
    """It may have been deleted under somebody who acts; that nobody does shows after as long as a lease lasts."""
    calm.do(ApiRequest("DELETE", PATH))
    first = calm.add()
    calm.run(3 * SECOND)
    assert not calm.do(ApiRequest("GET", PATH)).body["spec"].get("holderIdentity")
    calm.run(10 * SECOND)
    assert not calm.leaders
    assert "watched for as long as" in first.candidate.reason
    calm.run(9 * SECOND)
    assert calm.leaders == [first]


@pytest.mark.parametrize("holder", ["", "somebody", "controller-1"])
def test_a_lease_that_was_just_made_gives_no_lead(calm, holder):
    """Whomever it names, also who looks at it, and whatever it says of its last holder: that was another Lease's."""
    freed = calm.do(ApiRequest("GET", PATH)).body
    first = calm.add()
    calm.run(5 * SECOND)
    assert calm.leaders == [first]
    first.candidate.heard = lambda *_: None  # cut off, it acts for the rest of its time
    second = calm.add()
    calm.run(2 * SECOND)
    calm.do(ApiRequest("DELETE", PATH))
    made = {**unheld(), "spec": {"holderIdentity": holder} if holder else {}}
    made["metadata"]["annotations"] = freed["metadata"]["annotations"]
    assert calm.do(ApiRequest("POST", COLLECTION, body=made)).code == 201
    calm.run(12 * SECOND)
    assert not second.acts
    calm.run(20 * SECOND)
    assert calm.leaders == [second]


def test_a_leader_writes_to_the_lease_that_it_has_seen_only(calm):
    """By uid and version: one that was made anew meanwhile is read first."""
    first = calm.add()
    calm.settle(first)
    lease = calm.do(ApiRequest("GET", PATH)).body["metadata"]
    for request in (first.candidate.next(first.clock, 0), first.candidate.release()):
        assert request.method == "PUT"
        assert request.body["metadata"]["uid"] == lease["uid"]
        assert request.body["metadata"]["resourceVersion"] == lease["resourceVersion"]


def test_who_has_freed_it_says_so_of_this_lease(calm):
    """Whoever takes it takes that word back."""
    first = calm.add()
    calm.settle(first)
    calm.do(first.candidate.release())
    metadata = calm.do(ApiRequest("GET", PATH)).body["metadata"]
    assert metadata["annotations"] == {RELEASED: metadata["uid"]}
    second = calm.add()
    calm.run(5 * SECOND)
    assert calm.leaders == [second]
    assert not calm.do(ApiRequest("GET", PATH)).body["metadata"].get("annotations")


def test_a_leader_whose_name_is_taken_off_its_lease_ends(calm):
    """Somebody wants it to: it takes a nameless Lease only where its own was deleted."""
    first = calm.add()
    calm.run(5 * SECOND)
    calm.do(ApiRequest("PATCH", PATH, body={"spec": {"holderIdentity": None}}, content_type=MERGE_PATCH))
    calm.run(6 * SECOND)
    assert first.candidate.standing is CandidateStanding.OVER
    assert first.candidate.reason == "nobody holds the Lease now"


def test_an_answer_that_is_late_gives_nothing_back(calm):
    """Others may have led meanwhile, and be over."""
    first = calm.add()
    calm.run(5 * SECOND)
    candidate = first.candidate
    request, until = candidate.next(first.clock, 0), candidate.acts_until
    candidate.heard(request, calm.do(request), until - SECOND, until)
    assert candidate.standing is CandidateStanding.OVER
    assert candidate.next(until, 0) is None


@pytest.mark.parametrize("wrong", [{"margin": 14 * SECOND}, {"duration": SECOND // 2}, {"renewal": 0}, {"margin": -1}])
def test_terms_that_leave_no_time_are_refused(wrong):
    """A leader must be able to renew."""
    with pytest.raises(InvalidArgument):
        Terms(**wrong)


def takes_what_nobody_holds(self, seen, now):
    """Take a Lease without a name, though it may be a new one."""
    return not seen.holder or now - seen.at >= TERMS.duration


def leads_by_making_it(self):
    """Make a Lease that names its maker, who may act at once."""
    return self._lease(0, None)


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
        for _ in range(20):
            world.after(world.rng.randrange(400 * SECOND), world.meddle)
        for _ in range(20):
            world.run(20 * SECOND)
            if all(each.candidate.standing is CandidateStanding.OVER for each in world.controllers):
                world.add()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_is_free", takes_at_once),
        ("_is_free", takes_what_nobody_holds),
        ("_nameless", leads_by_making_it),
        ("heard", counts_from_the_answer(Candidate.heard)),
    ],
)
def test_planted_bugs_are_found(monkeypatch, name, change):
    """Each breaks the law within some seeds."""
    monkeypatch.setattr(Candidate, name, change)
    with pytest.raises(AssertionError, check=that(names="act")):
        some_seeds()
