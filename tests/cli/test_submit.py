"""What `submit` makes of its words."""

import json

import pytest

from iriscw.cli import submit as module
from iriscw.cli.submit import default_name
from iriscw.client.model import JobState, JobStatus, LogLine
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

    async def wait(self):
        return JobStatus("job-1", "u", "n", JobState.SUCCEEDED, 1, 1, {})

    async def logs(self, **which):
        yield LogLine(0, 0, "hi")
        yield LogLine(0, 1, "again")


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


def test_a_program_reads_the_job_alone(iriscw, client):
    """With -o json or yaml standard output is one document, and the log stands on standard error."""
    said = "job-1\nhi\ntask 0, attempt 1:\nagain\njob-1 SUCCEEDED\n"
    code, out, err = iriscw("submit", "-f", "-o", "json", "--", "prog")
    assert (code, json.loads(out)["state"], err) == (0, "SUCCEEDED", said)
    code, out, err = iriscw("submit", "-f", "-o", "yaml", "--", "prog")
    assert (code, out.splitlines()[0], err) == (0, '"job_id": "job-1"', said)
    log = {"hi", "again"}
    code, out, err = iriscw("submit", "-f", "--", "prog")
    assert (code, out) == (0, "hi\nagain\n")
    assert log.isdisjoint(err.splitlines())


def test_a_job_that_can_never_run_is_told_of(iriscw, client, monkeypatch):
    """Without -f, too: the id is for programs; reason and exit code say that nothing will come of it."""
    over = JobStatus("job-1", "u", "n", JobState.UNSCHEDULABLE, 1, 1, {}, reason="too small")

    async def ended():
        return over

    monkeypatch.setattr(client, "status", ended)
    monkeypatch.setattr(client, "wait", ended)
    assert iriscw("submit", "prog") == (1, "job-1\n", "job-1 UNSCHEDULABLE: too small\n")


def test_a_name_that_is_empty(iriscw, client):
    """It is refused, not made up: the variable that should hold it is unset."""
    code, _, said = iriscw("submit", "--name", "", "--", "true")
    assert (code, client.submitted) == (2, [])
    assert "--name is empty" in said


def test_options_arrive(iriscw, client, tmp_path):
    """Sizes may be digits; a folder travels as it is named; a name that was given stays."""
    given = ["--name", "n", "--memory", "268435456", "--disk", "1GiB", "--env", "A=b", "--bundle", str(tmp_path)]
    given += ["--bundle-exclude", "data", "--bundle-exclude", "*.pt"]
    assert iriscw("submit", *given, "--freezable", "--detached", "true")[0] == 0
    [(_, wishes)] = client.submitted
    assert (wishes["name"], wishes["environment"], wishes["bundle"]) == ("n", {"A": "b"}, tmp_path)
    assert wishes["bundle_exclude"] == ("data", "*.pt")
    assert (wishes["freezable"], wishes["detached"]) == (True, True)
    assert (wishes["resources"].memory, wishes["resources"].disk) == (2**28, 2**30)


def test_a_file_that_does_not_travel_is_named(iriscw, client, tmp_path, monkeypatch):
    """Before the job waits for a machine; not with a bundle, nor for what the workers may have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    said = "train.py: not sent along; the command's working folder is empty without --bundle .\n"
    assert iriscw("submit", "python", "train.py") == (0, "job-1\n", said)
    assert iriscw("submit", "--bundle", ".", "python", "train.py") == (0, "job-1\n", "")
    assert iriscw("submit", "python", "/train.py", "other.py") == (0, "job-1\n", "")


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
