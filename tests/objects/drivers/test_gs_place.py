"""Where a gs:// store is: what a URL and the environment say."""

import pytest

from iriscw.objects.drivers.errors import InvalidStoreUrl
from iriscw.objects.drivers.gs_place import GOOGLE, GsLimits, GsPlace, gs_place
from raised import that


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("gs://bucket", GsPlace("bucket", "")),
        ("gs://bucket/", GsPlace("bucket", "")),
        ("gs://my_bucket.example.com/a/b%20c/", GsPlace("my_bucket.example.com", "a/b%20c/")),
    ],
)
def test_urls(url, place) -> None:
    """A bucket, and a prefix as it is written."""
    assert gs_place(url, {}) == place
    assert (place.endpoint, place.anonymous) == (GOOGLE, False)


@pytest.mark.parametrize(
    "url",
    ["gs:bucket", "gs://", "gs://B", "gs://a..b", "gs://bucket/a//b", "gs://bucket?x=y", "gs://bucket/#x", "s3://b"],
)
def test_what_is_no_store(url) -> None:
    """Is said to be none."""
    with pytest.raises(InvalidStoreUrl):
        gs_place(url, {})


def test_secrets_are_not_shown() -> None:
    """Who writes a key into an address does not find it in the log."""
    with pytest.raises(InvalidStoreUrl) as raised:
        gs_place("gs://key:secret@bucket", {})
    assert "secret" not in str(raised.value)
    with pytest.raises(InvalidStoreUrl) as raised:
        gs_place("gs://bucket", {"STORAGE_EMULATOR_HOST": "http://key:secret@host"})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "endpoint"),
    [
        ("localhost:4443", "http://localhost:4443"),
        ("http://127.0.0.1:4443/", "http://127.0.0.1:4443"),
        ("https://gcs.example", "https://gcs.example"),
        ("http://[::1]:4443", "http://[::1]:4443"),
    ],
)
def test_emulators(said, endpoint) -> None:
    """Are asked without credentials, as Google's own libraries do."""
    place = gs_place("gs://bucket/x", {"STORAGE_EMULATOR_HOST": said})
    assert place == GsPlace("bucket", "x/", endpoint, anonymous=True)
    assert str(place) == f"gs://bucket/x/ at {endpoint}"


@pytest.mark.parametrize("said", ["ftp://host", "http://", "http://host/path", "host:port", "http://host?x"])
def test_what_is_no_emulator(said) -> None:
    """Is said to be none, and by which variable."""
    with pytest.raises(InvalidStoreUrl, check=that(names="STORAGE_EMULATOR_HOST")):
        gs_place("gs://bucket", {"STORAGE_EMULATOR_HOST": said})


def test_parts_are_what_google_takes() -> None:
    """Multiples of 256 KiB, as many as the largest object has."""
    limits = GsLimits()
    assert limits.part_bytes % (256 << 10) == 0
    assert limits.most_parts * limits.part_bytes == 5 << 40
    with pytest.raises(AssertionError):
        GsLimits(part_bytes=1000)
