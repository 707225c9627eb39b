"""A blocking client after a fork: its loop's thread is the parent's, so the child is told, and never waits."""

import subprocess
import sys

PROGRAM = """
import os, sys
from contextlib import asynccontextmanager
from iriscw.client import loops
from iriscw.client.errors import ClientClosed

@asynccontextmanager
async def making():
    yield "made"
    print(f"ended by {'the parent' if os.getpid() == parent else 'the child'}", flush=True)

parent = os.getpid()
with loops.on_a_loop(making()) as (loop, made):
    pid = os.fork()
    if pid:
        print("child's code", os.waitpid(pid, 0)[1], flush=True)
    try:
        print("calls", loop.call(len, made), flush=True)
    except ClientClosed as error:
        print("refused", error, flush=True)
if not pid:
    os._exit(0)
"""


def test_a_forked_child_is_told():
    """It gets the error by name, leaves the block without a word to the parent's, and the parent's goes on."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    refused = "refused this process was forked from the one in which the client works: connect here, too"
    assert done.stdout.splitlines() == [refused, "child's code 0", "calls 4", "ended by the parent"]
