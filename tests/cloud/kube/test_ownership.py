"""Nothing is made twice, adopted from others, or deleted from them; and tests that a driver without these rules fails.

The same attacks are run against the driver and against drivers with a planted bug.
"""

from random import Random

import pytest
from kube_shell import LOST, OK, POOLS, SECOND, SETTINGS, SILENT, pool_spec, refusal

from iriscw.cloud.kube import calls, ownership
from iriscw.cloud.kube.manifests import nodepool_manifest
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
    CloudError,
    Conflict,
    Gone,
    Unavailable,
)

PATH = f"{POOLS}/slice-1"


def create(server, fates=(), **labels):
    """Create a pool, and give its metadata."""
    manifest = nodepool_manifest(SETTINGS, pool_spec(**labels))
    found, _ = server.run(ownership.create(SETTINGS, POOLS, manifest, (LABEL_SLICE,), Random(1)), fates)
    return found["metadata"]


def delete(server, uid, fates=()):
    """Delete it."""
    server.run(ownership.delete(SETTINGS, POOLS, "slice-1", uid, {}, Random(1)), fates)


def refused(error, function, *args, **more):
    """Tell whether a call is refused so."""
    try:
        function(*args, **more)
    except error:
        return True
    except CloudError:
        return False
    return False


def while_deleting(server, change):
    """Let somebody else act between the look and the deletion."""

    def act(request):
        if request.method == "DELETE":
            server.before = None
            change()

    server.before = act


def adopts_nothing(server):
    """A name that another slice has is not given away."""
    create(server)
    assert refused(Conflict, create, server, **{LABEL_SLICE: "other"}), "it adopted another's pool"


def crosses_no_cluster(server):
    """Nor one of another cluster."""
    create(server, **{LABEL_CLUSTER: "another"})
    assert refused(Conflict, create, server), "it adopted another cluster's pool"


def repeats_what_was_lost(server):
    """An answer that was lost is asked for again."""
    assert create(server, [SILENT, LOST])["uid"] == server.objects(POOLS)[0]["metadata"]["uid"]


def spares_the_successor(server):
    """Deleted and made anew between look and deletion: the new one stays."""
    uid = create(server)["uid"]

    def replace():
        server.do("DELETE", PATH)
        server.do("POST", POOLS, nodepool_manifest(SETTINGS, pool_spec()))

    while_deleting(server, replace)
    assert refused(Gone, delete, server, uid), "it did not say what became of it"
    assert server.objects(POOLS), "it deleted the successor"


def spares_what_changed_hands(server):
    """Given to the controller between look and deletion: it stays."""
    uid = create(server)["uid"]
    while_deleting(server, lambda: server.do("PATCH", PATH, {"metadata": {"labels": {LABEL_ROLE: ROLE_CONTROLLER}}}))
    assert refused(Conflict, delete, server, uid), "it deleted what carries the controller"


def spares_the_controller(server):
    """What carries the controller is not even asked for."""
    uid = create(server, **{LABEL_ROLE: ROLE_CONTROLLER})["uid"]
    assert refused(Conflict, delete, server, uid), "it deleted the controller"


def deletes_in_spite_of_others(server):
    """Its status is written meanwhile: judged again, and deleted."""
    uid = create(server)["uid"]
    while_deleting(server, lambda: server.do("PATCH", PATH, {"metadata": {"annotations": {"a": "1"}}}))
    assert not refused(CloudError, delete, server, uid), "it gave up"
    assert not server.objects(POOLS), "it deleted nothing"


def tells_gone_from_conflict(server):
    """No such uid is Gone, never Conflict."""
    create(server)
    assert refused(Gone, delete, server, "another uid"), "it did not say Gone"


def waits_as_asked(server):
    """Retry-After is the least pause."""
    create(server, [refusal(429, retry_after=4 * SECOND), OK])
    assert server.pauses == [4 * SECOND], "it did not wait as it was asked to"


def posts_once(server):
    """What must not exist twice is posted again only after an answer that says that nothing was made."""
    manifest = nodepool_manifest(SETTINGS, pool_spec())

    def make(*fates):
        call = ownership.create(SETTINGS, POOLS, manifest, (LABEL_SLICE,), Random(1), once=True)
        return server.run(call, fates)[0]["metadata"]["uid"]

    for unknown in (LOST, refusal(500), refusal(504)):
        assert refused(Unavailable, make, unknown), "it repeated what may land late"
        for then in (refusal(403), refusal(429, retry_after=3600 * SECOND)):
            assert refused(Unavailable, make, unknown, then), "it said that nothing was made"
    assert not server.objects(POOLS)
    made = make(refusal(429), SILENT)
    assert refused(Unavailable, make, OK, refusal(403)), "what it could not look at it called not there"
    assert made == server.objects(POOLS)[0]["metadata"]["uid"], "it did not look whether it landed"


ATTACKS = (
    posts_once,
    adopts_nothing,
    crosses_no_cluster,
    repeats_what_was_lost,
    spares_the_successor,
    spares_what_changed_hands,
    spares_the_controller,
    deletes_in_spite_of_others,
    tells_gone_from_conflict,
    waits_as_asked,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_driver_stands_every_attack(server, attack):
    """Each of them states a rule."""
    attack(server)


def asking(change):
    """Give a way to ask that changes each request."""

    def ask(settings, request, rng, *, once=False):
        return calls.ask(settings, change(request), rng, once=once)

    return ask


def without_preconditions(*names):
    """Drop preconditions from deletions."""

    def change(request):
        if request.method != "DELETE":
            return request
        kept = {name: value for name, value in request.body["preconditions"].items() if name not in names}
        return ApiRequest(request.method, request.path, body={**request.body, "preconditions": kept})

    return asking(change)


def gives_up(settings, request, rng, *, once=False):
    """Ask without a second attempt."""
    response = yield request
    return response


def give_away(name, wanted, holder, same):
    """Compare nothing."""


def compare_slices_only(name, wanted, holder, same):
    """Forget that there are other clusters."""
    if holder["metadata"]["labels"].get(LABEL_SLICE) != wanted.get(LABEL_SLICE):
        raise Conflict("another")


def tireless(settings, request, rng, *, once=False):
    """Repeat what may have had its effect."""
    return calls.ask(settings, request, rng)


def calls_it_taken(settings, path, rng):
    """Never look who has a name: a slice under another name would do, so no seed minds."""
    raise Conflict("it is taken")
    yield


def hasty(settings, request, rng, *, once=False):
    """Ask again at once."""
    step = calls.ask(settings, request, rng, once=once)
    wanted = next(step)
    while True:
        try:
            answer = (yield wanted) if isinstance(wanted, ApiRequest) else None
            wanted = step.send(answer)
        except StopIteration as done:
            return done.value


def owns_everything(cluster, labels):
    """Judge nobody's labels."""


PLANTED = [
    ("_compare", give_away, adopts_nothing),
    ("_compare", compare_slices_only, crosses_no_cluster),
    ("ask", gives_up, repeats_what_was_lost),
    ("ask", without_preconditions("uid", "resourceVersion"), spares_the_successor),
    ("ask", without_preconditions("resourceVersion"), spares_what_changed_hands),
    ("check_ours", owns_everything, spares_the_controller),
    ("ask", tireless, posts_once),
    ("_holder", calls_it_taken, repeats_what_was_lost),
    ("MAX_ROUNDS", 1, deletes_in_spite_of_others),
    ("ask", hasty, waits_as_asked),
]


@pytest.mark.parametrize(("name", "bug", "attack"), PLANTED)
def test_planted_bugs_are_found(monkeypatch, server, name, bug, attack):
    """Each falls to its attack."""
    monkeypatch.setattr(ownership, name, bug)
    with pytest.raises((AssertionError, CloudError)):
        attack(server)
