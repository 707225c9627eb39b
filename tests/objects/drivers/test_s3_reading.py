"""What an answer to a GET says about itself."""

import pytest

from iriscw.objects.drivers.s3_reading import spans
from iriscw.objects.ports import ObjectInfo, StoreUnreachable


def test_spans() -> None:
    """The whole object, or the range that came and the whole object's length."""
    whole = {"ContentLength": 10, "ETag": '"e"'}
    assert spans("k", whole) == (ObjectInfo("k", 10, "e"), 0, 10)
    part = {"ContentLength": 3, "ETag": '"e"', "ContentRange": "bytes 2-4/10"}
    assert spans("k", part) == (ObjectInfo("k", 10, "e"), 2, 5)


@pytest.mark.parametrize("said", ["bytes 2-4/*", "2-4/10", "bytes 2-5/10", ""])
def test_answers_that_contradict_themselves(said: str) -> None:
    """Are no answers: some servers send wrong ranges."""
    with pytest.raises(StoreUnreachable):
        spans("k", {"ContentLength": 3, "ETag": '"e"', "ContentRange": said})
