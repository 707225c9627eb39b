"""What the tests of the command line share."""

import pytest

from iriscw.cli import main


@pytest.fixture
def anyio_backend() -> str:
    """The asyncio backend: grpclib knows no other."""
    return "asyncio"


@pytest.fixture
def iriscw(capsys, tmp_path, monkeypatch):
    """Run a command in this process; give its exit code, standard output and standard error."""
    monkeypatch.setenv("IRISCW_CONTEXT", str(tmp_path / "context.json"))
    for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_WORKDIR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        code = main(list(arguments))
        written = capsys.readouterr()
        return code, written.out, written.err

    return run
