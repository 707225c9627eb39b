"""The inside of simulated containers: a log that follows from the clock, and a few commands."""

import pytest

from iriscw_sims.kube.clock import written
from iriscw_sims.serve import scripted
from iriscw_sims.serve.scripted import SCRIPT, ScriptedStreams
from iriscw_sims.serve.streams import Command

SECOND = 1_000_000_000
BEGUN = 1_800_000_000 * SECOND


def pod(*, ended=None, code=0, script=None, **spec):
    """Return a pod whose container began at ``BEGUN``, and ended some seconds later if that is said."""
    begun = written(BEGUN)
    state = {"running": {"startedAt": begun}}
    if ended is not None:
        over = {"startedAt": begun, "finishedAt": written(BEGUN + ended * SECOND), "exitCode": code}
        state = {"terminated": over}
    return {
        "metadata": {"name": "p", "annotations": {SCRIPT: script} if script else {}},
        "spec": {"containers": [{"name": "main", "image": "img", **spec}]},
        "status": {"containerStatuses": [{"name": "main", "state": state}]},
    }


def told(item, seconds, first=0):
    """Return number, second and text of each line of a log."""
    lines = ScriptedStreams().log(item, "main", BEGUN + int(seconds * SECOND), first)
    return [(line.number, (line.at - BEGUN) // SECOND, line.text.decode()) for line in lines]


def test_a_container_says_that_it_is_simulated():
    """What it would run, what its pod has it say, and every ten seconds that it is there."""
    item = pod(command=["python", "train.py"], script="step 1\nstep 2")
    assert told(item, 25) == [
        (0, 0, "iriscw: this container is simulated: image img, command python train.py"),
        (1, 0, "step 1"),
        (2, 0, "step 2"),
        (3, 10, "iriscw: running for 10 s"),
        (4, 20, "iriscw: running for 20 s"),
    ]


def test_an_end_is_the_last_line():
    """With its exit code; nothing comes after it, however late one asks."""
    item = pod(ended=15, code=3)
    assert told(item, 15)[1:] == [(1, 10, "iriscw: running for 10 s"), (2, 15, "iriscw: ended with exit code 3")]
    assert told(item, 500) == told(item, 15)
    assert ScriptedStreams().next_line(item, "main", BEGUN) is None


def test_what_has_not_begun_says_nothing():
    """Nor does a container that does not exist."""
    waiting = pod() | {"status": {"containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}}
    assert told(waiting, 100) == []
    assert ScriptedStreams().log(pod(), "other", BEGUN) == []
    assert ScriptedStreams().next_line(waiting, "main", BEGUN) is None


@pytest.mark.parametrize("first", [0, 1, 3, 7, 50])
def test_a_log_goes_on_where_it_was_left(first):
    """Its lines have the same numbers, wherever one begins."""
    assert told(pod(script="a\nb"), 65, first) == [line for line in told(pod(script="a\nb"), 65) if line[0] >= first]


def test_the_next_line_is_known():
    """Exactly when there is one more line than before."""
    streams, item = ScriptedStreams(), pod()
    for seconds in (0, 3, 10, 19.9):
        now = BEGUN + int(seconds * SECOND)
        following = streams.next_line(item, "main", now)
        count = len(streams.log(item, "main", now))
        assert len(streams.log(item, "main", following - 1)) == count
        assert len(streams.log(item, "main", following)) == count + 1


def test_a_long_log_forgets(monkeypatch):
    """Its beginning, as a kubelet rotates it; the numbers go on."""
    monkeypatch.setattr(scripted, "LINES_LIMIT", 5)
    lines = told(pod(), 1000)
    assert [number for number, _, _ in lines] == [96, 97, 98, 99, 100]


def test_a_new_node_cannot_be_reached():
    """For half a minute; one that says nothing of its age can."""
    node = {"metadata": {"creationTimestamp": written(BEGUN)}}
    streams = ScriptedStreams()
    assert not streams.exec_ready(node, BEGUN + 29 * SECOND)
    assert streams.exec_ready(node, BEGUN + 30 * SECOND)
    assert streams.exec_ready({"metadata": {}}, BEGUN)


class Streams:
    """The streams of a command, in memory."""

    def __init__(self, *typed):
        self._typed = typed
        self.out = self.err = b""

    async def stdin(self):
        """Yield what was typed."""
        for data in self._typed:
            yield data

    async def stdout(self, data):
        """Take output."""
        self.out += data

    async def stderr(self, data):
        """Take output of the other kind."""
        self.err += data


async def run(*argv, typed=(), tty=False, **spec):
    """Return exit code, output and error output of a command."""
    streams = Streams(*typed)
    command = Command(pod(**spec), "main", argv, tty)
    code = await ScriptedStreams().exec(command, streams, BEGUN)
    return code, streams.out, streams.err


@pytest.mark.parametrize(
    ("argv", "code", "out"),
    [
        (("echo", "a", "b c"), 0, b"a b c\n"),
        (("true",), 0, b""),
        (("false",), 1, b""),
        (("exit", "3"), 3, b""),
        (("exit",), 0, b""),
        (("hostname",), 0, b"p\n"),
        (("cat", "/etc/hostname"), 0, b"p\n"),
        (("sh", "-c", "echo 'x y'"), 0, b"x y\n"),
        (("/bin/bash", "-c", "exit 7"), 7, b""),
        (("ls",), 0, b"/etc/hostname\n/etc/os-release\n"),
    ],
)
async def test_known_commands(argv, code, out):
    """They say and end with what they should, and complain of nothing."""
    assert await run(*argv) == (code, out, b"")


@pytest.mark.parametrize(
    ("argv", "code"),
    [(("nvidia-smi",), 127), (("sh", "-c", "bash"), 127), (("sh", "-c", "echo '"), 2), (("cat", "/x"), 1)],
)
async def test_others_say_where_one_is(argv, code):
    """On the other stream, with a shell's exit code."""
    ended, out, err = await run(*argv)
    assert (ended, out) == (code, b"")
    assert err
    assert b"simulated" in err or code == 2


async def test_cat_gives_back():
    """What is typed, until its end."""
    assert await run("cat", typed=[b"one\n", b"two"]) == (0, b"one\ntwo", b"")


async def test_the_environment_is_the_pods():
    """Values that stand in its specification; those from elsewhere are not known here."""
    env = [{"name": "A", "value": "1"}, {"name": "S", "valueFrom": {"secretKeyRef": {}}}]
    assert (await run("env", env=env))[1] == b"HOSTNAME=p\nA=1\n"


async def test_a_shell_takes_lines():
    """In whatever pieces they come, until it is told to exit; then with that code."""
    code, out, _ = await run("sh", typed=[b"echo a\nec", b"ho b\nexit 4\necho c\n"])
    assert (code, out) == (4, b"a\nb\n")
    assert (await run("sh", typed=[b"echo last"]))[1] == b"last\n"


async def test_a_terminal_echoes():
    """What is typed, with a prompt."""
    code, out, _ = await run("sh", typed=[b"hostname\r", b"exit 0\r"], tty=True)
    assert code == 0
    assert out.startswith(b"this container is simulated\r\n$ hostname\r\np\n$ ")
