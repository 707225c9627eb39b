"""Servers: databases, web servers, caches, each with a client that stays connected."""

import functools
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from catalogue_entry import PATIENCE_S, Entry, Live, Stage, Unavailable, answers, free_port, refused, until
from program_peers import KeptAlive, Lines, Load, WebSocket, http_server
from shape_entries import OTHER_USER, TCP, live
from strange_programs import fetched, libraries

FDS = {"descriptors"}
"""What changes with each request: a connection that somebody else has closed may not be closed here yet."""


def server(name: str, begin, **words) -> Entry:
    """Return the entry of a server with connected clients."""
    return Entry(name, begin, **{"freeze": TCP, "changing": FDS, **words})


def debian_python() -> tuple[list[str], dict[str, str]]:
    """Return the system's Python, with what was fetched for it.

    Raises:
        Unavailable: it is not there.
    """
    folder, python = fetched(), Path("/usr/bin/python3")
    if folder is None or not python.exists():
        raise Unavailable("there is no /usr/bin/python3 with what tests/freeze/programs/install-programs fetches")
    path = f"{folder}/usr/lib/python3/dist-packages"
    words = {"PYTHONPATH": path, "LD_LIBRARY_PATH": libraries(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return [str(python), "-s"], words


def module(name: str) -> list[str]:
    """Return this Python, where it has a module.

    Raises:
        Unavailable: it has not.
    """
    done = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False)
    if done.returncode:
        raise Unavailable(f"there is no Python module {name} here")
    return [sys.executable]


# -- databases and caches


def redis_in_transaction(stage: Stage) -> Live:
    """A client has begun a transaction."""
    port = free_port()
    process = stage.run("redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1")
    stage.ready(process, lambda: answers(port), "it listens")
    client = Lines(stage, port)
    assert client.ask("SET key value") == "+OK"
    assert client.ask("MULTI") == "+OK"
    queued = 0

    def goes_on() -> None:
        nonlocal queued
        assert client.ask("INCR counter") == "+QUEUED"
        queued += 1
        assert client.ask("EXEC") == "*1"
        assert client.heard.readline() == b":%d\r\n" % queued
        assert client.ask("MULTI") == "+OK"

    return Live(process.pid, lambda: None, goes_on)


def redis_that_saves(stage: Stage) -> Live:
    """Its child writes what it holds to the disk, slowly."""
    port = free_port()
    options = ("--save", "", "--bind", "127.0.0.1", "--rdb-key-save-delay", "20000")
    process = stage.run("redis-server", "--port", str(port), *options)
    stage.ready(process, lambda: answers(port), "it listens")
    client = Lines(stage, port)
    for key in range(100):
        assert client.ask(f"SET {key} {key}") == "+OK"
    assert client.ask("BGSAVE").startswith("+Background")

    def goes_on() -> None:
        assert client.ask("INCR counter").startswith(":")
        until((stage.folder / "dump.rdb").exists, "the child has written its file")

    return Live(process.pid, lambda: None, goes_on)


def memcached(stage: Stage, user: str) -> Live:
    """A client is connected."""
    port = free_port()
    process = stage.run("memcached", "-u", user, "-l", "127.0.0.1", "-p", str(port))
    stage.ready(process, lambda: answers(port), "it listens")
    client = Lines(stage, port)
    assert client.ask("set counter 0 0 1\r\n7") == "STORED"
    count = 7

    def goes_on() -> None:
        nonlocal count
        count += 1
        assert client.ask("incr counter 1") == str(count)

    return Live(process.pid, lambda: None, goes_on)


ANOTHER_USER = """
#include <unistd.h>
uid_t getuid(void) { return 65534; }
uid_t geteuid(void) { return 65534; }
"""


def as_another_user(stage: Stage) -> str:
    """Return a library that has a program of root believe that it is none.

    Raises:
        Unavailable: there is no compiler.
    """
    source, library = stage.folder / "user.c", stage.folder / "user.so"
    source.write_text(ANOTHER_USER)
    if shutil.which("gcc") is None:
        raise Unavailable("there is no gcc, to have PostgreSQL run as root")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


def postgresql(stage: Stage) -> Live:
    """A client is in a transaction. It may not run as root, and has to believe that it does not."""
    folder = fetched() or Path("/")  # a version that the system has is not fetched again
    places = [each for at in {folder, Path("/")} for each in sorted((at / "usr/lib/postgresql").glob("*/bin"))]
    if not places:
        raise Unavailable("there is no PostgreSQL: tests/freeze/programs/install-programs fetches it")
    environment = {"LD_LIBRARY_PATH": f"{folder}/usr/lib/{os.uname().machine}-linux-gnu"}
    environment["LD_PRELOAD"] = as_another_user(stage)
    data, port = stage.folder / "data", free_port()
    data.mkdir(mode=0o700)
    shutil.chown(data, 65534, 65534)
    made = stage.start(
        [places[0] / "initdb", "-D", data, "-U", "tests", "--no-sync", "--auth=trust", "--no-locale", "-E", "UTF8"],
        environment,
    )
    assert made.wait(PATIENCE_S * 3) == 0, stage.output()
    settings = ("fsync=off", f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "jit=off")
    process = stage.start(
        [
            *("unshare", "--ipc", "--"),
            *(places[0] / "postgres", "-D", data),
            *(word for each in settings for word in ("-c", each)),
        ],
        environment,
    )
    stage.ready(process, lambda: "ready to accept connections" in stage.output(), "it is ready")
    client = subprocess.Popen(
        [str(places[0] / "psql"), "-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "tests", "postgres"],
        env={**environment, "PATH": os.environ["PATH"], "LD_PRELOAD": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def end() -> None:
        client.kill()
        client.communicate()

    stage.held.callback(end)

    def ask(*statements: str) -> str:
        for each in statements:
            client.stdin.write(f"{each};\n")
        client.stdin.write("\\echo end\n")
        client.stdin.flush()
        answer = "".join(iter(client.stdout.readline, "end\n"))
        return answer.strip()

    ask("create table t (n int)", "begin", "insert into t select generate_series(1, 1000)")
    committed = 0

    def goes_on() -> None:
        nonlocal committed
        committed += 1000
        answer = ask("commit", "select count(*) from t", "begin", "insert into t select generate_series(1, 1000)")
        assert str(committed) in answer.splitlines(), answer

    return Live(process.pid, lambda: None, goes_on)


SQLITE = """
import json, os, sqlite3, sys, time
folder, mode = sys.argv[1:]
database = sqlite3.connect(f"{folder}/data", isolation_level=None)
database.execute(f"pragma journal_mode={mode}")
database.execute("create table t (who text)")
database.execute("begin immediate")
database.executemany("insert into t values (?)", [("first",)] * 2000)
count = 0
while True:
    count += 1
    if database.in_transaction and os.path.exists(f"{folder}/commit"):
        database.execute("commit")
        open(f"{folder}/committed", "w").close()
    state = database.execute("select count(*) from t where who='first'").fetchone()
    with open(f"{folder}/said.new", "w") as file:
        json.dump({"count": count, "state": state}, file)
    os.replace(f"{folder}/said.new", f"{folder}/said")
    time.sleep(0.01)
"""

SECOND = """
import sqlite3, sys
database = sqlite3.connect(f"{sys.argv[1]}/data", isolation_level=None, timeout=float(sys.argv[2]))
try:
    database.execute("begin immediate")
except sqlite3.OperationalError as error:
    print(error)
else:
    database.executemany("insert into t values (?)", [("second",)] * 3000)
    database.execute("commit")
    print("written")
print(*(each for each, in database.execute("select count(*) from t group by who order by who")))
print(*database.execute("pragma integrity_check").fetchone())
"""


def sqlite(mode: str):
    """Return what begins a program that is in a transaction while a second one may want to write."""

    def begin(stage: Stage) -> Live:
        held = live(stage, stage.start([sys.executable, "-I", "-c", SQLITE, stage.folder, mode]))

        def second(patience_s: float) -> list[str]:
            words = [sys.executable, "-I", "-c", SECOND, str(stage.folder), str(patience_s)]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

        def goes_on() -> None:
            held.goes_on()
            assert second(0)[0] == "database is locked"
            (stage.folder / "commit").touch()
            until((stage.folder / "committed").exists, "it has committed")
            assert second(PATIENCE_S) == ["written", "2000 3000", "ok"]
            held.goes_on()

        return Live(held.pid, held.state, goes_on)

    return begin


LMDB = """
import json, lmdb, os, sys, time
folder = sys.argv[1]
database = lmdb.open(f"{folder}/data", map_size=1 << 24)
with database.begin(write=True) as first:
    first.put(b"kept", b"value")
count = 0
while True:
    with database.begin(write=True) as transaction:
        count = int(transaction.get(b"count", b"0")) + 1
        transaction.put(b"count", b"%d" % count)
        state = transaction.get(b"kept").decode()
        with open(f"{folder}/said.new", "w") as file:
            json.dump({"count": count, "state": state}, file)
        os.replace(f"{folder}/said.new", f"{folder}/said")
        time.sleep(0.01)
"""


def lmdb(stage: Stage) -> Live:
    """It writes to a mapped database, with locks that lie in it."""
    python, environment = debian_python()
    return live(stage, stage.start([*python, "-c", LMDB, stage.folder], environment))


# -- web servers

NGINX = """
daemon off; user root; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; keepalive_timeout 600; keepalive_requests 100000;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello"; }} }}
}}
"""


def nginx(stage: Stage) -> Live:
    """Two workers and twenty clients."""
    port = free_port()
    (stage.folder / "conf").write_text(NGINX.format(folder=stage.folder, port=port))
    process = stage.run("nginx", "-p", stage.folder, "-e", stage.folder / "error.log", "-c", stage.folder / "conf")
    return http_server(stage, process, port, clients=20)


HAPROXY = """
defaults
    mode http
    timeout connect 60s
    timeout client 600s
    timeout server 60s
frontend f
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string hello
"""


def haproxy(stage: Stage) -> Live:
    """Two clients."""
    port = free_port()
    (stage.folder / "conf").write_text(HAPROXY.format(port=port))
    process = stage.run("haproxy", "-f", stage.folder / "conf", "-db")
    return http_server(stage, process, port, clients=2)


def busybox(stage: Stage) -> Live:
    """It has no client: it closes each connection."""
    port = free_port()
    (stage.folder / "page").write_text("hello")
    process = stage.run("busybox", "httpd", "-f", "-p", f"127.0.0.1:{port}", "-h", stage.folder)
    stage.ready(process, lambda: answers(port), "it listens")

    def goes_on() -> None:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as channel:
            channel.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            assert b"".join(iter(lambda: channel.recv(1 << 16), b"")).endswith(b"hello")

    return Live(process.pid, lambda: None, goes_on)


def rsync(stage: Stage) -> Live:
    """It listens, and hands out a file."""
    port = free_port()
    (stage.folder / "files").mkdir()
    (stage.folder / "files" / "one").write_text("hello")
    (stage.folder / "conf").write_text(f"use chroot = no\n[files]\npath = {stage.folder}/files\nuid = 0\ngid = 0\n")
    process = stage.run(
        *("rsync", "--daemon", "--no-detach", f"--config={stage.folder}/conf", "--address=127.0.0.1"), f"--port={port}"
    )
    stage.ready(process, lambda: answers(port), "it listens")
    program = stage.program("rsync")

    def goes_on() -> None:
        there = stage.folder / "there"
        words = [program.path, "-a", f"rsync://127.0.0.1:{port}/files/", f"{there}/"]
        subprocess.run(words, env=program.environment, check=True, timeout=PATIENCE_S)
        assert (there / "one").read_text() == "hello"
        shutil.rmtree(there)

    return Live(process.pid, lambda: None, goes_on)


def dnsmasq(stage: Stage) -> Live:
    """It answers what is asked over UDP."""
    port = free_port(socket.SOCK_DGRAM, socket.SOCK_STREAM)  # it listens to both
    words = ("--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--user=root", "--pid-file=")
    process = stage.run(
        *("dnsmasq", *words, f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces"),
        "--address=/frozen.test/192.0.2.7",
    )
    question = b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06frozen\x04test\x00\x00\x01\x00\x01"
    client = stage.held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client.connect(("127.0.0.1", port))
    client.settimeout(0.2)

    def answered() -> bool:
        try:
            client.send(question)
            return client.recv(512).endswith(bytes([192, 0, 2, 7]))
        except (ConnectionRefusedError, TimeoutError):
            return False

    stage.ready(process, answered, "it answers")
    return Live(process.pid, lambda: None, lambda: until(answered, "it answers"))


NODE = """
const {Worker, isMainThread, workerData} = require("worker_threads");
if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(4));
  new Worker(__filename, {workerData: shared});
  const nonce = require("crypto").randomBytes(16).toString("hex");
  const server = require("http").createServer((request, response) => {
    const before = Atomics.load(shared, 0);
    const timer = setInterval(() => {
      if (Atomics.load(shared, 0) > before) { clearInterval(timer); response.end(nonce); }
    }, 1);
  });
  server.keepAliveTimeout = 600000;
  server.listen(+process.argv[2], "127.0.0.1");
} else {
  setInterval(() => Atomics.add(workerData, 0, 1), 2);
}
"""


def node(stage: Stage) -> Live:
    """A client; what is asked is answered when another thread has counted further."""
    (stage.folder / "main.js").write_text(NODE)
    port = free_port()
    process = stage.run("node", stage.folder / "main.js", str(port), environment={"UV_USE_IO_URING": "0"})
    stage.ready(process, lambda: answers(port), "it listens")
    client = KeptAlive(stage, port)
    return Live(process.pid, client.get, client.get)


GO = """
package main

import ("fmt"; "net/http"; "os"; "sync/atomic"; "time")

func main() {
    var count atomic.Int64
    for i := 0; i < 100; i++ { go func() { for range time.Tick(10 * time.Millisecond) { count.Add(1) } }() }
    http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
        for before := count.Load(); count.Load() < before+200; { time.Sleep(time.Millisecond) }
        fmt.Fprint(w, "hello")
    })
    panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
"""


@functools.cache
def go_program() -> Path:
    """Build the program once for this user.

    Raises:
        Unavailable: there is no Go.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("there is no Go")
    version = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    name = hashlib.sha256((version + GO).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iriscw" / f"catalogue-go-{name}"
    if not (folder / "server").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.go").write_text(GO)
        made = folder / f"server.{os.getpid()}"
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
        subprocess.run([go, "build", "-o", str(made), "main.go"], cwd=folder, env=environment, check=True)
        made.replace(folder / "server")
    return folder / "server"


def go(stage: Stage) -> Live:
    """A hundred tickers and a client."""
    port = free_port()
    return http_server(stage, stage.start([go_program(), str(port)]), port)


JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

public class Main {
    public static void main(String[] words) throws Exception {
        AtomicLong count = new AtomicLong();
        for (int i = 0; i < 20; i++) {
            Thread thread = new Thread(() -> {
                byte[][] kept = new byte[16][];
                for (int n = 0; ; n++) { kept[n % 16] = new byte[1 << 16]; count.incrementAndGet(); pause(); }
            });
            thread.setDaemon(true);
            thread.start();
        }
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 0);
        server.createContext("/", exchange -> {
            for (long before = count.get(); count.get() < before + 100; ) pause();
            byte[] answer = "hello".getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(2));
        server.start();
    }
    static void pause() { try { Thread.sleep(5); } catch (InterruptedException e) { throw new RuntimeException(e); } }
}
"""


def java(collector: str):
    """Return what begins a server of Java with a garbage collector."""

    def begin(stage: Stage) -> Live:
        found = shutil.which("java")
        if found is None or shutil.which("javac") is None:
            raise Unavailable("there is no java with a compiler")
        (stage.folder / "Main.java").write_text(JAVA)
        port = free_port()
        options = (f"-XX:+Use{collector}GC", "-Xmx64m", "-XX:-UsePerfData")
        process = stage.start([found, *options, stage.folder / "Main.java", str(port)])
        return http_server(stage, process, port)

    return begin


# -- servers in Python

HTTP = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def python_under_load(stage: Stage) -> Live:
    """It is asked all the time, while it is frozen as well."""
    port = free_port()
    process = stage.start([sys.executable, "-I", "-S", "-c", HTTP, str(port)])
    stage.ready(process, lambda: answers(port), "it listens")
    loads = [Load(stage, port) for _ in range(3)]

    def goes_on() -> None:
        for each in loads:
            each.goes_on()

    return Live(process.pid, lambda: None, goes_on)


WSGI = """
def application(environment, start):
    start("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"""

ASGI = """
async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (told := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": told["text"].upper()})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})
"""


def gunicorn(stage: Stage) -> Live:
    """Two workers with threads, and clients."""
    python, environment = debian_python()
    (stage.folder / "page.py").write_text(WSGI)
    port = free_port()
    words = ("-w", "2", "--threads", "2", "--keep-alive", "600", "-b", f"127.0.0.1:{port}", "--worker-tmp-dir")
    process = stage.start([*python, "-m", "gunicorn", *words, stage.folder, "page:application"], environment)
    stage.ready(process, lambda: len(stage.numbers(process.pid)) == 3, "it has its workers")
    return http_server(stage, process, port, clients=2)


def uvicorn(stage: Stage) -> Live:
    """A client of HTTP, and one of a web socket."""
    python, environment = debian_python()
    (stage.folder / "page.py").write_text(ASGI)
    port = free_port()
    words = ("--loop", "asyncio", "--port", str(port), "--app-dir", stage.folder, "--timeout-keep-alive", "600")
    process = stage.start([*python, "-m", "uvicorn", *words, "--lifespan", "off", "page:application"], environment)
    plain = http_server(stage, process, port)
    client = WebSocket(stage, port, "/socket")

    def goes_on() -> None:
        assert client.ask("hello") == "HELLO"
        plain.goes_on()

    return Live(process.pid, plain.state, goes_on)


AIOHTTP = """
import sys
from aiohttp import web
async def page(request): return web.Response(text="hello")
application = web.Application()
application.add_routes([web.get("/", page)])
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), keepalive_timeout=600, print=None)
"""


def aiohttp(stage: Stage) -> Live:
    """A client stays connected."""
    port = free_port()
    return http_server(stage, stage.start([*module("aiohttp"), "-c", AIOHTTP, str(port)]), port)


UVLOOP = """
import asyncio, sys, uvloop
async def main():
    async def client(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
    server = await asyncio.start_server(client, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
uvloop.run(main())
"""


def uvloop(stage: Stage) -> Live:
    """Its loop has an io_uring."""
    port = free_port()
    process = stage.start([*module("uvloop"), "-c", UVLOOP, str(port)])
    stage.ready(process, lambda: answers(port), "it listens")
    client = Lines(stage, port)

    def goes_on() -> None:
        assert client.ask("hello") == "HELLO"

    return Live(process.pid, lambda: None, goes_on)


SERVERS = (
    server("redis, client in MULTI", redis_in_transaction),
    server("redis with a child that saves", redis_that_saves, changing={"descriptors", "processes"}),
    server("memcached", lambda stage: memcached(stage, "root")),
    server("memcached as another user", lambda stage: memcached(stage, "nobody"), verdict=OTHER_USER),
    server("PostgreSQL in a transaction", postgresql),
    Entry("SQLite, WAL, a second process", sqlite("wal"), changing={"descriptors", "locks"}),
    Entry("SQLite, rollback journal, a second process", sqlite("delete"), changing={"descriptors", "locks"}),
    Entry("LMDB", lmdb),
    server("nginx, 2 workers, 20 clients", nginx),
    server("HAProxy", haproxy),
    server("busybox httpd", busybox),
    server("rsync daemon", rsync),
    server("dnsmasq", dnsmasq, verdict=OTHER_USER),
    server("Node.js with a worker thread", node),
    server("Go http", go, changing={"descriptors", "threads"}),
    *(server(f"JVM, {each}", java(each), changing={"descriptors", "threads"}) for each in ("G1", "Serial")),
    server("Python http.server under load", python_under_load, changing={"descriptors", "threads"}),
    server("gunicorn, 2 workers", gunicorn, changing={"descriptors", "threads", "signal_actions"}),
    server("uvicorn with a web socket", uvicorn),
    server("aiohttp server", aiohttp),
    server("uvloop server", uvloop, verdict=refused("io_uring")),
)
