"""A state folder that somebody else prepared is not taken over."""

import os
from pathlib import Path

import pytest

from iriscw.controller.tokens import keep_token
from iriscw.files import StateUnusable
from raised import that


def test_a_token_that_others_could_plant_is_refused(tmp_path: Path) -> None:
    """In a folder or a file that all can write, the token may be a stranger's."""
    path = tmp_path / "secrets" / "admin-token"
    token = keep_token(path)
    assert keep_token(path) == token
    path.chmod(0o666)
    with pytest.raises(StateUnusable, check=that(comes_from="tokens._check_owner")):
        keep_token(path)
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(StateUnusable, check=that(comes_from="tokens._check_owner")):
        keep_token(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    """Whoever owns the file knows the token."""
    path = tmp_path / "secrets" / "admin-token"
    keep_token(path)
    os.chown(path, 65534, -1)
    with pytest.raises(StateUnusable, check=that(comes_from="tokens._check_owner")):
        keep_token(path)
