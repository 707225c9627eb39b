"""Waiting for what tells nobody: another process, a thread, a file. What has an event is waited for by the event."""

import time

import anyio

PATIENCE_S = 60


async def until(condition, patience_s=PATIENCE_S):
    """Wait until ``condition()`` is true; give what it returned.

    Raises:
        TimeoutError: it did not become true within ``patience_s`` seconds.
    """
    with anyio.fail_after(patience_s):
        while not (found := condition()):  # noqa: ASYNC110 - what is waited for has no event
            await anyio.sleep(0.005)
        return found


def block_until(condition, what="", patience_s=PATIENCE_S):
    """Wait, in a program without a loop, until ``condition()`` is true; a failure says ``what`` was expected."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, f"it never came to this: {what or condition}"
        time.sleep(0.002)
