"""A world of nothing but the cloud: a clock, a queue of what comes later, and chances that a test sets."""

import heapq
from random import Random

from iriscw_sims.coreweave.coreweave import CoreWeave
from iriscw_sims.coreweave.crd import POOLS, install
from iriscw_sims.coreweave.settings import QUICK
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store

SECOND = 1_000_000_000
BEGIN = 1_767_225_600 * SECOND
PODS = "/api/v1/namespaces/iris/pods"
EVENTS = "/api/v1/namespaces/{}/events"
MERGE = "application/merge-patch+json"
IMAGE = "registry.test/worker:1"


class World:
    """Surroundings, containers and observer in one, over a store of its own.

    ``rates`` gives chances in thousandths; ``scripted`` gives the next answers of a chance, before its rate counts.
    """

    def __init__(self, seed=0, settings=QUICK, rates=None):
        self.seed = seed
        self.now = BEGIN
        self.rates = dict(rates or {})
        self.scripted = {}
        self.trace = []
        self.asked = {}
        self.alive = {}
        self.graces = {}
        self.starts = {}
        self.ends = {}
        self.why = {}
        self.ready_pools = []
        self.refusals = []
        self._queue = []
        self._serial = 0
        self._chances = Random(f"{seed}:chances")
        self.store = Store(rng=Random(f"{seed}:store"), now=BEGIN)
        install(self.store, BEGIN)
        self.cloud = CoreWeave(self.store, self, self, settings, self)

    # Surroundings

    def rng(self, name):
        """Return a stream."""
        return Random(f"{self.seed}:{name}")

    def after(self, delay_ns, function, *args):
        """Queue a call."""
        assert delay_ns >= 0
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay_ns, self._serial, function, args))

    def chance(self, name, about):
        """Answer as scripted, or by the rate."""
        assert about.partition("/")[0] in ("pool", "slot", "node", "pod"), about
        self.asked[name] = self.asked.get(name, 0) + 1
        if self.scripted.get(name):
            return self.scripted[name].pop(0)
        rate = self.rates.get(name, 0)
        came = rate > 0 and self._chances.randrange(1000) < rate
        if came:
            self.note("fault", name)
        return came

    def note(self, *what):
        """Keep the trace."""
        self.trace.append((self.now, *what))

    # Containers

    def started(self, pod, node):
        """A container starts."""
        uid = pod["metadata"]["uid"]
        assert uid not in self.alive, "started twice without an end"
        self.alive[uid] = (pod["metadata"]["name"], node)
        self.starts[uid] = self.starts.get(uid, 0) + 1

    def ending(self, pod_uid, grace_ns):
        """A container is asked to end."""
        assert pod_uid in self.alive, "asked to end and does not run"
        self.graces[pod_uid] = grace_ns

    def killed(self, pod_uid, why):
        """A container is killed."""
        assert pod_uid in self.alive, f"killed and does not run: {why}"
        del self.alive[pod_uid]
        self.ends[pod_uid] = self.ends.get(pod_uid, 0) + 1
        self.why[pod_uid] = why

    def exit(self, uid, code=0, reason=""):
        """Have a container end by itself."""
        del self.alive[uid]
        self.ends[uid] = self.ends.get(uid, 0) + 1
        self.cloud.exited(uid, code, reason)

    # Observer

    def booted(self, pool_name):
        """A node is ready."""
        self.ready_pools.append(pool_name)

    def refused(self, pool_name, why):
        """A pool is refused."""
        self.refusals.append((pool_name, why))

    # Time

    def step(self):
        """Do the next thing, and give whether there was one."""
        if not self._queue:
            return False
        self.now, _, function, args = heapq.heappop(self._queue)
        function(*args)
        return True

    def run(self, seconds):
        """Let time pass."""
        end = self.now + int(seconds * SECOND)
        while self._queue and self._queue[0][0] <= end:
            self.step()
        self.now = end

    def until(self, holds, limit_s=3600):
        """Let time pass until something holds; give how many seconds that took."""
        begun = self.now
        while not holds():
            assert self._queue, "nothing will ever happen again"
            assert self.now - begun < limit_s * SECOND, "it does not come to hold"
            self.step()
        return (self.now - begun) / SECOND

    # The API, as a user has it

    def ask(self, method, path, body=None, content_type="application/json", **query):
        """Return the answer to a request, and have the cloud react."""
        pairs = tuple((name, str(value)) for name, value in query.items())
        answer = self.store.handle(Request(method, path, pairs, body, content_type), self.now)
        self.cloud.react()
        return answer

    def do(self, method, path, body=None, **more):
        """Return the body of the answer to a request that must succeed."""
        answer = self.ask(method, path, body, **more)
        assert answer.code < 300, answer.body
        return answer.body

    def patch(self, path, body):
        """Merge into an object."""
        return self.do("PATCH", path, body, content_type=MERGE)

    def get(self, path):
        """Return an object, None if it is not there."""
        answer = self.ask("GET", path)
        return answer.body if answer.code == 200 else None

    def items(self, path, **query):
        """List objects."""
        return self.do("GET", path, **query)["items"]

    # Pools, nodes and pods

    def make_pool(self, name="p", nodes=1, kind="cd-gp-a192-genoa", **spec):
        """Create a pool."""
        spec = {"instanceType": kind, "targetNodes": nodes, "nodeLabels": {"slice": name}, **spec}
        spec = {key: value for key, value in spec.items() if value is not None}
        body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "spec": spec}
        return self.do("POST", POOLS, {**body, "metadata": {"name": name}})

    def pool(self, name="p"):
        """Return a pool."""
        return self.get(f"{POOLS}/{name}")

    def status(self, name="p"):
        """Return a pool's status."""
        return self.pool(name).get("status") or {}

    def condition(self, kind, name="p"):
        """Return status and reason of a pool's condition."""
        return next(
            (
                (each["status"], each["reason"])
                for each in self.status(name).get("conditions", ())
                if each["type"] == kind
            ),
            None,
        )

    def at_target(self, name="p"):
        """Tell whether a pool says that it is at its target."""
        return self.condition("AtTarget", name) == ("True", "TargetMet")

    def whole(self, name="p"):
        """Tell whether all nodes of a pool are ready."""
        return self.at_target(name) and self.cloud.is_whole(name)

    def nodes(self, pool="p"):
        """Return the nodes of a pool."""
        return self.items("/api/v1/nodes", labelSelector=f"compute.coreweave.com/node-pool={pool}")

    def make_pod(self, name="a", pool="p", policy="Never", grace=20, cpu="4", image=IMAGE, owner=None, **spec):
        """Create a pod on a pool."""
        container = {"name": "worker", "image": image, "resources": {"requests": {"cpu": cpu}}}
        full = {
            "nodeSelector": {"slice": pool},
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": grace,
            "containers": [container],
            **spec,
        }
        full = {key: value for key, value in full.items() if value is not None}
        metadata = {"name": name, "labels": {"app": name}}
        if owner:
            owned = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", **owner}
            metadata["ownerReferences"] = [owned]
        return self.do("POST", PODS, {"metadata": metadata, "spec": full})

    def pod(self, name="a"):
        """Return a pod, None if it is gone."""
        return self.get(f"{PODS}/{name}")

    def phase(self, name="a"):
        """Return a pod's phase."""
        found = self.pod(name)
        return found and found["status"]["phase"]

    def waits(self, name="a"):
        """Return why a pod's container waits."""
        statuses = self.pod(name)["status"].get("containerStatuses") or ({},)
        return (statuses[0].get("state") or {}).get("waiting", {}).get("reason", "")

    def ended(self, name="a"):
        """Return exit code and reason of a pod's container."""
        state = self.pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]
        return state["exitCode"], state["reason"]

    def delete_pod(self, name="a", **options):
        """Delete a pod."""
        return self.do("DELETE", f"{PODS}/{name}", options or None)

    def reasons(self, name, namespace="iris"):
        """Return the reasons of the events about an object, each once a count."""
        found = self.items(EVENTS.format(namespace), fieldSelector=f"involvedObject.name={name}")
        return [each["reason"] for each in found for _ in range(each["count"])]

    def running_pod(self, name="a", pool="p", **spec):
        """Create a pod, and wait until it runs; give its uid."""
        uid = self.make_pod(name, pool, **spec)["metadata"]["uid"]
        self.until(lambda: self.phase(name) == "Running" and uid in self.alive)
        return uid
