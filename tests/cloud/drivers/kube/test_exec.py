"""What is made of a command's messages, however they come."""

import json

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.kube import exec as exec_module
from iriscw.cloud.drivers.kube.api import url_of
from iriscw.cloud.drivers.kube.attendant import KILL
from iriscw.cloud.drivers.kube.exec import SOURCE, Attended, ExecOrder, exec_request, exit_code_of, new_mark
from iriscw.cloud.drivers.kube.places import NotYet
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.cloud.model import Gone, InvalidSpec, Unavailable
from iriscw.cloud.ports import MAX_EXEC_OUTPUT_BYTES
from raised import that

MARK = "iriscw-test:"
SUCCESS = json.dumps({"status": "Success"}).encode()


def ended(code):
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(status).encode()


def trouble(text):
    return json.dumps({"status": "Failure", "reason": "InternalError", "code": 500, "message": text}).encode()


class Script:
    """Channels that say what they were told to; ``None`` ends the connection, an error breaks it."""

    def __init__(self, *messages):
        self.messages = [*messages]
        self.sent = []

    async def send(self, channel, data):
        self.sent.append((channel, data))

    async def end(self, channel):
        self.sent.append((channel, None))

    async def receive(self):
        if not self.messages:
            await anyio.sleep_forever()
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


def attended(*messages):
    return Attended(Script(*messages), MARK, "python3")


async def said(*messages):
    """Return the result of a command that says this."""
    return await attended(*messages).result()


@pytest.mark.parametrize("pieces", [[MARK], [MARK[:3], MARK[3:]], ["warning: old\n" + MARK], ["x" * 100_000, MARK]])
async def test_the_mark_is_found(pieces):
    """However it comes, and whatever was said before it."""
    one = attended((1, b""), *((2, piece.encode()) for piece in pieces))
    with anyio.fail_after(5):
        await one.ready()


async def test_what_comes_with_the_mark_is_not_lost():
    """It is the command's, or the attendant's own."""
    one = attended((2, MARK.encode() + b"err"), (3, SUCCESS))
    await one.ready()
    assert (await one.result()).stderr == b"err"


@pytest.mark.parametrize(
    "status",
    [
        ended(127),
        ended(126),
        trouble(
            'failed to exec in container: OCI runtime exec failed: exec: "python3": executable file not found in $PATH'
        ),
        trouble("exec /usr/bin/python3: No such file or directory"),
    ],
)
async def test_a_missing_interpreter_has_a_name(status):
    """In all the ways in which runtimes say it."""
    with pytest.raises(InvalidSpec, check=that(comes_from="exec.Attended._hear")):
        await attended((3, status)).ready()


@pytest.mark.parametrize(
    "message",
    [
        (3, trouble("error dialing backend: no agent available")),
        (3, trouble("dial unix /run/containerd.sock: connect: no such file or directory")),
        (3, ended(1)),
        (3, SUCCESS),
        (3, b"no json"),
        None,
        ApiUnreachable("silence"),
    ],
)
async def test_whatever_comes_instead_of_the_mark_may_pass(message):
    """Nothing was run, so it may be tried again."""
    with pytest.raises(NotYet):
        await attended((1, b""), message).ready()


async def test_a_mark_that_never_comes(monkeypatch):
    """Is not waited for without end."""
    monkeypatch.setattr(exec_module, "READY_S", 0.05)
    with anyio.fail_after(5):
        with pytest.raises(NotYet, check=that(comes_from="exec.Attended.ready")):
            await attended().ready()


async def test_outputs_and_code():
    """Channel by channel; unknown ones are passed over."""
    result = await said((1, b"a"), (2, b"b"), (1, b"c"), (4, b"x"), (9, b"y"), (3, ended(3)))
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (3, b"ac", b"b", False)


@pytest.mark.parametrize("channel", [1, 2])
async def test_what_is_kept_has_a_bound(channel):
    """The rest is read, and thrown away."""
    most = bytes(MAX_EXEC_OUTPUT_BYTES)
    exact = await said((channel, most), (3, SUCCESS))
    more = await said((channel, most), (channel, b"x"), (3 - channel, b"y"), (3, SUCCESS))
    for result, truncated in ((exact, False), (more, True)):
        assert (max(result.stdout, result.stderr, key=len), result.truncated) == (most, truncated)


ERRORS = st.binary(max_size=30) | st.integers(0, len(MARK)).map(lambda length: MARK[:length].encode())
CUTS = st.lists(st.integers(0, 45), max_size=4)


@given(ERRORS, st.sampled_from([0, 1, 125, 255]), st.booleans(), CUTS)
async def test_errors_come_through_in_any_pieces(text, code, marked, cuts):
    """All but one: the attendant's own last word, which takes its code and the mark."""
    text = MARK.encode() + text if marked else text
    marked = text.startswith(MARK.encode())
    cuts = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    messages = [*((2, piece) for piece in pieces), (3, ended(code))]
    if marked and code == 125:
        with pytest.raises(InvalidSpec, check=that(comes_from="exec.Attended.output")):
            await said(*messages)
    else:
        assert await said(*messages) == exec_module.ExecResult(code, b"", text, False)


@pytest.mark.parametrize(
    "how", [None, ApiUnreachable("cut"), (3, b"["), (3, b"[]"), (3, trouble("no")), (3, ended("x"))]
)
async def test_an_end_that_nobody_saw(how):
    """Is no exit code."""
    with pytest.raises((ApiUnreachable, Unavailable)):
        await said((1, b"a"), how)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (SUCCESS, 0),
        (ended(0), 0),
        (ended(255), 255),
        (
            json.dumps(
                {"details": {"causes": [7, {"reason": "Other"}, {"reason": "ExitCode", "message": "4"}]}}
            ).encode(),
            4,
        ),
    ],
)
def test_codes(status, code):
    """Stand among the causes of a failure."""
    assert exit_code_of(status) == code


async def test_errors_are_told_when_they_come():
    """Not only when they cannot be the attendant's any more because all is over."""
    one = attended((2, b"i"), (2, b"x"), (2, b"y"))
    with anyio.fail_after(5):
        output = one.output()
        assert [await anext(output) for _ in range(2)] == [(2, b"ix"), (2, b"y")]
        await output.aclose()


async def test_who_is_told_nothing_looks_now_and_then(monkeypatch):
    """What the look finds ends the wait; where nobody looks it goes on."""
    monkeypatch.setattr(exec_module, "LEASE_S", 0.02)
    looks = []

    async def check():
        looks.append(1)
        if len(looks) == 3:
            raise Gone("no pod")

    one = attended((1, b"a"))
    await one.begin(b"")
    with anyio.fail_after(5), pytest.raises(Gone):
        [each async for each in one.output(check)]
    assert len(looks) == 3
    other = attended((1, b"a"))
    await other.begin(b"")
    with anyio.move_on_after(0.3) as scope:
        await other.result()
    assert scope.cancelled_caught


async def test_a_kill_is_said_in_both_versions_words():
    """A byte, and the end of the input; then the end is waited for."""
    one = attended((1, b"more"), (2, b"more"), (3, ended(137)))
    assert await one.kill() is True
    assert one._channels.sent == [(0, KILL), (0, None)]


@pytest.mark.parametrize("how", [None, ApiUnreachable("cut")])
async def test_a_kill_that_nobody_saw(how):
    """Says so."""
    assert await attended((1, b"x"), how).kill() is False


async def test_a_kill_is_not_waited_for_without_end(monkeypatch):
    """Nor is it cancelled."""
    monkeypatch.setattr(exec_module, "KILL_S", 0.05)
    one = attended()
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await one.kill() is False
        assert one._channels.sent
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_what_is_sent():
    """The source, the length of the order, the order."""
    order = ExecOrder(("a", "ä"), {"X": "y"}, timeout_s=3).encoded()
    one = attended()
    await one.begin(order)
    ((channel, data),) = one._channels.sent
    assert (channel, data[: len(SOURCE)]) == (0, SOURCE)
    length, sent = data[len(SOURCE) :][:8], data[len(SOURCE) + 8 :]
    assert int(length) == len(sent)
    assert json.loads(sent) == {
        "argv": ["a", "ä"],
        "environment": {"X": "y"},
        "timeout_s": 3,
        "lease_s": exec_module.LEASE_S,
    }


async def test_a_pulse_never_comes_before_the_order(monkeypatch):
    """It would be taken for the beginning of the source; and it ends with the connection."""
    monkeypatch.setattr(exec_module, "PULSE_S", 0.01)
    one = attended()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.pulse)
        await anyio.sleep(0.05)
        assert not one._channels.sent
        await one.begin(b"")
        with anyio.fail_after(5):
            while len(one._channels.sent) < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)

        async def cut(_channel, _data):
            raise ApiUnreachable("cut")

        one._channels.send = cut
    assert one._channels.sent[1:3] == [(0, b"."), (0, b".")]


def test_an_order_does_not_show_its_environment():
    """There are secrets in it."""
    assert "s3cret" not in repr(ExecOrder(("a",), {"TOKEN": "s3cret"}))


def test_the_url_is_short():
    """Proxies take 8 KiB at most, whatever is run."""
    request = exec_request("/api/v1/namespaces/iris/pods/p", "worker", ("python3",), new_mark())
    url = url_of("https://server", request)
    assert len(url) < 2000
    assert url.count("command=") == 7
    assert new_mark() != new_mark()
