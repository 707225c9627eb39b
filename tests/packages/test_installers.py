"""What installers say, and what they are told."""

import pytest

from iriscw.packages.installers import (
    disk_is_full,
    installer_environment,
    network_is_away,
    source_of,
    without_credentials,
)

INDEX = "https://user:secret@host/simple"


@pytest.mark.parametrize(
    "credentials", ["user:secret@", "secret@", "user:se@cret@", "user:%73ecret@", "__token__:secret@"]
)
def test_addresses_lose_their_credentials(credentials: str) -> None:
    """Whatever they look like; what follows, and an address of mail, stay as they are."""
    told = f"ERROR: https://{credentials}host:1/a@b/c, HTTP://{credentials}h2; ask ada@example.com"
    assert without_credentials(told) == "ERROR: https://***@host:1/a@b/c, HTTP://***@h2; ask ada@example.com"


def test_what_an_installer_is_told() -> None:
    """Where packages come from, and never to put them elsewhere; what stands for that holds no password."""
    ours = {
        "UV_INDEX_URL": INDEX,
        "PIP_TARGET": "/elsewhere",
        "UV_PYTHON": "3.9",
        "AWS_SECRET": "secret",
        "PIP_NO_INDEX": "1",
    }
    told = installer_environment(ours)
    assert {*told} >= {"UV_INDEX_URL", "PIP_NO_INDEX", "PATH"}
    assert not {*told} & {"PIP_TARGET", "UV_PYTHON", "AWS_SECRET"}
    assert "secret" not in source_of(told)
    assert source_of(told) != source_of({**told, "UV_INDEX_URL": "https://other/simple"})
    assert source_of(told) == source_of({**told, "UV_CACHE_DIR": "/cache"})


@pytest.mark.parametrize(
    ("said", "away", "full"),
    [
        ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('", True, False),
        ("error: Request failed after 3 retries: error sending request for url (https://host/)", True, False),
        ("ERROR: HTTP error 503 Service Unavailable", True, False),
        ("HTTP status server error (503 Service Unavailable) for url", True, False),
        ("ERROR: No matching distribution found for tiny==9", False, False),
        ("OSError: [Errno 28] No space left on device", False, True),
        ("error: failed to write: No space left on device (os error 28)", False, True),
    ],
)
def test_what_may_go_better_later(said: str, away: bool, full: bool) -> None:
    """An index that is away, and a full disk, are no fault of the job's."""
    assert (network_is_away(said), disk_is_full(said)) == (away, full)
