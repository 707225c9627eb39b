"""A view is told news once, whatever is repeated."""

from hypothesis import given, strategies as st

from iriscw.cloud.kube import view as module
from iriscw.cloud.kube.exchange import ItemChanged, Vanished
from iriscw.cloud.kube.view import View


def thing(name="a", uid="u1", version="1"):
    """Return an object."""
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": version}}


KEY = ("", "a")


def test_news_is_told_once():
    """The same version again, or one that was seen before, says nothing."""
    view = View()
    assert view.changed(KEY, thing(version="1")) == [ItemChanged(thing(version="1"))]
    assert view.changed(KEY, thing(version="2")) == [ItemChanged(thing(version="2"))]
    assert view.changed(KEY, thing(version="2")) is None
    assert view.changed(KEY, thing(version="1")) is None
    assert view.objects == {KEY: thing(version="2")}


def test_a_successor_ends_its_predecessor():
    """Another uid under the name: first the end of the one, then the other; the first does not come back."""
    view = View()
    view.changed(KEY, thing())
    assert view.changed(KEY, thing(uid="u2", version="5")) == [
        Vanished(thing()),
        ItemChanged(thing(uid="u2", version="5")),
    ]
    assert view.changed(KEY, thing(version="3")) is None
    assert view.vanished(KEY, thing(version="4")) == []
    assert view.objects == {KEY: thing(uid="u2", version="5")}


def test_what_vanished_is_told_once_and_may_come_back():
    """It left the selection, and entered it again, at another version; what is late is not believed."""
    view = View()
    view.changed(KEY, thing())
    assert view.vanished(KEY, thing(version="2")) == [Vanished(thing(version="2"))]
    assert view.vanished(KEY, thing(version="2")) is None
    assert view.changed(KEY, thing(version="1")) is None
    assert view.changed(KEY, thing(version="3")) == [ItemChanged(thing(version="3"))]
    assert view.vanished(KEY, thing(version="2")) is None
    assert view.objects == {KEY: thing(version="3")}


def test_an_end_at_the_last_version_is_an_end():
    """Not every server gives the end a version of its own."""
    view = View()
    view.changed(KEY, thing())
    assert view.vanished(KEY, thing()) == [Vanished(thing())]


def test_tombstones_are_bounded(monkeypatch):
    """The oldest are forgotten."""
    monkeypatch.setattr(module, "MAX_TOMBSTONES", 3)
    view = View()
    for number in range(10):
        one = thing(f"n{number}", f"u{number}", str(number))
        view.changed(("", f"n{number}"), one)
        view.vanished(("", f"n{number}"), one)
    assert len(view._tombstones) == 3
    assert view.changed(("", "n9"), thing("n9", "u9", "9")) is None


THINGS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from("xy"), st.integers(1, 3)))


@given(st.lists(THINGS, max_size=6))
def test_lists_are_told_as_differences(lists):
    """What is told turns the earlier list into the later one, and nothing else is told."""
    view, told = View(), {}
    for found in lists:
        objects = {("", name): thing(name, f"{name}{uid}", f"{uid}{version}") for name, (uid, version) in found.items()}
        for action in view.replace(objects):
            key = ("", action.object["metadata"]["name"])
            if isinstance(action, Vanished):
                assert told.pop(key) == action.object
            else:
                assert told.get(key) != action.object
                told[key] = action.object
        assert told == view.objects == objects
