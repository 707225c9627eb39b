"""Where a store is: what a URL and the environment say."""

import pytest

from iriscw.objects.drivers.errors import InvalidStoreUrl
from iriscw.objects.drivers.limits import MIB
from iriscw.objects.drivers.s3_place import S3Limits, S3Place, place_variables, s3_place, wants_virtual, with_own
from raised import Check, that

COREWEAVE = {"AWS_ENDPOINT_URL": "https://cwobject.com"}
OWN = {"AWS_ENDPOINT_URL": "http://minio.internal:9000"}


@pytest.mark.parametrize(
    ("url", "environment", "place"),
    [
        ("s3://bkt", {}, S3Place("bkt", "")),
        ("s3://bkt/", {}, S3Place("bkt", "")),
        ("s3://bkt/a/b", {}, S3Place("bkt", "a/b/")),
        ("s3://bkt/a/b/", {"AWS_REGION": "r1", "AWS_DEFAULT_REGION": "r2"}, S3Place("bkt", "a/b/", "", "r1")),
        ("s3://bkt", {"AWS_REGION": "", "AWS_DEFAULT_REGION": "r2"}, S3Place("bkt", "", "", "r2")),
        ("s3://bkt", COREWEAVE, S3Place("bkt", "", "https://cwobject.com", "", "virtual")),
        ("s3://bkt?addressing=virtual", {}, S3Place("bkt", "", "", "", "virtual")),
        ("s3://bkt", OWN, S3Place("bkt", "", "http://minio.internal:9000", "", "path")),
        ("s3://bkt/p?addressing=virtual", OWN, S3Place("bkt", "p/", "http://minio.internal:9000", "", "virtual")),
        (
            "s3://bkt",
            {**OWN, "AWS_ENDPOINT_URL_S3": "http://cwlota.com"},
            S3Place("bkt", "", "http://cwlota.com", "", "virtual"),
        ),
    ],
)
def test_places(url: str, environment: dict[str, str], place: S3Place) -> None:
    """CoreWeave's endpoints have the bucket in the host, others in the path, Amazon's as botocore has it."""
    assert s3_place(url, environment) == place


@pytest.mark.parametrize(
    ("url", "environment", "said"),
    [
        ("s3:///prefix", {}, that(comes_from="s3_place.s3_place")),
        ("s3://Bucket", {}, that(comes_from="s3_place.s3_place")),
        ("s3://a", {}, that(comes_from="s3_place.s3_place")),
        ("s3://a..b", {}, that(comes_from="s3_place.s3_place")),
        ("s3://bkt/a/../b", {}, that(comes_from="ports.check_key")),
        ("s3://bkt?region=x", {}, that(comes_from="s3_place.s3_place", names="s3://bucket/prefix")),
        ("s3://bkt?addressing=both", {}, that(comes_from="s3_place.s3_place", names="s3://bucket/prefix")),
        ("s3://bkt#x", {}, that(comes_from="s3_place.s3_place", names="s3://bucket/prefix")),
        ("gs://bkt", {}, that(comes_from="s3_place.s3_place", names="s3://bucket/prefix")),
        ("s3://bkt", {"AWS_ENDPOINT_URL": "cwobject.com"}, that(comes_from="s3_place._addressing")),
        ("s3://bkt", {"AWS_ENDPOINT_URL": "ftp://cwobject.com"}, that(comes_from="s3_place._addressing")),
        ("s3://bkt?addressing=path", COREWEAVE, that(comes_from="s3_place._addressing")),
        ("s3://b.kt", COREWEAVE, that(comes_from="s3_place.s3_place")),
        (
            "s3://bkt?addressing=virtual",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"},
            that(comes_from="s3_place._addressing"),
        ),
    ],
)
def test_what_is_no_place(url: str, environment: dict[str, str], said: Check) -> None:
    """The error says what is wrong, before anything is asked of anybody."""
    with pytest.raises(InvalidStoreUrl, check=said):
        s3_place(url, environment)


def test_a_password_in_an_endpoint_is_not_shown() -> None:
    """It is refused, and the error does not repeat it; nor one in an address."""
    with pytest.raises(InvalidStoreUrl) as caught:
        s3_place("s3://bkt", {"AWS_ENDPOINT_URL": "https://me:hush@cwobject.com"})
    assert "hush" not in str(caught.value)
    with pytest.raises(InvalidStoreUrl, check=that(comes_from="s3_place.s3_place")) as caught:
        s3_place("s3://KEY:hush@bkt", {})
    assert "hush" not in str(caught.value)


def test_coreweaves_hosts() -> None:
    """The services' own and those below them; nothing that merely ends alike."""
    assert wants_virtual("http://cwlota.com")
    assert wants_virtual("https://eu.cwobject.com:443")
    assert not wants_virtual("https://notcwobject.com")
    assert not wants_virtual("")


def test_limits_fit_the_services() -> None:
    """Parts are as large as CoreWeave wants them, and long objects have room."""
    limits = S3Limits()
    assert limits.part_bytes >= 15 * MIB
    sizes = [limits.size_of_part(number) for number in range(1, limits.most_parts + 1)]
    assert sizes == sorted(sizes)
    assert sum(sizes) == 578 * 1024 * MIB + 128 * MIB
    assert limits.attempt_s(60 * MIB) == limits.silence_s + 60


def test_a_configuration_says_where_by_the_variables_that_are_read() -> None:
    """What it leaves empty is said by none; libraries that know either name of the region find it."""
    assert place_variables("", "") == {}
    found = place_variables("http://cwlota.com", "eu-1")
    assert found == {"AWS_ENDPOINT_URL_S3": "http://cwlota.com", "AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "eu-1"}
    assert s3_place("s3://bkt", found) == S3Place("bkt", "", "http://cwlota.com", "eu-1", "virtual")


@pytest.mark.parametrize(
    ("own", "endpoint", "region"),
    [
        ({}, "http://cwlota.com", "eu-1"),
        ({"OTHER": "x"}, "http://cwlota.com", "eu-1"),
        ({"AWS_ENDPOINT_URL": "http://mine"}, "http://mine", "eu-1"),
        ({"AWS_ENDPOINT_URL_S3": "http://mine"}, "http://mine", "eu-1"),
        ({"AWS_DEFAULT_REGION": "us-2"}, "http://cwlota.com", "us-2"),
        ({"AWS_REGION": "us-2", "AWS_ENDPOINT_URL": "http://mine"}, "http://mine", "us-2"),
    ],
)
def test_ones_own_variables_win_under_either_name(own: dict[str, str], endpoint: str, region: str) -> None:
    """``AWS_ENDPOINT_URL`` of one's own is not beaten by an ``AWS_ENDPOINT_URL_S3`` below it."""
    below = {**place_variables("http://cwlota.com", "eu-1"), "OTHER": "below"}
    found = with_own(below, own)
    place = s3_place("s3://bkt", found)
    assert (place.endpoint, place.region) == (endpoint, region)
    assert found["OTHER"] == own.get("OTHER", "below")
    assert own.items() <= found.items()
