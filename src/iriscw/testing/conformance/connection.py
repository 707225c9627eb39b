"""What every Connection must do. Subclass it in a test module and give a ``connection`` fixture.

It leads to a pod that runs, in which ``sh``, ``head``, ``sleep`` and ``yes`` are programs.
"""

from __future__ import annotations

import anyio
import pytest

from iriscw.cloud.model import ExecEnd, ExecOutput, InvalidSpec
from iriscw.cloud.ports import MAX_EXEC_OUTPUT_BYTES, Connection

MAX_CHUNK_BYTES = 64 << 10


def sh(text: str) -> list[str]:
    """Return the words of a command that runs a script."""
    return ["sh", "-c", text]


class ConnectionConformance:
    """The contract of :class:`~iriscw.cloud.ports.Connection`, as tests."""

    async def test_a_command_leaves_code_and_both_outputs(self, connection: Connection) -> None:
        """A code other than 0 is a result."""
        result = await connection.run(sh("echo out; echo err >&2; exit 3"), 20)
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
        assert not result.truncated

    async def test_words_reach_the_command_as_they_are(self, connection: Connection) -> None:
        """No shell is involved, and standard input is empty."""
        words = ["$HOME", "a b", "*", ";", "", "ä"]
        result = await connection.run(["sh", "-c", 'printf "%s|" "$@"; cat', "sh", *words], 20)
        assert result.stdout.decode() == "".join(f"{word}|" for word in words)

    async def test_variables_are_added(self, connection: Connection) -> None:
        """To those of the pod."""
        result = await connection.run(sh('echo "$ADDED"; test -n "$PATH"'), 20, {"ADDED": "x"})
        assert (result.exit_code, result.stdout) == (0, b"x\n")

    async def test_long_output_is_cut(self, connection: Connection) -> None:
        """And the result says so."""
        result = await connection.run(sh(f"head -c {MAX_EXEC_OUTPUT_BYTES + 1} /dev/zero"), 20)
        assert (len(result.stdout), result.truncated) == (MAX_EXEC_OUTPUT_BYTES, True)

    async def test_a_time_out_kills(self, connection: Connection) -> None:
        """The command with all it had started."""
        with pytest.raises(TimeoutError):
            await connection.run(sh("sleep 600 & echo $! > child; wait"), 0.5)
        left = await connection.run(sh('test -s child && ! kill -0 "$(cat child)"'), 20)
        assert left.exit_code == 0, "the child was not started, or outlived its command"

    async def test_what_cannot_start_has_a_name(self, connection: Connection) -> None:
        """In both ways of running."""
        with pytest.raises(InvalidSpec):
            await connection.run(["no-such-program"], 20)
        with pytest.raises(InvalidSpec):
            async for _ in connection.stream(["no-such-program"]):
                pass

    async def test_a_stream_gives_all_in_bounded_chunks(self, connection: Connection) -> None:
        """Each output by itself, more than any pipe holds, and at last the exit code."""
        outputs, ends = {False: b"", True: b""}, []
        with anyio.fail_after(30):
            async for said in connection.stream(sh("head -c 1000000 /dev/zero; echo end >&2; exit 3")):
                if isinstance(said, ExecEnd):
                    ends.append(said)
                    continue
                assert not ends
                assert len(said.data) <= MAX_CHUNK_BYTES
                outputs[said.stderr] += said.data
        assert (outputs, ends) == ({False: bytes(1_000_000), True: b"end\n"}, [ExecEnd(3)])

    async def test_a_signals_code_is_the_shells(self, connection: Connection) -> None:
        """128 and its number."""
        said = [each async for each in connection.stream(sh("kill -TERM $$"))]
        assert said == [ExecEnd(143)]

    async def test_a_stream_may_be_left(self, connection: Connection) -> None:
        """A command without end is killed by leaving it."""
        stream = connection.stream(["yes"])
        with anyio.fail_after(30):
            said = await anext(stream)
            assert isinstance(said, ExecOutput)
            assert said.data.startswith(b"y\n")
            await stream.aclose()  # type: ignore[attr-defined]

    async def test_python_is_there(self, connection: Connection) -> None:
        """By the words that are said."""
        result = await connection.run([*connection.interpreter, "-c", "print(6 * 7)"], 20)
        assert (result.exit_code, result.stdout) == (0, b"42\n")

    async def test_a_running_pod_is_ready(self, connection: Connection) -> None:
        """At once."""
        with anyio.fail_after(20):
            await connection.wait_until_ready(20)
