"""The command line on a real cluster: `up` in one process, the other commands in others, as people use it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iriscw.cli.demo.leftovers import processes_in
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing

COMMAND = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
TIMEOUT_S = 60
SMALL = ("--cpu", "250m", "--memory", "64MiB")


class Terminal:
    """Runs commands that find the cluster by its context file."""

    def __init__(self, folder):
        self.folder = folder
        self.context = folder / "run" / "context.json"
        self.environment = {**os.environ, "IRISCW_CONTEXT": str(self.context)}
        for name in ("IRIS_CONTROLLER_ADDRESS", "IRIS_WORKDIR"):
            self.environment.pop(name, None)

    def start(self, *arguments):
        """Start a command that goes on."""
        return subprocess.Popen([*COMMAND, *arguments], env=self.environment, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments, within_s=TIMEOUT_S):
        """Run a command; give code, output and errors."""
        done = subprocess.run(
            [*COMMAND, *arguments], env=self.environment, capture_output=True, text=True, timeout=within_s, check=False
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def up(tmp_path):
    """A terminal beside one in which `iriscw up` runs; it must end in order at Ctrl-C."""
    terminal = Terminal(tmp_path)
    workdir = tmp_path / "work"
    with terminal.start("up", "--nodes", "1", "--scale-down-delay", "60", "--workdir", str(workdir)) as process:
        try:
            assert "iriscw is up at 127.0.0.1:" in process.stderr.readline()
            assert terminal.context.stat().st_mode & 0o777 == 0o600
            yield terminal
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            code = process.wait(timeout=TIMEOUT_S)
    assert (code, rest.splitlines()[-1]) == (0, "stopped; nothing is left running")
    assert not terminal.context.exists()
    assert processes_in(workdir) == []


@pytest.mark.slow
def test_a_day_with_the_commands(up):
    """Submit, follow, look, stop and list, from another process."""
    code, out, err = up.run("submit", "-f", "--replicas", "2", *SMALL, "--", "sh", "-c", "echo from $IRIS_TASK_INDEX")
    assert (code, sorted(out.splitlines())) == (0, ["0 | from 0", "1 | from 1"])
    assert err.splitlines()[-1].endswith("SUCCEEDED")
    first = err.split()[0]
    retried = ("--max-retries-failure", "1", *SMALL)
    assert up.run("submit", "-f", "--name", "bad", *retried, "--", "sh", "-c", "exit 3")[0] == 3
    code, out, _ = up.run("submit", "--name", "long", *SMALL, "--env", "A=b", "--", "sh", "-c", "echo $A; sleep 1000")
    long = out.strip()
    assert (code, long.startswith("job-")) == (0, True)
    [listed] = json.loads(up.run("jobs", "-o", "json")[1])
    assert (listed["job_id"], listed["name"], sum(listed["task_counts"].values())) == (long, "long", 1)
    assert listed["resources"]["cpu_milli"] > 0
    assert (listed["priority"], "entrypoint" in listed, "tasks" in listed) == ("INTERACTIVE", False, False)
    code, _, err = up.run("submit", "--name", "long", "--", "true")
    assert (code, "--existing keep" in err, err.count("\n")) == (2, True, 1)
    assert up.run("stop", "long")[1] == f"{long} KILLED\n"
    described = json.loads(up.run("job", "bad", "-o", "json")[1])
    assert (described["state"], described["tasks"][0]["attempts"][0]["exit_code"]) == ("FAILED", 3)
    assert described["task_counts"] == {"FAILED": 1}
    assert listed.keys() <= described.keys(), "a listing has some of the same fields"
    assert [each["number"] for each in described["tasks"][0]["attempts"]] == [1, 0]
    assert described["tasks"][0]["attempts"][1]["fault"]
    shown = up.run("job", "bad")[1]
    assert "FAILED" in shown
    assert "TRIED" in shown
    assert up.run("logs", first, "--task", "1")[1] == "from 1\n"
    assert up.run("logs", first, "--task", "2")[0] == 2
    assert up.run("slices", "--group", "nosuch")[0] == 2
    table = up.run("jobs", "--all")[1].splitlines()
    assert len(table) == 4
    assert ["1 killed" in line or "1 failed" in line or "2 done" in line for line in table[1:]] == [True] * 3
    [pool] = json.loads(up.run("pools", "-o", "json")[1])
    assert (pool["scale_group"], pool["max_slices"]) == ("local", 1)
    [one] = json.loads(up.run("slices", "-o", "json")[1])
    assert one["state"] == "READY"
    assert up.run("logs", "nope")[0] == 2


@pytest.mark.slow
def test_a_command_beside_a_task(up):
    """Its outputs and its code are the command's; Ctrl-C ends it, and not the task."""
    job = up.run("submit", "--name", "long", *SMALL, "--env", "A=b", "--", "sleep", "1000")[1].strip()
    while "RUNNING" not in up.run("jobs")[1]:
        pass
    code, out, err = up.run("exec", "long", "--", "sh", "-c", "echo $A; printf e >&2; exit 5")
    assert (code, out, err) == (5, "b\n", "e")
    assert up.run("exec", "--task", "0", job, "--", "sh", "-c", "kill -9 $$")[0] == 137
    for wrong in (("--", "no-such-program"), ("--task", "1", "--", "true"), ("--timeout", "2d", "--", "true")):
        words = [*wrong[: wrong.index("--")], job, *wrong[wrong.index("--") :]]
        code, out, err = up.run("exec", *words)
        assert (code, out, err.startswith("iriscw: ")) == (2, "", True), err
    with up.start("exec", job, "--", "sh", "-c", "echo $$ >&2; exec sleep 600") as process:
        command = int(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().splitlines()[-1] == "interrupted"
        assert process.wait(timeout=TIMEOUT_S) == 130
    while Path(f"/proc/{command}").exists():
        pass
    endless = subprocess.Popen(
        [*COMMAND, "exec", job, "--", "yes", job], env=up.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with endless:
        assert endless.stdout.readline() == f"{job}\n".encode()
        endless.stdout.close()  # as `head` does
        assert (endless.stderr.read(), endless.wait(TIMEOUT_S)) == (b"", 0)
    assert up.run("stop", job)[1] == f"{job} KILLED\n"
    assert up.run("exec", job, "true")[0] == 2


@pytest.mark.slow
def test_a_program_is_followed_to_its_end(up):
    """The exit code is its own, as in a shell; whoever stops following ends nothing, and hears how to."""
    for program, expected in (("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)):
        code, _, err = up.run("submit", "-f", *SMALL, "--", "sh", "-c", program)
        assert code == expected, err
        assert up.run("wait", err.split()[0])[0] == expected
        assert up.run("logs", "-f", err.split()[0])[0] == 0
    code, _, _ = up.run("submit", "-f", *SMALL, "--replicas", "2", "--", "sh", "-c", "exit 7")
    assert code == 1
    with up.start("submit", "-f", *SMALL, "--", "sh", "-c", "echo begun >&2; exec sleep 99") as process:
        job = process.stderr.readline().strip()
        while "RUNNING" not in up.run("jobs")[1]:
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().splitlines()
        assert process.wait(timeout=TIMEOUT_S) == 130
    said = f"{job} goes on: `iriscw logs -f {job}` shows it, `iriscw stop {job}` ends it"
    assert [line for line in rest if line][-2:] == [said, "interrupted"]
    assert "RUNNING" in up.run("jobs")[1]
    code, out, err = up.run("wait", job, "--timeout", "10ms")
    assert (code, out, "is RUNNING after 0.01 s" in err) == (3, "", True)
    assert up.run("stop", job)[0] == 0
    code, out, err = up.run("wait", job)
    assert (code, out, err) == (1, f"{job} KILLED\n", f"{job}: stopped by hand\n")


@pytest.mark.slow
def test_a_folder_travels(up, tmp_path):
    """A command finds the files of a bundle in its working folder, retries them there, and says which attempt it is."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.sh").write_text("echo $1 $IRIS_TASK_INDEX; exit 5\n")
    retried = ("--max-retries-failure", "1", *SMALL)
    code, out, err = up.run("submit", "-f", "--bundle", str(folder), *retried, "sh", "train.sh", "--name")
    assert (code, out) == (5, "--name 0\n--name 0\n")
    assert "task 0, attempt 1:" in err.splitlines()
    assert up.run("logs", err.split()[0], "--tail", "5")[1] == "--name 0\n"


@pytest.mark.slow
def test_followers_go_on_when_their_cluster_is_taken_up_again(tmp_path):
    """A job that waits says why. Of a cluster that is killed and started again no line is lost or comes twice; who
    follows hears how to start it, and that it is back.
    """
    terminal, workdir = Terminal(tmp_path), str(tmp_path / "my work")
    program = "n=0; while [ $n -lt 80 ]; do echo $n; n=$((n+1)); sleep 0.1; done"
    with terminal.start("up", "--workdir", workdir) as process:
        process.stderr.readline()
        with terminal.start("submit", "-f", "--constraint", "rack=7", "--", "true") as follower:
            job_id = follower.stderr.readline().strip()
            assert follower.stderr.readline().startswith(f"{job_id} waits: ")
            follower.send_signal(signal.SIGINT)
        terminal.run("submit", *SMALL, "--name", "counts", "sh", "-c", program)
        with subprocess.Popen(
            [*COMMAND, "logs", "-f", "counts"],
            env=terminal.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout.readline() == "0\n"
            process.kill()
            process.wait(timeout=TIMEOUT_S)
            assert f"iriscw up --workdir '{workdir}'" in reader.stderr.readline()
            with terminal.start("up", "--workdir", workdir) as again:
                assert reader.stdout.read().split() == [str(number) for number in range(1, 80)]
                assert reader.stderr.read().endswith(" answers again\n")
                assert reader.wait(timeout=TIMEOUT_S) == 0
                again.send_signal(signal.SIGINT)


def skip_where_nothing_can_be_frozen():
    """Skip, and say why."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")


@pytest.mark.slow
def test_a_second_cluster_is_refused(up):
    """`up` does not take the context of a cluster that lives."""
    code, _, err = up.run("up")
    assert (code, err.count("\n")) == (2, 1)
    assert "IRISCW_CONTEXT" in err
    assert up.context.exists()


@pytest.mark.slow
def test_down_ends_what_is_up(tmp_path):
    """In order, whoever keeps it; what it cannot end it says, and how that is ended."""
    terminal = Terminal(tmp_path)
    code, _, err = terminal.run("down")
    assert (code, err.count("\n"), "iriscw down CONFIG" in err) == (0, 1, True)
    workdir = tmp_path / "work"
    with terminal.start("up", "--nodes", "1", "--workdir", str(workdir)) as process:
        process.stderr.readline()
        assert terminal.run("down", "--keep-state")[0] == 2
        jobs = [terminal.run("submit", *SMALL, "--", "sleep", "99")[1].strip() for _ in range(3)]
        code, out, err = terminal.run("stop", jobs[0], "nobody")
        assert (code, out) == (2, ""), err
        code, out, _ = terminal.run("stop", jobs[0], jobs[2], jobs[0])
        assert (code, out) == (0, f"{jobs[0]} KILLED\n{jobs[2]} KILLED\n")
        assert terminal.run("jobs")[1].count(jobs[1]) == 1
        code, out, err = terminal.run("down")
        assert (code, out) == (0, "stopped; nothing is left running\n"), err
        assert process.wait(timeout=0) == 0
        assert process.stderr.read().splitlines()[-1] == "stopped; nothing is left running"
    assert not terminal.context.exists()
    assert processes_in(workdir) == []
    assert terminal.run("down")[:2] == (0, "")


@pytest.mark.slow
def test_a_dead_clusters_context_is_named(tmp_path):
    """A cluster that was killed leaves its context: the error says that nobody answers there."""
    terminal = Terminal(tmp_path)
    with terminal.start("up", "--nodes", "1", "--workdir", str(tmp_path / "work")) as process:
        process.stderr.readline()
        process.kill()
    code, _, err = terminal.run("doctor", "-o", "json")
    assert code == 0
    assert err == ""
    assert f"`iriscw up --workdir {tmp_path / 'work'}`" in terminal.run("jobs")[2]


@pytest.mark.slow
def test_the_demo_holds_its_claims(tmp_path):
    """Both acts end well on their own checks; the second one is skipped where nothing can be frozen."""
    code, out, err = Terminal(tmp_path).run("demo", "--plain", "--state", "16MiB", within_s=2 * TIMEOUT_S)
    assert (code, err) == (0, "")
    assert "NOT SO" not in out
    first, second = out.split("the second act:")
    assert first.count("ok: ") == 8
    assert first.index("SIGKILL to worker") < first.index("SIGKILL to controller")
    assert second.count("ok: ") == 12 or "the second act is skipped: " in second


@pytest.mark.slow
def test_the_second_act_holds_its_claims(tmp_path):
    """A server is frozen and thawed on its own checks; what each step took is told, and nothing is left."""
    skip_where_nothing_can_be_frozen()
    code, out, err = Terminal(tmp_path).run("demo", "--plain", "--act", "2", "--state", "64MiB")
    assert (code, err) == (0, "")
    assert "NOT SO" not in out
    assert out.count("ok: ") == 12
    assert "a controller listens" not in out
    folder = Path(re.search(r"/dev/shm/iriscw-demo-\w+", out)[0])
    assert not folder.exists()
    assert processes_in(folder) == []
    tables = [line.split("s  ", 1)[1] for line in out.splitlines() if re.search(r"s  [a-z ]+  +[0-9]+\.[0-9]{2}", line)]
    assert sum(line.startswith("in all") for line in tables) == 2
    for step in ("writes the images", "gives every byte a digest", "reads and compares every byte", "brings the tree"):
        assert any(re.match(rf"{step}.* [MG]B  .* [MG]B/s$", line) for line in tables), step


@pytest.mark.slow
def test_a_demo_of_what_cannot_be_is_refused(tmp_path):
    """Who asks for the second act alone hears why it cannot be played."""
    terminal = Terminal(tmp_path)
    terminal.environment["IRISCW_CRIU"] = str(tmp_path / "no-criu")
    code, _, err = terminal.run("demo", "--act", "2")
    assert (code, err.count("\n")) == (3, 1)
    assert "CriuMissing" in err
