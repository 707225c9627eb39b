"""Listings agree with their definition, whatever the page."""

from hypothesis import given, strategies as st
from objects_world import asker, made

from iriscw_sims.objects.listing import common_prefix
from iriscw_sims.objects.messages import ListObjectsV2, PutObject

KEYS = st.lists(st.text("ab/é-", min_size=1, max_size=6), unique=True, max_size=12)
TEXT = st.text("ab/é-", max_size=3)
DELIMITER = st.sampled_from(["", "/", "a", "é-"])


def filled(keys):
    """Return a function that asks a storage with these keys."""
    ask = asker(made())
    for key in keys:
        assert ask(PutObject(key)).ok
    return ask


def entries_of(page):
    """Return the entries of a page in one order."""
    return sorted([*(head.key for head in page.objects), *page.common_prefixes], key=str.encode)


def defined(keys, prefix, delimiter, start_after):
    """Return the entries of a whole listing, by its definition."""
    found = {}
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix) or key.encode() <= start_after.encode():
            continue
        place = key.find(delimiter, len(prefix)) if delimiter else -1
        rolled = key[: place + len(delimiter)] if place >= 0 else ""
        if not rolled or rolled != start_after:
            found[rolled or key] = bool(rolled)
    return found


@given(KEYS, TEXT, DELIMITER, TEXT, st.integers(1, 4))
def test_pages_join_to_the_definition(keys, prefix, delimiter, start_after, limit):
    """Objects and common prefixes come once each, in order, in full pages but for the last."""
    ask = filled(keys)
    expected = defined(keys, prefix, delimiter, start_after)
    found, token = [], ""
    while True:
        answer = ask(ListObjectsV2(prefix, delimiter, start_after, token, limit))
        page = answer.result
        assert all(not expected[head.key] for head in page.objects)
        assert all(expected[each] for each in page.common_prefixes)
        found += entries_of(page)
        assert len(found) <= len(expected)
        token = page.next_token
        if not token:
            break
        assert len(entries_of(page)) == limit
    assert found == [*expected]


def test_common_prefixes():
    """The first delimiter behind the prefix counts, and is part of what is shown."""
    assert common_prefix(b"a/b/c", b"", b"/") == b"a/"
    assert common_prefix(b"a/b/c", b"a/", b"/") == b"a/b/"
    assert common_prefix(b"a/b", b"a/", b"/") == b""
    assert common_prefix(b"b/c", b"a", b"/") == b""
    assert common_prefix(b"a/b", b"", b"") == b""


def test_limits_of_a_page():
    """None asked for is an empty last page; too many are 1000; less than none is refused."""
    ask = filled([f"k{number:04}" for number in range(1001)])
    assert ask(ListObjectsV2(max_keys=0)).result.next_token == ""
    page = ask(ListObjectsV2(max_keys=5000)).result
    assert (len(page.objects), bool(page.next_token)) == (1000, True)
    assert ask(ListObjectsV2(max_keys=-1)).code == "InvalidArgument"


def test_tokens_are_only_good_as_given():
    """A token that nobody gave out is refused; it wins over where to start."""
    ask = filled(["a", "b", "c"])
    token = ask(ListObjectsV2(max_keys=1)).result.next_token
    page = ask(ListObjectsV2(start_after="b", continuation_token=token)).result
    assert [head.key for head in page.objects] == ["b", "c"]
    for wrong in ("!", "abc", "_w=="):
        assert ask(ListObjectsV2(continuation_token=wrong)).code == "InvalidArgument"


def test_keys_that_end_with_the_delimiter():
    """They are rolled up like all others; behind the prefix itself they are objects."""
    ask = filled(["a/", "a/b"])
    assert ask(ListObjectsV2(delimiter="/")).result.common_prefixes == ("a/",)
    assert [head.key for head in ask(ListObjectsV2("a/", "/")).result.objects] == ["a/", "a/b"]
