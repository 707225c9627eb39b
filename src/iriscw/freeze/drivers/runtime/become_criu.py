"""The program that a container runtime starts as ``criu``: it asks the agent, and becomes CRIU.

It runs as a plain file of the standard library alone, because a runtime starts it several times for each checkpoint. It
hands two sockets over: the runtime's, on which CRIU would have been asked, and one end of a new pair whose other end
CRIU gets in its place. So the agent stands between the two, and this process, which the runtime knows by its number,
is CRIU from then on. If the agent dies both sockets are closed by the kernel: CRIU undoes what it did, and the runtime
hears that it failed.

Whatever else it is asked for (``criu --version``) it cannot do without the agent either.
"""

import json
import os
import socket
import sys

FOLDER = "IRISCW_CRIU_DOOR"
"""The variable that names the folder in which the agent listens."""

SOCKET = "door"
ANSWER_BYTES = 65536


def main() -> None:
    """Become the CRIU that the agent names."""
    if len(sys.argv) != 3 or sys.argv[1] != "swrk" or not sys.argv[2].isdigit():
        sys.exit("criu: only what a container runtime asks for (swrk) is done here")
    number = int(sys.argv[2])
    folder = os.open(os.environ[FOLDER], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        agent.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # the name of a socket may be short only
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(agent, [b"criu"], [number, ours.fileno()])
        answer = agent.recv(ANSWER_BYTES)
    except OSError as error:
        sys.exit(f"criu: no agent answers: {error}")
    if not answer:
        sys.exit("criu: the agent gave this up")
    program, arguments, environment = json.loads(answer)
    os.dup2(its.fileno(), number)
    try:
        os.execve(program, [*arguments, "swrk", str(number)], environment)  # noqa: S606 - no shell
    except OSError as error:
        sys.exit(f"criu: {program} cannot be executed: {error}")


if __name__ == "__main__":
    main()
