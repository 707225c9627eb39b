"""Which keys every driver takes."""

import pytest
from hypothesis import given, strategies as st

from iriscw.objects.ports import MAX_KEY_BYTES, InvalidObjectKey, check_key
from iriscw.testing.conformance.object_store import BAD_KEYS


@given(st.text())
def test_a_key_is_refused_or_a_safe_relative_path(key: str) -> None:
    """No accepted key can leave a folder, whatever it is joined to."""
    try:
        parts = check_key(key)
    except InvalidObjectKey:
        return
    assert "/".join(parts) == key
    assert len(key.encode()) <= MAX_KEY_BYTES
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)


@pytest.mark.parametrize("key", [*BAD_KEYS, ".iriscw-lock", "a/.iriscw-unfinished/b", "é" * 128])
def test_keys_that_are_refused(key: str) -> None:
    """Empty, absolute, climbing, too long or ours."""
    with pytest.raises(InvalidObjectKey):
        check_key(key)


def test_lengths_are_counted_in_bytes() -> None:
    """A part may have 255 bytes and a key 1024, as UTF-8."""
    assert check_key("é" * 127 + "x") == ("é" * 127 + "x",)
    assert len(check_key("/".join(["x" * 255] * 4))) == 4
