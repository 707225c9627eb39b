"""What `submit` makes of its words."""

import pytest

from iriscw.cli import submit as module
from iriscw.cli.submit import default_name
from iriscw.client.model import JobState, JobStatus
from iriscw.jobs.model import MAX_NAME_LENGTH


class Client:
    """Notes what is submitted."""

    def __init__(self):
        self.submitted = []
        self.id = "job-1"

    async def submit(self, command, **wishes):
        self.submitted.append((command.argv, wishes))
        return self

    async def status(self):
        return JobStatus("job-1", "u", "n", JobState.PENDING, 1, 1, {})


@pytest.fixture
def client(monkeypatch):
    """A client that needs no cluster."""
    made = Client()

    def with_client(address, token_file, function):
        import anyio

        return anyio.run(function, made)

    monkeypatch.setattr(module, "with_client", with_client)
    return made


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["python", "train.py", "--name", "foo"], ("python", "train.py", "--name", "foo")),
        (["echo", "-n", "-f", "hi"], ("echo", "-n", "-f", "hi")),
        (["--", "prog", "--verbose"], ("prog", "--verbose")),
        (["prog", "--verbose", "-o", "json"], ("prog", "--verbose", "-o", "json")),
        (["prog", "--", "--help"], ("prog", "--", "--help")),
    ],
)
def test_what_follows_the_program_is_its_own(iriscw, client, words, argv):
    """Options end where the program begins, with or without dashes before it."""
    assert iriscw("submit", *words) == (0, "job-1\n", "")
    [(given, wishes)] = client.submitted
    assert (given, wishes["name"].partition("-")[0]) == (argv, argv[0])


def test_options_arrive(iriscw, client, tmp_path):
    """Sizes may be digits; a folder travels as it is named; a name that was given stays."""
    given = ["--name", "n", "--memory", "268435456", "--disk", "1GiB", "--env", "A=b", "--bundle", str(tmp_path)]
    assert iriscw("submit", *given, "true")[0] == 0
    [(_, wishes)] = client.submitted
    assert (wishes["name"], wishes["environment"], wishes["bundle"]) == ("n", {"A": "b"}, tmp_path)
    assert (wishes["resources"].memory, wishes["resources"].disk) == (2**28, 2**30)


def test_default_names_do_not_collide():
    """Two jobs of one program have two names that any job can have, whatever the program is called."""
    names = {default_name("/bin/sleep") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("sleep-") for name in names)
    assert default_name("/").startswith("job-")
    long = default_name("x" * 500 + "\n")
    assert len(long) == MAX_NAME_LENGTH
    assert long.isprintable()


def test_only_a_given_name_can_exist(iriscw, client):
    """--existing is about a name: without one there is nothing to keep."""
    code, _, err = iriscw("submit", "--existing", "keep", "--", "true")
    assert (code, client.submitted) == (2, [])
    assert "--name" in err
