"""Watches show the truth as values of the model, joined, and each change that means something once."""

from random import Random

import pytest
from hypothesis import given, strategies as st
from kube_shell import NODES, PODS, POOLS, SECOND, SETTINGS as CALLS, node_body, pod_spec, pool_spec, refusal
from kube_watcher import FAULTS, SETTINGS, Watcher

from iriscw.cloud.kube import watching as module
from iriscw.cloud.kube.exchange import CloseWatch, Fail, Fetched, FetchObjects, OpenWatch, Show, WatchItem
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.pods import create_pod, list_pods
from iriscw.cloud.kube.pools import create_pool, list_pools
from iriscw.cloud.kube.watching import PodWatch, PoolWatch
from iriscw.cloud.model import Forbidden, PodPhase, Relisted, Removed, Upserted
from profiles import examples

TROUBLED, QUIET = 300 * SECOND, 150 * SECOND
RATES = st.dictionaries(st.sampled_from(FAULTS), st.sampled_from([0.02, 0.1, 0.3]), max_size=6)
HARSH = dict.fromkeys(FAULTS, 0.1)


class Fleet:
    """Random changes to pools, their nodes and pods."""

    def __init__(self, watcher):
        self.watcher, self.server = watcher, watcher.server
        self.rng = Random(watcher.rng.random())

    def begin(self, span):
        at = 0
        while at < span:
            at += self.rng.randrange(1, 6 * SECOND)
            self.watcher.after(at, self.change)

    def there(self, path):
        return {item["metadata"]["name"]: item for item in self.server.objects(path)}

    def change(self):
        rng = self.rng
        what = rng.choice((self.change_pool, self.change_node, self.change_node, self.change_pod))
        what(f"s{rng.randrange(3)}")

    def change_pool(self, name):
        if name not in self.there(POOLS):
            self.server.run(create_pool(CALLS, pool_spec(name), Random(1)))
        elif self.rng.random() < 0.3:
            self.server.do("DELETE", f"{POOLS}/{name}")
        else:
            conditions = [{"type": self.rng.choice(("Quota", "Weather")), "status": "True", "reason": "Under"}]
            status = {"currentNodes": self.rng.randrange(3), "conditions": conditions}
            self.server.do("PATCH", f"{POOLS}/{name}/status", {"status": status})

    def change_node(self, slice_id):
        name = f"n{self.rng.randrange(4)}"
        if name not in self.there(NODES):
            self.server.do("POST", NODES, node_body(name, slice_id))
        elif self.rng.random() < 0.2:
            self.server.do("DELETE", f"{NODES}/{name}")
        elif self.rng.random() < 0.2:
            self.server.do("PATCH", f"{NODES}/{name}", {"metadata": {"labels": {"iris-slice-id": slice_id}}})
        else:
            ready = [{"type": "Ready", "status": self.rng.choice(("True", "False", "Unknown"))}]
            self.server.do("PATCH", f"{NODES}/{name}/status", {"status": {"conditions": ready}})

    def change_pod(self, slice_id):
        name = f"{slice_id}-0"
        if name not in self.there(PODS):
            self.server.do("POST", PODS, {**POD, "metadata": {**POD["metadata"], "name": name}})
        elif self.rng.random() < 0.3:
            self.server.do("DELETE", f"{PODS}/{name}")
        else:
            phase = self.rng.choice(("Pending", "Running", "Failed"))
            self.server.do("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase}})

    def truth(self, kind):
        """Return what the cloud is, read without a watch."""
        call = list_pools if kind is PoolWatch else list_pods
        return {thing.name: thing for thing in self.server.run(call(CALLS, {}, Random(1)))}


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"iris-managed": "true", "iris-cluster": "test"}},
    "spec": {"containers": [{"name": "worker", "image": "x"}]},
}


def added_up(shown):
    """Check the order of what was shown, and give what it adds up to."""
    events = [action.event for action in shown]
    assert isinstance(events[0], Relisted)
    assert not any(isinstance(event, Relisted) for event in events[1:])
    view = {thing.name: thing for thing in events[0].objects}
    assert list(view) == sorted(view)
    for event in events[1:]:
        thing = event.object
        if isinstance(event, Removed):
            assert view.pop(thing.name).uid == thing.uid, "what was removed was not there"
        else:
            assert view.get(thing.name) != thing, "shown without a change"
            assert view.get(thing.name, thing).uid == thing.uid, "a successor before the end of its predecessor"
            view[thing.name] = thing
    return view


def live(kind, seed, rates):
    """Run a troubled life, then a quiet one; check the laws."""
    watcher = Watcher(kind(SETTINGS, {}), seed=seed, rates=rates)
    fleet = Fleet(watcher)
    fleet.begin(TROUBLED)
    watcher.start()
    watcher.run(TROUBLED)
    watcher.rates = {}
    watcher.run(QUIET)
    assert added_up(watcher.shown) == fleet.truth(PodWatch if issubclass(kind, PodWatch) else PoolWatch), (
        "not the truth"
    )
    return watcher


@pytest.mark.parametrize("kind", [PoolWatch, PodWatch])
@given(seed=st.integers(0, 2**32), rates=RATES)
@examples(12)
def test_after_faults_end_what_was_shown_is_the_truth(kind, seed, rates):
    """The same as a plain list would say; whatever failed on the way."""
    live(kind, seed, rates)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [PoolWatch, PodWatch])
@given(seed=st.integers(0, 2**32), rates=RATES)
def test_after_faults_end_what_was_shown_is_the_truth_at_length(kind, seed, rates):
    """The same, for long."""
    live(kind, seed, rates)


# Bugs that the laws must find


class ForgetsNodes(PoolWatch):
    """A pool is not told anew when one of its nodes changes."""

    def _seen(self, source, thing):
        touched = super()._seen(source, thing)
        return touched if source == "pools" else ()


class KeepsNodes(PoolWatch):
    """A node that is gone stays."""

    def _read(self, source, actions):
        if source == "nodes":
            actions = [action for action in actions if not isinstance(action, module.Vanished)]
        return super()._read(source, actions)


class ShowsHeartbeats(PoolWatch):
    """Shows what means nothing."""

    def _show(self, touched):
        names = dict.fromkeys((*touched, *self._shown))
        self._shown.clear()
        return super()._show(names)


class LeaksThePast(PodWatch):
    """Does not tell what is gone."""

    def _read(self, actions):
        return super()._read([action for action in actions if not isinstance(action, module.Vanished)])


def broken_law(seed, kind):
    """Live one life; give what a law says about it, or nothing."""
    try:
        live(kind, seed, HARSH)
    except AssertionError as broken:
        return str(broken)
    return ""


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (ForgetsNodes, "not the truth"),
        (KeepsNodes, "not the truth"),
        (ShowsHeartbeats, "shown without a change"),
        (LeaksThePast, "a successor before the end"),
    ],
)
def test_planted_bugs_are_found(kind, law):
    """Each breaks its law within a few lives."""
    found = next(filter(None, (broken_law(seed, kind) for seed in range(20))), None)
    assert found is not None
    assert law in found


# One thing at a time


def listing(watch, name, *objects, version="10"):
    """Answer the list of one source of a watch that was just started."""
    body = {"metadata": {"resourceVersion": version}, "items": list(objects)}
    return watch.on(Fetched((name, 1), ApiResponse(200, body)), 0, Random(1))


def thing(name, **more):
    """Return an object of the slice ``s``."""
    labels = {"iris-slice-id": "s"}
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "1", "labels": labels}, **more}


def shown(actions):
    """Return what was shown."""
    return [action.event for action in actions if isinstance(action, Show)]


@pytest.mark.parametrize("order", [("pools", "nodes"), ("nodes", "pools")])
def test_nothing_is_shown_until_both_have_listed(order):
    """Then everything, nodes included, whichever came first."""
    watch = PoolWatch(SETTINGS, {})
    watch.start(0, Random(1))
    objects = {"pools": thing("p"), "nodes": thing("n")}
    first, second = order
    assert shown(listing(watch, first, objects[first])) == []
    (relisted,) = shown(listing(watch, second, objects[second]))
    assert [(pool.name, [node.name for node in pool.nodes]) for pool in relisted.objects] == [("p", ["n"])]


def open_watch():
    """Return a watch with one pool and one node, and the tokens of its two connections."""
    watch = PoolWatch(SETTINGS, {})
    watch.start(0, Random(1))
    actions = [*listing(watch, "pools", thing("p")), *listing(watch, "nodes", thing("n"))]
    tokens = {action.token[0]: action.token for action in actions if isinstance(action, OpenWatch)}
    return watch, tokens


def tell(watch, token, kind, obj, version):
    """Tell an event."""
    obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
    return shown(watch.on(WatchItem(token, {"type": kind, "object": obj}), 0, Random(1)))


def test_a_node_that_changes_changes_its_pool_and_a_heartbeat_does_not():
    """Only what is read differently is shown."""
    watch, tokens = open_watch()
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    (event,) = tell(watch, tokens["nodes"], "MODIFIED", thing("n", **ready), "2")
    assert isinstance(event, Upserted)
    assert event.object.ready_nodes == 1
    assert tell(watch, tokens["nodes"], "MODIFIED", thing("n", **ready), "3") == []
    (event,) = tell(watch, tokens["nodes"], "DELETED", thing("n", **ready), "4")
    assert event.object.nodes == ()


def test_a_pool_that_goes_is_removed_with_the_nodes_it_had():
    """As it was last seen."""
    watch, tokens = open_watch()
    (event,) = tell(watch, tokens["pools"], "DELETED", thing("p"), "5")
    assert isinstance(event, Removed)
    assert (event.object.resource_version, [node.name for node in event.object.nodes]) == ("5", ["n"])


def test_one_failure_ends_both():
    """The other connection is let go of, and nothing comes after."""
    watch, tokens = open_watch()
    error = {"type": "ERROR", "object": refusal(403, "Forbidden").body}
    actions = watch.on(WatchItem(tokens["nodes"], error), 0, Random(1))
    assert [type(action) for action in actions] == [CloseWatch, CloseWatch, Fail]
    assert isinstance(actions[-1].error, Forbidden)
    assert watch.on(WatchItem(tokens["pools"], {"type": "DELETED", "object": thing("p")}), 0, Random(1)) == []


def test_stopping_lets_go_of_connections():
    """Of both."""
    watch, tokens = open_watch()
    assert sorted(action.token for action in watch.stop()) == sorted(tokens.values())


def test_a_pod_is_shown_as_it_lives():
    """From its appearance to its end."""
    watch = PodWatch(SETTINGS, {})
    (fetch,) = watch.start(0, Random(1))
    assert isinstance(fetch, FetchObjects)
    actions = listing(watch, "pods", thing("a"))
    assert [pod.phase for pod in shown(actions)[0].objects] == [PodPhase.PENDING]
    token = next(action.token for action in actions if isinstance(action, OpenWatch))
    (event,) = tell(watch, token, "MODIFIED", thing("a", status={"phase": "Running"}), "2")
    assert (type(event), event.object.phase) == (Upserted, PodPhase.RUNNING)
    (event,) = tell(watch, token, "DELETED", thing("a", status={"phase": "Failed"}), "3")
    assert (type(event), event.object.phase) == (Removed, PodPhase.FAILED)


def test_unknown_words_are_counted_in_bounded_memory(monkeypatch):
    """Each word by itself, and those beyond the limit together."""
    monkeypatch.setattr(module, "MAX_UNKNOWN", 2)
    watch = PodWatch(SETTINGS, {})
    watch.start(0, Random(1))
    listing(watch, "pods", *(thing(f"p{number}", status={"phase": f"New{number}"}) for number in range(5)))
    assert watch.statistics.unknown == (("others", 3), ("phase New0", 1), ("phase New1", 1))
    assert watch.statistics.shown == 1
    assert watch.statistics.sources["pods"].objects == 5


def test_pods_and_pools_of_the_driver_are_seen(server):
    """What the calls make is what the watches show."""
    server.run(create_pool(CALLS, pool_spec(), Random(1)))
    server.run(create_pod(CALLS, pod_spec(), Random(1)))
    for kind, name in ((PoolWatch, "slice-1"), (PodWatch, "slice-1-0")):
        watcher = Watcher(kind(SETTINGS, {"iris-cluster": "test"}), server)
        watcher.start()
        watcher.run(10 * SECOND)
        assert [each.name for each in watcher.shown[0].event.objects] == [name]
