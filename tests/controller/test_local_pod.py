"""A pod of the local platform becomes the worker that its environment names."""

import pytest

from iriscw.controller.platforms.local_pod import command
from raised import that

ENVIRONMENT = {"IRIS_WORKER_ID": "w-0", "IRIS_INCARNATION": "i", "IRISCW_TOKEN_FILE": "t"}


def test_command() -> None:
    """The worker is told who it is, whom to dial and where its token lies."""
    argv = command(["127.0.0.1:7", "cache"], ENVIRONMENT)
    pairs = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert argv[1:4] == ["-m", "iriscw.worker", "serve"]
    assert pairs == {
        "--controller": "127.0.0.1:7",
        "--worker-id": "w-0",
        "--incarnation": "i",
        "--cache-dir": "cache",
        "--token-file": "t",
        "--host": "127.0.0.1",
        "--port": "0",
    }


@pytest.mark.parametrize("missing", list(ENVIRONMENT))
def test_missing(missing: str) -> None:
    """Without a name in the environment nothing is started."""
    with pytest.raises(SystemExit, check=that(names=missing)):
        command(["a", "b"], {name: value for name, value in ENVIRONMENT.items() if name != missing})
    with pytest.raises(SystemExit):
        command(["a"], ENVIRONMENT)
