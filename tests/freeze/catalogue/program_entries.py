"""Programs without a network: interpreters, pools of processes, pipelines, supervisors, and what runs on a terminal."""

import contextlib
import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))

from catalogue_entry import TERMINALS, Entry, Live, Stage, Without, above, refused, until
from server_entries import debian_python, module
from shape_entries import draining, live

SAY = """
import json, os, time
def say(folder, count, state):
    with open(f"{folder}/said.new", "w") as file:
        json.dump({"count": count, "state": state}, file)
    os.replace(f"{folder}/said.new", f"{folder}/said")
    time.sleep(0.01)
"""
"""How a program in Python says that it goes on, and what it holds."""


def written(stage: Stage, source: str) -> Path:
    """Write a program in Python into the stage's folder."""
    path = stage.folder / "main.py"
    path.write_text(SAY + source)
    return path


def python(name: str, source: str, needs: str = "", **words) -> Entry:
    """Return the entry of a program for this Python."""

    def begin(stage: Stage) -> Live:
        interpreter = module(needs) if needs else [sys.executable]
        return live(stage, stage.start([*interpreter, written(stage, source), stage.folder]))

    return Entry(name, begin, **words)


POOL = """
import multiprocessing, sys
def square(number): return number * number
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for count in range(1, 1 << 60):
            say(sys.argv[1], count, pool.map(square, range(10)))
"""

FUTURES = """
import concurrent.futures, sys, threading
def square(number): return number * number
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2) as processes, concurrent.futures.ThreadPoolExecutor(4) as threads:
        for count in range(1, 1 << 60):
            say(sys.argv[1], count, [[*each.map(square, range(8))] for each in (processes, threads)])
"""

SHARED = """
import multiprocessing, sys
def work(shared, tasks, done, lock):
    for number in iter(tasks.get, None):
        with lock:
            shared[0] += 1
        done.put(number)
if __name__ == "__main__":
    shared, lock = multiprocessing.RawArray("q", 1), multiprocessing.Lock()
    tasks, done = multiprocessing.Queue(), multiprocessing.Queue()
    for _ in range(2):
        multiprocessing.Process(target=work, args=(shared, tasks, done, lock), daemon=True).start()
    for count in range(1, 1 << 60):
        before = shared[0]
        for number in range(4): tasks.put(number)
        got = sorted(done.get() for _ in range(4))
        say(sys.argv[1], count, [got, shared[0] - before])
"""

POPEN = """
import subprocess, sys
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    for count in range(1, 1 << 60):
        child.stdin.write(b"hello\\n")
        child.stdin.flush()
        say(sys.argv[1], count, child.stdout.readline().decode())
"""

ASYNCIO = """
import asyncio, sys
async def main():
    child = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    for count in range(1, 1 << 60):
        child.stdin.write(b"hello\\n")
        await asyncio.sleep(0.001)
        line = await asyncio.wait_for(child.stdout.readline(), 10)
        say(sys.argv[1], count, [line.decode(), await asyncio.to_thread(len, line)])
asyncio.run(main())
"""

TRAINING = """
import sys, numpy as np
noise = np.random.default_rng(7)
inputs = noise.normal(size=(256, 128))
wanted = np.tanh(inputs @ noise.normal(size=(128, 8)))
def losses():
    first, second = (np.random.default_rng(1).normal(size=s) * 0.1 for s in ((128, 64), (64, 8)))
    while True:
        hidden = np.tanh(inputs @ first)
        error = hidden @ second - wanted
        yield float((error**2).mean())
        slope = (error @ second.T) * (1 - hidden**2)
        second -= 0.001 * hidden.T @ error
        first -= 0.001 * inputs.T @ slope
expected = []
for loss, _ in zip(losses(), range(400)): expected.append(loss)
count = 0
while True:
    right = True
    for step, loss in enumerate(losses()):
        if step == len(expected): break
        right = right and loss == expected[step]
        if step % 20 == 0:
            count += 1
            say(sys.argv[1], count, right)
"""

TORCH = """
import sys, torch
torch.set_num_threads(2)
torch.manual_seed(7)
inputs, noise = torch.randn(256, 128), torch.randn(128, 8)
wanted = torch.tanh(inputs @ noise)
def losses():
    torch.manual_seed(1)
    layers = torch.nn.Linear(128, 64), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    while True:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        yield loss.item()
expected = [loss for loss, _ in zip(losses(), range(200))]
count = 0
while True:
    right = True
    for step, (loss, before) in enumerate(zip(losses(), expected)):
        right = right and loss == before
        if step % 20 == 0:
            count += 1
            say(sys.argv[1], count, [right, torch.get_num_threads()])
"""

LOADER = """
import sys, torch
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 256
    def __getitem__(self, index): return torch.full((64, 64), float(index)).square_()
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Squares(), 16, shuffle=True, num_workers=2, persistent_workers=True, generator=torch.Generator().manual_seed(7)
    )
    count = 0
    while True:
        total = 0.0
        for batch in loader:
            total += batch[:, 0, 0].sum().item()
            count += 1
            say(sys.argv[1], count, [list(batch.shape), total < 6e6])
        assert total == sum(index**2 for index in range(256)), total
"""

PEXPECT = """
import pexpect, sys
child = pexpect.spawn("cat", echo=False)
for count in range(1, 1 << 60):
    child.sendline("hello")
    child.expect_exact("hello\\r\\n")
    say(sys.argv[1], count, child.isalive())
"""

PERL = """
$| = 1; my %h = map { $_ => $_ * 2 } 1..1000; my $n = 0;
while (1) { $n++; my $s = 0; $s += $_ for values %h;
  open(my $f, ">", "$ARGV[0]/said.new"); print $f "{\\"count\\": $n, \\"state\\": $s}"; close $f;
  rename("$ARGV[0]/said.new", "$ARGV[0]/said"); select(undef, undef, undef, 0.01); }
"""

RUBY = """
held = (1..1000).map { |each| [each, each.to_s * 3] }.to_h
turns = Thread::Queue.new
Thread.new { loop { turns << 1; sleep 0.01 } }
(1..).each do |count|
  turns.pop
  File.write("#{ARGV[0]}/said.new", %({"count": #{count}, "state": #{held.values.map(&:size).sum}}))
  File.rename("#{ARGV[0]}/said.new", "#{ARGV[0]}/said")
end
"""


def debian(name: str, source: str, **words) -> Entry:
    """Return the entry of a program for the system's Python, with what was fetched for it."""

    def begin(stage: Stage) -> Live:
        interpreter, environment = debian_python()
        environment["PATH"] = os.environ["PATH"]
        return live(stage, stage.start([*interpreter, written(stage, source), stage.folder], environment))

    return Entry(name, begin, **words)


def perl(stage: Stage) -> Live:
    """It holds a table."""
    return live(stage, stage.run("perl", "-e", PERL, stage.folder))


def ruby(stage: Stage) -> Live:
    """It holds a table, and has a thread."""
    program = stage.program("ruby")
    (library,) = (Path(program.environment["LD_LIBRARY_PATH"]) / "ruby").glob("[0-9]*")
    libraries = f"{library.parents[2] / 'ruby' / library.name}:{library}"
    return live(
        stage, stage.run("ruby", "--disable-gems", "-e", RUBY, stage.folder, environment={"RUBYLIB": libraries})
    )


# -- pipelines


def counted(stage: Stage, process: subprocess.Popen, file: str = "output") -> Live:
    """Return a program whose output are numbers in a row: it goes on where it was, and none is missing."""
    path = stage.folder / file

    def numbers() -> list[int]:
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [int(each) for each in lines]

    stage.ready(process, lambda: len(numbers()) > 2, "it counts")

    def goes_on() -> None:
        before = len(numbers())
        until(lambda: len(numbers()) > before + 2, "it counts on")
        now = numbers()
        assert now == [*range(now[0], now[0] + len(now))], "a number is missing, or stands twice"

    return Live(process.pid, lambda: None, goes_on)


COUNT = "import time\nfor each in range(1 << 60): print(each, flush=True); time.sleep(0.02)"
COUNTING = (sys.executable, "-I", "-S", "-c", COUNT)
"""No shell does that: it starts a program for each pause, which may be there or not at any moment."""


def pipeline(stage: Stage) -> Live:
    """A shell with all programs of a pipeline."""
    script = f"{shlex.join(COUNTING)} | cat | grep --line-buffered . | sed -u s/x// | cat | tee copy | cat"
    return counted(stage, stage.run("bash", "-c", script))


def into_tee(stage: Stage) -> Live:
    """`command | tee log`, all of it in one session."""
    return counted(stage, stage.run("sh", "-c", f"{shlex.join(COUNTING)} | tee log"), "log")


def end_of_tee(stage: Stage) -> Live:
    """`command | tee log`, of which the command alone is to be frozen."""
    tee = stage.run("tee", "log", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process = stage.start(COUNTING, stdout=tee.stdin)
    tee.stdin.close()
    return counted(stage, process, "log")


def close_all(*files) -> None:
    """Close files; what was not sent yet is for nobody any more."""
    for each in files:
        with contextlib.suppress(BrokenPipeError):
            each.close()


def popen_child(stage: Stage) -> Live:
    """A child whose input and output are pipes to its parent, which is not to be frozen."""
    child = stage.run("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stage.held.callback(close_all, child.stdin, child.stdout)

    def goes_on() -> None:
        child.stdin.write(b"hello\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"hello\n"

    goes_on()
    return Live(child.pid, lambda: None, goes_on)


def stderr_outside(stage: Stage) -> Live:
    """Only its standard error is a pipe to the outside."""
    read, write = os.pipe()
    draining(stage, read)
    process = stage.start(COUNTING, stderr=write)
    os.close(write)
    return counted(stage, process)


# -- supervisors and kernels

SUPERVISED = """
[supervisord]
nodaemon=true
user=root
logfile={folder}/log
pidfile={folder}/pid
childlogdir={folder}
[unix_http_server]
file={folder}/control
[program:count]
command={count}
stdout_logfile={folder}/counted
stdout_logfile_maxbytes=0
startsecs=0
[program:wait]
command=sleep 1000
startsecs=0
"""


def supervisord(stage: Stage) -> Live:
    """Two programs, one of which says something through a pipe."""
    interpreter, environment = debian_python()
    (stage.folder / "count.py").write_text(COUNT)
    count = f"{sys.executable} -I -S {stage.folder}/count.py"
    (stage.folder / "conf").write_text(SUPERVISED.format(folder=stage.folder, count=count))
    process = stage.start([*interpreter, "-m", "supervisor.supervisord", "-c", stage.folder / "conf"], environment)
    stage.ready(
        process, lambda: "wait" in stage.output() and len(stage.numbers(process.pid)) > 2, "it has started both"
    )
    return counted(stage, process, "counted")


KERNEL_CLIENT = """
import sys
from jupyter_client import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=60)
def hear(message): said.append(message["content"].get("text", ""))
for line in sys.stdin:
    said = []
    client.execute_interactive(line.strip(), timeout=60, output_hook=hear)
    print("".join(said).strip(), flush=True)
"""


def ipykernel(stage: Stage) -> Live:
    """A kernel of a notebook, with a client over TCP that stays connected."""
    interpreter, environment = debian_python()
    connection = stage.folder / "connection"
    environment["IPYTHONDIR"] = str(stage.folder)
    process = stage.start([*interpreter, "-m", "ipykernel_launcher", "-f", connection], environment)
    stage.ready(process, lambda: connection.exists() and connection.stat().st_size, "it has written where it is")
    client = stage.start(
        [*interpreter, "-c", KERNEL_CLIENT, connection],
        environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stage.held.callback(close_all, client.stdin, client.stdout)

    def ask(line: str) -> str:
        client.stdin.write(f"{line}\n")
        client.stdin.flush()
        return client.stdout.readline().strip()

    numbers = itertools.count()
    assert ask("held = list(range(100)); print(sum(held))") == "4950", stage.output()

    def goes_on() -> None:
        number = next(numbers)
        assert ask(f"held.append(0); print(sum(held) + {number})") == str(4950 + number)

    return Live(process.pid, lambda: None, goes_on)


# -- terminals: the one who holds the other end is in the tree


class Tmux:
    """A server of terminals, of which no client is connected while it is frozen."""

    def __init__(self, stage: Stage, *command: str) -> None:
        program = stage.program("tmux")
        self.stage = stage
        self.words = [program.path, "-S", str(stage.folder / "tmux"), "-f", "/dev/null"]
        self.environment = {**program.environment, "TERM": "xterm", "HOME": str(stage.folder)}
        terminfo = Path("/usr/share/terminfo"), Path("/lib/terminfo")
        self.environment["TERMINFO_DIRS"] = ":".join(map(str, terminfo))
        self.process = stage.start([*self.words, "-D"], self.environment)
        stage.ready(self.process, (stage.folder / "tmux").exists, "it listens")
        self.tell("new-session", "-d", "-x", "80", "-y", "24", *command)

    def tell(self, *words: str) -> str:
        """Have the server do something."""
        done = subprocess.run(
            [*self.words, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            cwd=self.stage.folder,
        )
        return done.stdout

    def screen(self) -> str:
        """Return what stands on the screen."""
        return self.tell("capture-pane", "-p").strip()

    def type(self, text: str) -> None:
        """Type a line."""
        self.tell("send-keys", "-l", text)
        self.tell("send-keys", "Enter")

    def shows(self, text: str) -> None:
        """Wait until it stands on the screen."""
        until(lambda: text in self.screen(), f"{text!r} stands on the screen")


def tmux_python(stage: Stage) -> Live:
    """A shell, and in it a Python that waits for a line."""
    tmux = Tmux(stage, "bash", "--norc")
    tmux.type(f"{sys.executable} -i -q -I -S")
    tmux.shows(">>>")
    tmux.type("held = 17")
    numbers = itertools.count(1000)

    def goes_on() -> None:
        number = next(numbers)
        tmux.type(f"print(held + {number})")
        tmux.shows(f"\n{17 + number}\n")
        assert "Stopped" not in tmux.screen()

    return Live(tmux.process.pid, lambda: None, goes_on)


def tmux_vim(stage: Stage) -> Live:
    """An editor with a text that was not written to the disk."""
    program = stage.program("vim.tiny")
    tmux = Tmux(stage, program.path, "-u", "NONE", "-i", "NONE", str(stage.folder / "text"))
    tmux.shows("~")
    tmux.tell("send-keys", "-l", "ifirst")
    tmux.shows("first")
    count = itertools.count()

    def goes_on() -> None:
        word = f"word{next(count)}"
        tmux.tell("send-keys", "-l", f" {word}")
        tmux.shows(word)

    return Live(tmux.process.pid, lambda: None, goes_on)


def tmux_top(stage: Stage) -> Live:
    """A program that redraws its screen."""
    tmux = Tmux(stage, stage.program("top").path, "-d", "0.2")
    tmux.shows("load average")

    def goes_on() -> None:
        before = tmux.screen()
        until(lambda: tmux.screen() != before, "it redraws its screen")

    return Live(tmux.process.pid, lambda: None, goes_on)


def script(stage: Stage) -> Live:
    """`script` holds one end of a terminal, and what it runs the other one."""
    return counted(stage, stage.run("script", "-q", "-f", "-c", shlex.join(COUNTING), "/dev/null"))


PROGRAMS = (
    python("multiprocessing pool", POOL),
    python("concurrent.futures, processes and threads", FUTURES),
    python("multiprocessing queues, locks, shared memory", SHARED),
    python("Popen child with pipes in the tree", POPEN),
    python("asyncio with a child and threads", ASYNCIO),
    python("numpy training", TRAINING, needs="numpy"),
    debian("PyTorch training", TORCH),
    debian("PyTorch DataLoader with two workers", LOADER, changing={"descriptors"}),  # those of batches
    attrs.evolve(debian("pexpect", PEXPECT, alone=TERMINALS), begin=above(debian("pexpect", PEXPECT).begin)),
    Entry("Perl", perl),
    Entry("Ruby with a thread", ruby),
    Entry("pipeline of seven", pipeline, changing={"pending_signals"}),
    Entry("command | tee log, the whole", into_tee),
    Entry("command | tee log, the command alone", end_of_tee, refused("target", "not in its tree")),
    Entry("Popen child alone", popen_child, refused("target", "not in its tree")),
    Entry("standard error to the outside", stderr_outside, refused("target", "not in its tree")),
    Entry("supervisord with two programs", supervisord),
    Entry("ipykernel with a client", ipykernel, freeze=("--tcp-established",), changing={"descriptors", "threads"}),
    # A terminal can be had again by the first process of a session alone, and CRIU has made the others by then.
    Entry(
        "tmux with a shell and Python",
        above(tmux_python),
        Without({"terminal"}),
        alone=TERMINALS,
        changing={"descriptors", "pending_signals"},
    ),
    Entry("tmux with vim", above(tmux_vim), alone=TERMINALS, changing={"descriptors"}),
    Entry("tmux with top", above(tmux_top), alone=TERMINALS, changing={"descriptors"}),
    # It blocks SIGCONT, which lets it run; what it runs does not lead the session of its terminal.
    Entry("script", above(script), Without({"terminal"}), alone=TERMINALS, changing={"pending_signals"}),
)
