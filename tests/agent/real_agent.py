"""The node agent as a process of its own."""

import signal

import anyio
from real_trees import PATIENCE_S, Command

from iriscw.agent.client import AgentCaller


class Serving:
    """An agent that can be killed and started again."""

    def __init__(self, folder, within=(), options=(), **environment):
        """``within`` is a program, with its arguments, that becomes the agent."""
        self.folder, self.within, self.options = folder, within, options
        self.environment = environment
        self.socket = folder / "s" / "agent.sock"
        (folder / "root").mkdir(mode=0o700)
        (folder / "runc").mkdir(mode=0o700, exist_ok=True)
        self.process = None
        self.said = ""
        self.start()

    def start(self):
        """Start it, and wait until it says that it listens."""
        command = Command(self.folder)
        command.environment["IRISCW_STATE_DIR"] = str(self.folder / "state")
        command.environment.update(self.environment)
        options = ("--root", str(self.folder / "root"), "--runtime-root", str(self.folder / "runc"))
        options += ("--lock-patience", f"{PATIENCE_S:g}s")  # what a killed agent had just forked may hold its state
        self.process = command.start(
            "agent", "serve", "--socket", str(self.socket), *options, *self.options, within=self.within
        )
        self.said = ""
        while "iriscw agent at" not in self.said and (line := self.process.stderr.readline()):
            self.said += line
        assert "iriscw agent at" in self.said, self.said

    def kill(self):
        """Kill it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)

    def end(self):
        """End it, whatever state it is in."""
        if self.process.returncode is None:
            self.kill()

    def nothing_owed(self):
        """Wait until it has done with what it took up."""

        async def wait():
            with anyio.fail_after(PATIENCE_S):
                async with AgentCaller(self.socket) as caller:
                    for view in await caller.operations():
                        async for _ in caller.watch(view.asked.operation):
                            pass

        anyio.run(wait)
