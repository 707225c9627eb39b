"""Collections: order, history, and states of the past."""

from hypothesis import given, strategies as st

from iriscw_sims.kube import collection as module
from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.core_kinds import CONFIG_MAP
from iriscw_sims.kube.crds import kinds_of
from iriscw_sims.kube.frozen import freeze

STEPS = st.lists(st.tuples(st.sampled_from(["a/x", "a-b/x", "a/y", "b/x"]), st.booleans()), max_size=30)


def run(steps):
    """Return a collection after puts (True) and removals, and its state after each revision."""
    collection = Collection(CONFIG_MAP, 0)
    states = [{}]
    for revision, (key, put) in enumerate(steps, 1):
        item = freeze({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": str(revision)}})
        if put:
            collection.put(key, item, revision)
        elif key in collection.objects:
            collection.remove(key, item, revision)
        states.append(dict(collection.objects))
    return collection, states


@given(STEPS)
def test_every_past_state_can_be_told(steps):
    """Law: undoing the history gives each state that was."""
    collection, states = run(steps)
    for revision, state in enumerate(states):
        assert dict(collection.at(revision, "")) == state
        assert dict(collection.at(revision, "a/")) == {k: v for k, v in state.items() if k.startswith("a/")}


@given(STEPS)
def test_keys_are_sorted_and_spans_are_prefixes(steps):
    """Law: keys stand in etcd's order, and a span is what begins with its prefix, from a key on."""
    collection, _ = run(steps)
    assert collection.keys == sorted(collection.objects)
    for prefix in ("", "a/", "a-b/", "c/"):
        low, high = collection.span(prefix)
        assert collection.keys[low:high] == [key for key in collection.keys if key.startswith(prefix)]
    low, high = collection.span("a/", "a/x\0")
    assert collection.keys[low:high] == [key for key in collection.keys if key.startswith("a/") and key > "a/x"]


@given(STEPS, st.integers(0, 30))
def test_events_since_a_revision_lead_from_then_to_now(steps, revision):
    """Law: a state and the events since it give the present."""
    collection, states = run(steps)
    revision = min(revision, len(states) - 1)
    state = dict(states[revision])
    for event in collection.since(revision):
        assert event.old == state.get(event.key)
        if event.deleted:
            del state[event.key]
        else:
            state[event.key] = event.new
    assert state == collection.objects


def test_compaction_moves_the_horizon_forward_only():
    """What is before it is forgotten."""
    collection, _ = run([("a/x", True), ("a/y", True), ("a/x", False)])
    collection.compact(2)
    assert collection.horizon == 2
    assert [event.revision for event in collection.since(2)] == [3]
    collection.compact(1)
    assert collection.horizon == 2


def test_the_history_is_bounded(monkeypatch):
    """The oldest half goes when it is twice as long as its limit."""
    monkeypatch.setattr(module, "HISTORY_LIMIT", 5)
    collection, _ = run([("a/x", True)] * 23)
    assert len(collection.events) < 10
    assert collection.horizon + 1 == collection.events[0].revision
    assert len(collection.since(collection.horizon)) == len(collection.events)


def test_entries_of_built_in_kinds_have_no_kind():
    """The list says it once; custom resources say it each."""
    collection, _ = run([("a/x", True)])
    assert collection.entry("a/x") == {"metadata": {"resourceVersion": "1"}}
    assert collection.entry("a/x") is collection.entry("a/x")
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"kind": "W", "plural": "ws"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "t.dev", "scope": "Cluster", "names": names, "versions": [version]}
    custom = Collection(kinds_of(freeze({"spec": spec}))[0], 0)
    item = freeze({"kind": "W", "apiVersion": "t.dev/v1", "metadata": {}})
    custom.put("w", item, 1)
    assert custom.entry("w") is item
