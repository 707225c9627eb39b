"""A cluster on CoreWeave for tests, as near to one as a machine without CoreWeave has: what is real, and what is not.

Real: a kube-apiserver with its etcd, its validation, admission, RBAC and audit log; the installation as ``iriscw
manifests`` renders and applies it; the controller, started by its Deployment's command line, with its account's token,
bound to its pod, and no more rights than were rendered; workers and tasks as processes; their RPC over sockets.

Stand-ins: CoreWeave's controllers, nodes, scheduler and kubelets are the simulated ones, acting on that server; a pod
is a process, an image a command line, a volume a folder, the Service a port that is passed on; the object storage is
the simulated one over HTTP; Deployment and garbage collector are as small as they can be. Everything is fast: simulated
time is :data:`SPEED` times real time, and the controller's pauses are seconds (``quick_controller.py``).
"""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import iriscw
from iriscw.deploy.controller import selector
from iriscw.processes.identity import ProcessGone, send_signal
from iriscw.rpc.tokens import Secret, read_token_file
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.processes.containers import CLAIMS, ProcessContainers
from iriscw_sims.processes.programs import Stage, claimed, loopback_of
from iriscw_sims.remote.accounts import Accounts
from iriscw_sims.remote.cluster import attached, namespace
from iriscw_sims.remote.store import RemoteStore

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kube" / "real"))

from coreweave_parts import BUCKET, CREDENTIALS, PATIENCE_S, LoopThread, ServiceName, object_storage
from fault_plans import CONTROLLER_KILLED, DISK_LOST
from kube_server import find_binaries, running_server

SPEED = 10
"""Simulated time, by real time."""

SECOND = 1_000_000_000
SERVICE = "iris-controller-svc.iris.svc.cluster.local:10000"
PODS = "/api/v1/namespaces/iris/pods"
NODES = "/api/v1/nodes"
SECRETS = "/api/v1/namespaces/iris/secrets"
EVENTS = "/api/v1/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/iris/leases"
LEASE = f"{LEASES}/iris-controller"
CLAIM = "iris-controller-state"
CONTROLLER_POOL = "iris-controller-pool"
CONTROLLER = selector()
OURS = "iris-managed"
MAX_SLICES = {"single": 3, "pair": 1}
WORKERS_PER_SLICE = {"single": 1, "pair": 2}
API_TIMEOUT_S = 2.0
CONFIG = f"""\
name: faulty
platform:
  coreweave: {{ region: LGA1, namespace: iris }}
  timeouts:
    api_timeout: {API_TIMEOUT_S:g}s
    requesting_timeout: 10s
    boot_timeout: 10s
    init_timeout: 12s
    worker_timeout: 4s
  autoscaler: {{ evaluation_interval: 500ms, scale_up_delay: 500ms, scale_down_delay: 2s, startup_grace_period: 30s }}
controller:
  coreweave: {{ instance_type: cd-gp-i64-erapids, insecure_plaintext: true }}
  image: iris-controller:1
  durability: replicated
  replica_prefix: s3://{BUCKET}/state
defaults:
  bootstrap: {{ docker_image: iris-worker:1 }}
scale_groups:
  single:
    resources: {{ cpu: 2, ram: 2GB }}
    max_slices: {MAX_SLICES["single"]}
    slice_template: {{ coreweave: {{ instance_type: cd-gp-i64-erapids }} }}
  pair:
    num_vms: 2
    resources: {{ cpu: 2, ram: 2GB }}
    max_slices: {MAX_SLICES["pair"]}
    slice_template: {{ coreweave: {{ instance_type: cd-gp-i64-erapids }} }}
"""
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {"group": "compute.coreweave.com", "resources": ["nodepools"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "", "resources": ["pods", "pods/status"]},
            ],
        },
        {"level": "Metadata", "users": ["system:serviceaccount:iris:iris-controller"]},
        {"level": "None"},
    ],
}
"""All writes to what the controller may write, whoever makes them; and each request of the controller."""

STRANGERS = (
    (POOLS, {"kind": "NodePool", "name": "somebodys-pool", "labels": {}}),
    (POOLS, {"kind": "NodePool", "name": "iris-single-other", "labels": {OURS: "true", "iris-cluster": "another"}}),
    (PODS, {"kind": "Pod", "name": "somebodys-pod", "labels": {}}),
    (SECRETS, {"kind": "Secret", "name": "somebodys-secret", "labels": {}}),
)
"""What is not ours, and looks more or less as if it were."""


class Containers(ProcessContainers):
    """Pods as processes, of which the controller's is told to the Service."""

    def __init__(self, folder: Path, stage: Stage, service: ServiceName) -> None:
        super().__init__(folder, stage)
        self._service = service

    def started(self, pod, node):
        """Start it."""
        if is_controller(pod):
            self._service.endpoint = (loopback_of(pod["status"]["podIP"]), 10000)
        super().started(pod, node)


def is_controller(pod):
    """Tell whether a pod is the controller's."""
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in CONTROLLER.items())


def is_slice(pool):
    """Tell whether a pool is one of the controller's slices, by its labels."""
    labels = pool["metadata"].get("labels") or {}
    return labels.get(OURS) == "true" and labels.get("iris-cluster") != "another"


class CoreweaveCluster:
    """Everything, from the server to the controller that serves. A context manager.

    Args:
        folder: Where all of it lies.
        seed: Of the simulated world's chances.

    Raises:
        NoBinariesError: (on entering) there is no real API server.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.binaries = find_binaries()
        self.service = ServiceName()
        self.names: dict[str, str] = {}
        self.spent = False
        """Whether a plan failed here: what follows begins on another one."""
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    # Making it

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.folder.mkdir(mode=0o700)
        self.audit_log = self.folder / "audit.log"
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT))
        more = (f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}")
        self.server = stack.enter_context(running_server(self.binaries, self.folder / "server", more))
        # Servers die with the thread that started them: one thread does that, and lives as long as all of it.
        self.hands = concurrent.futures.ThreadPoolExecutor(1, "hands")
        stack.callback(self._end_of_hands)
        self.url = f"https://127.0.0.1:{self.server.port}"
        self.changed = threading.Event()
        self.store = self._store(stack)
        self.store.changed = self.changed.set
        self._prepare()
        storage = self._thread(stack, object_storage, "object storage")
        self._thread(stack, self.service.served, "service")
        self.names[SERVICE] = f"127.0.0.1:{self.service.port}"
        environment = {
            "PATH": f"{self._commands()}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{storage.thing.port}",
            "AWS_REGION": "test-1",
        }
        stage = Stage(names=self.names, environment=environment)
        self.containers = Containers(self.folder / "pods", stage, self.service)
        reader, tokens = self._store(stack), self._store(stack)
        accounts = Accounts(tokens, self.url, self.server.files.authority, self.folder / "accounts")
        self.containers.environment = accounts.environment
        self.containers.read = lambda path: _found(reader.handle(Request("GET", path), 0))
        self.containers.real_s = lambda span: span / SPEED / SECOND
        self.world = self._thread(stack, self._attached, "coreweave")
        self._install()

    def _end_of_hands(self) -> None:
        self.server.stop()
        self.hands.shutdown()

    def _store(self, stack: contextlib.ExitStack) -> RemoteStore:
        store = RemoteStore(self.url, Secret(self.server.tokens["admin"]), self.server.context)
        stack.callback(store.close)
        return store

    def _thread(self, stack: contextlib.ExitStack, make, name: str) -> LoopThread:
        thread = LoopThread(make, name)
        stack.callback(thread.close)
        return thread

    @asynccontextmanager
    async def _attached(self):
        token = Secret(self.server.tokens["admin"])
        more = {"speed": SPEED, "seed": self.seed}
        async with self.containers, attached(self.url, token, self.server.context, self.containers, **more) as there:
            yield there

    def _prepare(self) -> None:
        """Have the server serve node pools, and make what people make before they install."""
        self.ask("POST", DEFINITIONS, DEFINITION)
        for name in ("default", "kube-system", "kube-node-lease", "iris"):
            namespace(self.store, name)
        deadline = time.monotonic() + PATIENCE_S
        while self.ask("GET", POOLS).code != 200:
            assert time.monotonic() < deadline, "node pools are not served"
            time.sleep(0.1)  # it says that it serves a kind before it does
        secret = {"credentials": base64.b64encode(CREDENTIALS.encode()).decode()}
        self.post(SECRETS, {"metadata": {"name": "iris-bundle-credentials"}, "data": secret})
        self.strangers = {}
        for path, about in STRANGERS:
            made = self.post(path, _stranger(**about))
            self.strangers[path, about["name"]] = made["metadata"]["uid"]

    def _commands(self) -> Path:
        """Return a folder with the command ``iriscw`` of the controller's image: a hasty one."""
        folder = self.folder / "bin"
        folder.mkdir()
        command = folder / "iriscw"
        command.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(QUICK)!r}, run_name='__main__')\n")
        command.chmod(0o755)
        return folder

    def _install(self) -> None:
        config = self.folder / "cluster.yaml"
        config.write_text(CONFIG)
        secrets = self.folder / "secrets"
        self._iriscw("manifests", str(config), "--secrets-to", str(secrets))
        self._iriscw("manifests", str(config), "--apply", "--secrets-from", str(secrets), "--wait", "0s")
        self.token = read_token_file(secrets / "admin-token")
        self.uid = self.get("/api/v1/namespaces/iris")["metadata"]["uid"]

    def _iriscw(self, *words: str) -> None:
        environment = {**os.environ, "KUBECONFIG": self._kubeconfig()}
        command = [str(Path(sys.executable).with_name("iriscw")), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _kubeconfig(self) -> str:
        path = self.folder / "admin.kubeconfig"
        where = {"server": self.url, "certificate-authority": str(self.server.files.authority)}
        user = {"token": self.server.tokens["admin"]}
        context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
        named = {"clusters": [{"name": "k", "cluster": where}], "users": [{"name": "u", "user": user}]}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context], **named}
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return str(path)

    # The API, as an administrator

    def ask(self, method, path, body=None):
        """Make a request."""
        return self.store.handle(Request(method, path, body=body), 0)

    def get(self, path):
        """Return an object, None if there is none."""
        return _found(self.ask("GET", path))

    def post(self, path, body):
        """Create something, and give it."""
        answer = self.ask("POST", path, body)
        assert answer.code == 201, answer.body
        return answer.body

    def list(self, path):
        """Return all objects of a kind."""
        return [*self.ask("GET", path).body["items"]]

    def until(self, path, holds, patience_s=PATIENCE_S):
        """Wait until the objects of a kind are so; give them, and whether they are."""
        deadline = time.monotonic() + patience_s
        watch, known = None, {}
        try:
            while True:
                self.changed.clear()
                if watch is None or watch.closed:
                    watch, known = self.store.watch(Request("GET", path), 0), {}
                for event in watch.take(0):
                    known[event["object"]["metadata"]["uid"]] = event["object"]
                    if event["type"] == "DELETED":
                        del known[event["object"]["metadata"]["uid"]]
                if holds([*known.values()]):
                    return [*known.values()], True
                if not self.changed.wait(max(0.0, deadline - time.monotonic())):
                    return [*known.values()], False
        finally:
            if watch is not None:
                watch.close()

    @asynccontextmanager
    async def client(self):
        """Connect to the controller, as its users do."""
        async with iriscw.connect(self.names[SERVICE], self.token) as client:
            yield client

    # What goes wrong

    def mood(self, rates, seed=0) -> None:
        """Have misfortunes come true so often from now on."""
        self.world.call(self.world.thing.surroundings.turn, dict(rates), seed)

    def heal(self) -> None:
        """Repair everything; nothing goes wrong any more."""
        self.mood({})
        self._cloud("heal")

    def strike(self, kind: str, pick: int) -> str:
        """Do something to the cluster; say what it hit, empty if there was nothing to hit."""
        return _STRIKES[kind](self, Random(pick))

    def _cloud(self, verb: str, *args: object) -> bool:
        return bool(self.world.call(self.world.thing.act, getattr(self.world.thing.coreweave, verb), *args))

    def _lives(self, *, controller: bool):
        """Return the running lives of the controller's pod, or of workers' pods."""
        lives = self.world.call(lambda: [*self.containers.lives.values()])
        return [each for each in lives if each.running is not None and is_controller(each.pod) is controller]

    def _signalled(self, life, number: signal.Signals) -> str:
        if life.running.target is None:
            return ""
        with contextlib.suppress(ProcessGone):
            send_signal(life.running.target, number)
            return life.pod["metadata"]["name"]
        return ""

    def _killed(self, rng: Random, *, controller: bool) -> str:
        lives = self._lives(controller=controller)
        return self._signalled(rng.choice(lives), signal.SIGKILL) if lives else ""

    def _stands_still(self, rng: Random) -> str:
        lives = self._lives(controller=True)
        if not lives or not self._signalled(lives[-1], signal.SIGSTOP):
            return ""
        span_s = rng.uniform(0.5, 7.0)
        time.sleep(span_s)  # what is done to it lasts so long
        return f"{self._signalled(lives[-1], signal.SIGCONT)} for {span_s:.1f} s"

    def _pods(self, *, controller: bool):
        pods = [each for each in self.list(PODS) if is_controller(each) is controller]
        return [each for each in pods if each["metadata"].get("labels", {}).get(OURS) == "true" or controller]

    def _nodes(self, *, controller: bool):
        nodes = [each for each in self.list(NODES) if "metadata" in each]
        named = [each for each in nodes if (each["metadata"]["labels"].get("iris-role") == "controller") is controller]
        return [each["metadata"]["name"] for each in named]

    def _on_pod(self, verb: str, rng: Random, *args: object, controller: bool = False) -> str:
        pods = self._pods(controller=controller)
        if not pods:
            return ""
        pod = rng.choice(pods)["metadata"]
        return pod["name"] if self._cloud(verb, pod["uid"], *args) else ""

    def _on_node(self, verb: str, rng: Random, *args: object, controller: bool = False) -> str:
        nodes = self._nodes(controller=controller)
        if not nodes:
            return ""
        node = rng.choice(nodes)
        return node if self._cloud(verb, node, *args) else ""

    def _cut_off(self, rng: Random, *, controller: bool) -> str:
        return self._on_node("lose_node_for", rng, int(rng.uniform(5, 40) * SECOND), controller=controller)

    def _on_pool(self, verb: str, rng: Random) -> str:
        pools = [each["metadata"]["name"] for each in self.list(POOLS) if is_slice(each)]
        if not pools:
            return ""
        pool = rng.choice(pools)
        return pool if self._cloud(verb, pool) else ""

    def _disk_lost(self, rng: Random) -> str:
        """Lose the controller's node, and the volume, as storage does that goes with its node."""
        node = self._on_node("kill_node", rng, controller=True)
        claim = claimed(self.containers.folder / CLAIMS, "iris", CLAIM)
        if not node or not claim.exists():
            return node
        claim.rename(claim.with_name(f"{CLAIM}-lost-{time.monotonic_ns()}"))  # what still writes there writes to nobody
        return f"{node} and {CLAIM}"

    def _lease_gone(self, *, anew: bool) -> str:
        if self.ask("DELETE", LEASE).code != 200:
            return ""
        if anew:
            self.ask("POST", LEASES, {"metadata": {"name": "iris-controller"}, "spec": {}})
        return "iris-controller"

    def _served(self, verb: str) -> str:
        getattr(self.server, verb)()
        return verb

    # What there is to see

    def report(self) -> str:
        """Say how everything is: for a failure."""
        lines = []
        for title, tell in _TOLD.items():
            lines.append(f"-- {title}")
            try:
                lines += tell(self)
            except Exception as error:
                lines.append(f"cannot be told: {error!r}")
        return "\n".join(lines)

    def _told_logs(self):
        logs = sorted(self.containers.folder.glob("pods/iris-controller-*/log"), key=lambda path: path.stat().st_mtime)
        for path in logs[-3:]:
            yield from (str(path), *path.read_text(errors="replace").splitlines()[-40:])

    def leftovers(self):
        """Return the processes that are left of this cluster, once it was left."""
        from iriscw.cli.demo.leftovers import processes_in

        return processes_in(self.folder)


QUICK = Path(__file__).with_name("quick_controller.py")


def _found(answer):
    assert answer.code in (200, 404), answer.body
    return answer.body if answer.code == 200 else None


def _stranger(kind, name, labels):
    """Return something of somebody else's: a pool without nodes, a pod that no node takes, a Secret."""
    body = {"kind": kind, "metadata": {"name": name, "labels": labels}}
    if kind == "NodePool":
        spec = {"instanceType": "cd-gp-i64-erapids", "targetNodes": 0}
        return {"apiVersion": "compute.coreweave.com/v1alpha1", **body, "spec": spec}
    if kind == "Pod":
        containers = [{"name": "main", "image": "x"}]
        return {"apiVersion": "v1", **body, "spec": {"containers": containers, "nodeSelector": {"nowhere": "true"}}}
    return {"apiVersion": "v1", **body}


_STRIKES = {
    CONTROLLER_KILLED: lambda cluster, rng: cluster._killed(rng, controller=True),
    DISK_LOST: lambda cluster, rng: cluster._disk_lost(rng),
    "the controller's process stands still": lambda cluster, rng: cluster._stands_still(rng),
    "the controller's pod is deleted": lambda cluster, rng: cluster._on_pod(
        "delete_pod_from_outside", rng, controller=True
    ),
    "the controller's node is cut off": lambda cluster, rng: cluster._cut_off(rng, controller=True),
    "the Lease is deleted": lambda cluster, _rng: cluster._lease_gone(anew=False),
    "the Lease is made anew": lambda cluster, _rng: cluster._lease_gone(anew=True),
    "a worker's process is killed": lambda cluster, rng: cluster._killed(rng, controller=False),
    "a worker's pod is evicted": lambda cluster, rng: cluster._on_pod("evict", rng),
    "a worker's pod is deleted": lambda cluster, rng: cluster._on_pod("delete_pod_from_outside", rng),
    "a node dies": lambda cluster, rng: cluster._on_node("kill_node", rng),
    "a node is cut off": lambda cluster, rng: cluster._cut_off(rng, controller=False),
    "a node is interrupted": lambda cluster, rng: cluster._on_node("interrupt", rng),
    "a node goes into triage": lambda cluster, rng: cluster._on_node("triage", rng),
    "a node is cordoned": lambda cluster, rng: cluster._on_node("cordon", rng),
    "a pool is deleted by somebody": lambda cluster, rng: cluster._on_pool("delete_pool_from_outside", rng),
    "a pool is lost": lambda cluster, rng: cluster._on_pool("lose_pool", rng),
    "the API server is killed": lambda cluster, _rng: cluster._served("crash_apiserver"),
    "etcd is killed": lambda cluster, _rng: cluster._served("crash_etcd"),
    "history is compacted": lambda cluster, _rng: cluster._served("compact"),
}


def _conditions(item):
    found = (item.get("status") or {}).get("conditions") or ()
    return " ".join(f"{each['type']}={each['status']}({each.get('reason', '')})" for each in found)


def _pod_line(item):
    status = item.get("status") or {}
    states = [json.dumps(each.get("state"), default=str) for each in status.get("containerStatuses") or ()]
    metadata = item["metadata"]
    going = f" deleted {metadata['deletionTimestamp']}" if metadata.get("deletionTimestamp") else ""
    node = item["spec"].get("nodeName")
    return f"{metadata['name']} on {node}: {status.get('phase')} {status.get('reason', '')}{going} {' '.join(states)}"


def _pool_line(item):
    going = " deleting" if item["metadata"].get("deletionTimestamp") else ""
    return f"{item['metadata']['name']}{going}: wants {item['spec'].get('targetNodes')}; {_conditions(item)}"


def _node_line(item):
    spec = item.get("spec") or {}
    taints = " ".join(f"{each['key']}:{each['effect']}" for each in spec.get("taints") or ())
    where = item["metadata"]["labels"].get("iris-slice-id", "")
    return (
        f"{item['metadata']['name']} {where} unschedulable={spec.get('unschedulable')} [{taints}] {_conditions(item)}"
    )


def _event_line(item):
    about = item.get("involvedObject") or {}
    return f"{about.get('kind')} {about.get('name')}: {item.get('reason')}: {item.get('message')}"


def _told_notes(cluster):
    notes = cluster.world.thing.surroundings.notes
    return [f"{' '.join(map(str, what))}" for _, what in collections.deque([*notes], 60)]


_TOLD = {
    "pods": lambda cluster: map(_pod_line, cluster.list(PODS)),
    "pools": lambda cluster: map(_pool_line, cluster.list(POOLS)),
    "nodes": lambda cluster: map(_node_line, cluster.list(NODES)),
    "events": lambda cluster: map(_event_line, cluster.list(EVENTS)[-40:]),
    "lease": lambda cluster: [json.dumps(cluster.get(LEASE), default=str)],
    "what the simulated CoreWeave did last": _told_notes,
    "the controller's log": CoreweaveCluster._told_logs,
}
