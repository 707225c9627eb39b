"""Programs that nobody here wrote, frozen and thawed by the command: databases, a web server with workers, Node.js."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for strange_programs
sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))  # for real_trees

from real_trees import PATIENCE_S, Command, why_not
from strange_programs import Missing, Program, Running, all_ended, ask, on_free_port, version_in, version_of

from iriscw.freeze.drivers.criu.ability import probe
from iriscw.processes.identity import identify, send_signal
from waiting import block_until

pytestmark = pytest.mark.slow


@pytest.fixture
def folder():
    """A folder with a short name: a Unix socket's has 108 bytes."""
    if why_not():
        pytest.skip(why_not())
    path = Path(tempfile.mkdtemp(prefix="programs-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def command(folder):
    """The command line. Checkpoints go to disk: memory is shared with all other tests."""
    return Command(folder)


@pytest.fixture
def connections():
    """Skip where connections cannot be frozen, and say why."""
    if "network_lock_nftables" not in probe().features:
        pytest.skip("the kernel or this CRIU has no nftables, which keep the peer silent")


def found(name, *places):
    """Find a program, or skip and say why."""
    try:
        return Program(name, *places)
    except Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def start(folder):
    """Start programs; all of them are ended afterwards."""
    started = []

    def begin(program, *arguments, **words):
        started.append(Running(folder, program, *arguments, **words))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def frozen_and_thawed(command, running, *more):
    """Freeze it to disk, see that nothing of it runs, and bring it back; give how many processes it is."""
    processes = running.processes()
    code, out, err = command("checkpoint", "--pid", str(running.pid), "--tier", "disk", "-o", "json", *more)
    assert code == 0, err
    block_until(lambda: all_ended(processes), "nothing of it runs")
    done = json.loads(out)
    code, _, err = command("restore", done["checkpoint"])
    assert code == 0, err
    return done["processes"]


class Redis:
    """A client of Redis, over one connection."""

    def __init__(self, channel):
        self.channel = channel
        self.answers = channel.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.answers.close()
        self.channel.close()

    def ask(self, *words):
        """Send a command, and give the lines that are answered."""
        parts = (f"${len(word)}\r\n{word}\r\n" for word in words)
        self.channel.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self._answer()

    def _answer(self):
        line = self.answers.readline().decode().rstrip()
        if line.startswith("*"):
            return [self._answer() for _ in range(int(line[1:]))]
        return self.answers.readline().decode().rstrip() if line.startswith("$") else line


def test_redis_with_a_connected_client(folder, command, start, connections):
    """Data and an open transaction are there afterwards, on the same connection: the client notices nothing."""
    program = found("redis-server")
    options = ("--bind", "127.0.0.1", "--save", "", "--dir", str(folder), "--port")
    running, port = on_free_port(lambda port: start(program, *options, str(port)))
    with Redis(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) as client:
        assert client.ask("SET", "key", "value") == "+OK"
        assert client.ask("MULTI") == "+OK"
        assert client.ask("INCR", "counter") == "+QUEUED"
        assert frozen_and_thawed(command, running, "--tcp-established") == 1
        assert client.ask("GET", "key") == "+QUEUED"
        assert client.ask("EXEC") == [":1", "value"]
        with Redis(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) as another:
            assert another.ask("GET", "counter") == "1"


SUBSCRIBED = """
{server} --port 0 --unixsocket {folder}/redis --save '' --dir {folder} &
until {client} -s {folder}/redis ping; do :; done
{client} -s {folder}/redis subscribe news > {folder}/heard
"""


def test_redis_with_its_client_in_the_tree(folder, command, start):
    """A server and its subscriber, joined by a Unix socket, are frozen together: what is published is heard."""
    server, client = found("redis-server"), found("redis-cli")
    shell = found("sh")
    script = SUBSCRIBED.format(server=server.path, client=client.path, folder=folder)
    running = start(shell, "-c", script, environment=server.environment)
    heard = folder / "heard"
    running.ready(lambda: heard.exists() and b"subscribe\nnews\n1\n" in heard.read_bytes(), "it has subscribed")
    assert frozen_and_thawed(command, running) == 3
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(PATIENCE_S)
        channel.connect(str(folder / "redis"))
        with Redis(channel) as another:
            assert another.ask("PUBLISH", "news", "thawed") == ":1"
    block_until(lambda: b"message\nnews\nthawed\n" in heard.read_bytes(), "the subscriber has heard it")


NGINX_WITH_LOG_OPTION = (1, 19, 5)


def test_versions_are_compared_as_numbers():
    """As nginx writes its own, with what a distribution adds to it."""
    assert version_in("nginx version: nginx/1.22.1") >= NGINX_WITH_LOG_OPTION
    assert version_in("nginx version: nginx/1.19.10 (Ubuntu)") >= NGINX_WITH_LOG_OPTION
    assert version_in("nginx version: nginx/1.18.0 (Ubuntu)") < NGINX_WITH_LOG_OPTION
    assert version_in("it does not start") < NGINX_WITH_LOG_OPTION


NGINX = """
daemon off; user root; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen unix:{folder}/web; location / {{ stub_status; add_header Worker $pid; }} }}
}}
"""


def requests(folder):
    """Ask nginx how many requests all its workers have had, this one included: it is in memory that they share."""
    content = ask(folder / "web")
    return 0 if content is None else int(content.splitlines()[2].split()[2])


def test_nginx_with_workers(folder, command, start):
    """Its workers count on together, and its first process still replaces them when it is told to."""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    arguments = ("-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"))
    nginx = found("nginx")
    if version_of(nginx) < NGINX_WITH_LOG_OPTION:
        pytest.skip(f"{nginx.path} is older than 1.19.5: it writes to a log of the machine before it reads -e")
    running = start(nginx, *arguments)
    running.ready(lambda: requests(folder) > 0, "it answers")
    running.ready(lambda: len(running.processes()) == 3, "it has its workers")
    before = requests(folder)
    assert frozen_and_thawed(command, running) == 3
    assert requests(folder) == before + 1
    workers = {each for each in running.processes() if each.pid != running.pid}
    send_signal(identify(running.pid), signal.SIGHUP)
    block_until(lambda: all_ended(list(workers)) and len(running.processes()) == 3, "it has other workers")
    assert requests(folder) == before + 2


NODE = """
const {Worker, isMainThread, workerData} = require("worker_threads");
if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(4));
  new Worker(__filename, {workerData: shared});
  const state = {nonce: require("crypto").randomBytes(16).toString("hex"), answers: 0, ticks: 0};
  setInterval(() => state.ticks++, 2);
  require("http").createServer((request, response) => {
    state.answers++;
    response.on("finish", () => request.socket.destroy());
    response.end(JSON.stringify({...state, worker: Atomics.load(shared, 0)}));
  }).listen(process.argv[2]);
} else {
  setInterval(() => Atomics.add(workerData, 0, 1), 2);
}
"""


def test_node(folder, command, start):
    """What it holds is there, and timers of its first thread and of another one go on."""
    (folder / "main.js").write_text(NODE)
    web = folder / "web"
    arguments = (str(folder / "main.js"), str(web))
    running = start(found("node"), *arguments, environment={"UV_USE_IO_URING": "0", "HOME": str(folder)})
    answers = []

    def answered(holds):
        def so():
            content = ask(web)
            answers.extend([] if content is None else [json.loads(content)])
            return content is not None and holds(answers[-1])

        return so

    running.ready(answered(lambda now: now["ticks"] > 0 and now["worker"] > 0), "both threads count")
    before = answers[-1]
    assert frozen_and_thawed(command, running) == 1
    block_until(answered(lambda now: True), "it answers")
    after = answers[-1]
    assert (after["nonce"], after["answers"]) == (before["nonce"], before["answers"] + 1)
    assert after["ticks"] >= before["ticks"]
    assert after["worker"] >= before["worker"]
    block_until(
        answered(lambda now: now["ticks"] > after["ticks"] and now["worker"] > after["worker"]), "both count on"
    )


BIN = Path(sys.executable).parent
PAGE = Path(__file__).parents[3] / "docs" / "freezing.md"


def documented():
    """Return the server on uvloop that the page of freezing shows, and the words that start it there."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Programs on io_uring\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    (line,) = re.findall(r"^\$ (iriscw .*) > log 2>&1 &$", section, re.MULTILINE)
    return code, shlex.split(line)


@pytest.fixture
def uvloop(folder, start):
    """Start that server, as the page does or without what is in front of it; give it with its port."""
    code, words = documented()
    (folder / "server.py").write_text(code)

    def begin(*, freezable):
        first, *rest = words if freezable else words[words.index("--") + 1 :]
        path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
        return on_free_port(lambda port: start(found(first, BIN), *rest[:-1], str(port), environment=path))

    return begin


def counted(channel):
    """Have the server count once more."""
    channel.sendall(b"one more\n")
    return channel.recv(100)


def test_a_server_on_uvloop(command, uvloop, connections):
    """Started as the page says it is frozen and thawed, and the same connection counts on, the filter is there."""
    running, port = uvloop(freezable=True)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        assert [counted(channel), counted(channel)] == [b"1\n", b"2\n"]
        assert frozen_and_thawed(command, running, "--tcp-established") == 1
        assert [counted(channel), counted(channel)] == [b"3\n", b"4\n"]
    assert "\nSeccomp:\t2\n" in Path(f"/proc/{running.pid}/status").read_text()


def test_a_server_on_uvloop_that_was_just_started(command, uvloop):
    """It holds an io_uring: it is refused, told each way out, and runs on."""
    running, port = uvloop(freezable=False)
    code, _, err = command("checkpoint", "--pid", str(running.pid), "--tier", "disk")
    assert (code, "io_uring" in err) == (3, True)
    assert [way for way in ("freezable=True", "iriscw freezable -- COMMAND", "--loop asyncio") if way not in err] == []
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
        assert counted(channel) == b"1\n"
