"""Whatever a user asks of the API, in whatever order: no controller raises, and what is removed can be had again."""

import pytest
from cloud_world import MERGE, PODS, World
from hypothesis import given, strategies as st
from test_cloud_laws import check_truth

from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, GROUP, POOLS
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK
from iriscw_sims.kube.garbage import collect
from iriscw_sims.kube.messages import Request
from profiles import examples

DEFINED = f"{DEFINITIONS}/nodepools.{GROUP}"
NODES = "/api/v1/nodes"
LONG = st.sampled_from((10**10, 10**12, 2**63 - 1))
"""Times that wrap around in the API server, s: before now, after it, and about now."""

POOL = st.sampled_from(("r", "s", "t", "p", "x" * 70, "a.b", "a" * 199 + "-" + "b" * 50))
POD = st.sampled_from(("a", "b", "c", "d", "e"))
PICK = st.integers(0, 20)
KEY = st.sampled_from(("slice", "type", "bad key", "x" * 300, "node.coreweave.cloud/state", "kubernetes.io/hostname"))
TEXT = st.sampled_from(("p", "q", "p", "q", "", "true", "not a label", "y" * 64, "production", "7", "--7", "NoExecute"))
EFFECT = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule", "Never"))
COUNT = st.sampled_from((0, 1, 2, 3, 3.0, 20, -1, 10**9))
MAP = st.dictionaries(KEY, TEXT, max_size=2)
LABELS = MAP | st.none()
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("type", "status", "a")), inner, max_size=3)
    ),
    max_leaves=6,
)
TAINT = st.fixed_dictionaries(
    {"key": st.sampled_from(("nvidia.com/gpu", "node.kubernetes.io/not-ready", "k", "")), "effect": EFFECT},
    optional={"value": TEXT},
)
FINALIZERS = (
    st.lists(st.sampled_from(("a.b/c", "foregroundDeletion", "orphan", "bad", "d.e/f")), max_size=2) | st.none()
)
INSTANCE = st.sampled_from(("b200-8x", "cd-gp-a192-genoa", "gb300-4x", "no such type", "z" * 2000))


def some(**fields):
    """Draw a few of some fields."""
    return st.fixed_dictionaries({}, optional=fields)


SPEC = some(
    instanceType=INSTANCE,
    targetNodes=COUNT,
    targetRacks=COUNT,
    minNodes=COUNT,
    maxNodes=COUNT,
    autoscaling=st.booleans(),
    computeClass=TEXT,
    nodeLabels=MAP,
    nodeAnnotations=MAP | st.just({"a": "x" * 300_000}),
    nodeTaints=st.lists(TAINT, max_size=2),
    lifecycle=some(scaleDownStrategy=st.sampled_from(("IdleOnly", "PreferIdle"))) | st.none(),
    surprise=JUNK,
)
STATUS = some(conditions=JUNK, currentNodes=JUNK, inProgress=JUNK, rackStatus=JUNK, other=JUNK) | JUNK
CONDITIONS = st.lists(
    some(type=st.sampled_from(("Ready", "PodScheduled", "DisruptionTarget", "x")), status=TEXT), max_size=2
)
OWNER = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(("v1", f"{GROUP}/v1alpha1")),
        "kind": st.sampled_from(("NodePool", "Pod")),
        "name": st.sampled_from(("p", "q")),
        "uid": st.sampled_from(("p's", "q's", "nobody's")),
    }
)
META = some(labels=LABELS, finalizers=FINALIZERS, ownerReferences=st.lists(OWNER, max_size=2) | st.none())
EXPRESSION = st.fixed_dictionaries(
    {"key": KEY, "operator": st.sampled_from(("In", "Gt", "Lt", "Exists", "Near"))},
    optional={"values": st.lists(TEXT, max_size=2)},
)
TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PROBE = some(initialDelaySeconds=st.sampled_from((0, 3, 2**31 - 1, -1)), successThreshold=st.sampled_from((0, 1, 2)))
CONTAINER = some(
    name=st.sampled_from(("c", "C", "")),
    image=st.sampled_from(("x", "", " x")),
    readinessProbe=PROBE,
    livenessProbe=PROBE,
    ports=st.lists(some(containerPort=COUNT, hostPort=COUNT), max_size=2),
    resources=some(
        requests=st.dictionaries(
            st.sampled_from(("cpu", "memory", "nvidia.com/gpu", "pods")),
            st.sampled_from(("1", "0", "100m", "-1", "1e3", "9Ei", "1e99", "much", 2, 0.5)),
            max_size=2,
        )
    ),
)
POD_SPEC = some(
    nodeSelector=LABELS,
    nodeName=st.sampled_from(("", "nowhere", "mine")),
    schedulerName=st.sampled_from(("default-scheduler", "another")),
    restartPolicy=st.sampled_from(("Always", "Never", "OnFailure", "Sometimes")),
    terminationGracePeriodSeconds=st.sampled_from((0, 1, 30, -1)) | LONG,
    tolerations=st.lists(
        some(key=TEXT, operator=st.sampled_from(("Exists", "Equal")), effect=EFFECT, tolerationSeconds=COUNT),
        max_size=2,
    ),
    affinity=st.builds(
        lambda each: {"nodeAffinity": {TERMS: {"nodeSelectorTerms": [{"matchExpressions": each}]}}},
        st.lists(EXPRESSION, max_size=2),
    ),
    hostNetwork=st.booleans(),
)
POD_STATUS = some(
    phase=st.sampled_from(("Running", "Succeeded", "Failed", "Odd")),
    conditions=CONDITIONS,
    containerStatuses=st.just([]) | st.none(),
    podIP=TEXT,
)
NODE_SPEC = some(taints=st.lists(TAINT, max_size=2) | st.none(), unschedulable=st.booleans() | st.none())

POOL_PATH = st.sampled_from((f"{POOLS}/p", f"{POOLS}/q"))
POD_PATH = POD.map(lambda name: f"{PODS}/{name}")
MUST = st.fixed_dictionaries({"instanceType": INSTANCE, "targetNodes": COUNT})
GOOD = st.just({"instanceType": "b200-8x", "targetNodes": 2})
NONE = st.just({})
KINDS = st.sampled_from((POOLS, PODS, NODES, "/api/v1/namespaces/iris/events"))
WAIT = st.tuples(st.just("wait"), st.sampled_from((0, 0, 0.1, 1, 5, 30, 90)))
REQUEST = st.one_of(
    WAIT,
    WAIT,
    st.tuples(st.just("pool"), POOL, GOOD, META, SPEC),
    st.tuples(st.just("pool"), POOL, MUST, NONE, SPEC),
    st.tuples(st.just("pool"), POOL, GOOD, NONE, NONE),
    WAIT,
    st.tuples(st.just("patch"), POOL_PATH, some(metadata=META)),
    st.tuples(st.just("patch"), POOL_PATH, some(spec=SPEC)),
    st.tuples(st.just("patch"), POOL_PATH.map(lambda path: f"{path}/status"), some(status=STATUS, metadata=META)),
    st.tuples(st.just("delete"), POOL_PATH, st.none()),
    WAIT,
    st.tuples(st.just("pod"), POD, META, NONE, st.just([{}])),
    st.tuples(st.just("pod"), POD, NONE, POD_SPEC, st.lists(CONTAINER, max_size=2)),
    st.tuples(st.just("pod"), POD, NONE, POD_SPEC, st.just([{}])),
    st.tuples(st.just("patch"), POD_PATH, some(metadata=META, spec=POD_SPEC)),
    st.tuples(st.just("patch"), POD_PATH.map(lambda path: f"{path}/status"), some(status=POD_STATUS)),
    st.tuples(st.just("bind"), POD, PICK),
    st.tuples(st.just("delete"), POD_PATH, st.sampled_from((None, 0, 1)) | LONG),
    WAIT,
    st.tuples(st.just("node"), PICK, st.just(""), some(metadata=META)),
    st.tuples(st.just("node"), PICK, st.just(""), some(spec=NODE_SPEC)),
    st.tuples(
        st.just("node"), PICK, st.just("/status"), st.builds(lambda each: {"status": {"conditions": each}}, CONDITIONS)
    ),
    st.tuples(st.just("own node"), PICK),
    st.tuples(st.just("delete node"), PICK, st.booleans()),
    st.tuples(st.just("rest"), st.sampled_from(("no namespace", "namespace", "undefine", "define")), KINDS),
    st.tuples(st.just("rest"), st.sampled_from(("loosen", "without a status", "delete all", "garbage")), KINDS),
)


class User:
    """One who may do everything, and does."""

    def __init__(self, world):
        self.world = world

    def ask(self, method, path, body=None, content_type="application/json"):
        """Ask; any answer is one. Nobody reacts yet."""
        return self.world.store.handle(Request(method, path, (), body, content_type), self.world.now)

    def node(self, pick):
        """Return the name of a node."""
        names = [item["metadata"]["name"] for item in self.ask("GET", NODES).body["items"]]
        return names[pick % len(names)] if names else "nobody"

    def meant(self, metadata):
        """Replace uids that stand for an object's by that object's."""
        for owner in metadata.get("ownerReferences") or ():
            answer = self.ask("GET", f"{POOLS}/{owner['name']}")
            if owner["uid"] == f"{owner['name']}'s" and answer.code == 200:
                owner["uid"] = answer.body["metadata"]["uid"]
        return metadata

    def define(self, loosely=None):
        """Install the kind, as it is or such that it allows anything."""
        [version] = DEFINITION["spec"]["versions"]
        if loosely is not None:
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version = {**version, "schema": {"openAPIV3Schema": schema}}
            if loosely:
                version = {**version, "subresources": {}}
        body = {**DEFINITION, "spec": {**DEFINITION["spec"], "versions": [version]}}
        if loosely is None:
            return self.ask("POST", DEFINITIONS, body)
        return self.ask("PATCH", DEFINED, {"spec": body["spec"]}, MERGE)

    def act(self, action):
        """Do one thing."""
        kind, *args = action
        match kind:
            case "pool":
                name, must, metadata, spec = args
                body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "NodePool", "spec": {**must, **spec}}
                self.ask("POST", POOLS, {**body, "metadata": {**self.meant(metadata), "name": name}})
            case "patch":
                path, body = args
                self.ask("PATCH", path, body, MERGE)
            case "pod":
                name, metadata, spec, containers = args
                if spec.get("nodeName") == "mine":
                    spec = {**spec, "nodeName": self.node(0)}
                containers = [{"name": f"c{n}", "image": "x", **each} for n, each in enumerate(containers)]
                body = {"metadata": {**self.meant(metadata), "name": name}, "spec": {**spec, "containers": containers}}
                self.ask("POST", PODS, body)
            case "bind":
                target = {"apiVersion": "v1", "kind": "Node", "name": self.node(args[1])}
                self.ask("POST", f"{PODS}/{args[0]}/binding", {"metadata": {"name": args[0]}, "target": target})
            case "node":
                self.ask("PATCH", f"{NODES}/{self.node(args[0])}{args[1]}", args[2], MERGE)
            case "own node":
                self.ask("POST", NODES, {"metadata": {"name": f"own-{args[0]}"}})
            case "delete":
                path, grace = args
                self.ask("DELETE", path, None if grace is None else {"gracePeriodSeconds": grace})
            case "delete node":
                name = self.node(args[0])
                self.ask("DELETE", f"{NODES}/{name}")
                if args[1]:  # and another of the same name, before anybody saw that it was gone
                    self.ask("POST", NODES, {"metadata": {"name": name}})
            case "rest":
                self.rest(*args)
            case "wait":
                self.world.cloud.react()
                check_truth(self.world)
                self.world.run(args[0])

    def rest(self, what, path):
        """Do what concerns more than one object."""
        match what:
            case "no namespace":
                self.ask("DELETE", "/api/v1/namespaces/iris")
            case "namespace":
                self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
            case "undefine":
                self.ask("DELETE", DEFINED)
            case "define":
                self.define()
            case "loosen" | "without a status":
                self.define(what == "without a status")
            case "delete all":
                self.ask("DELETE", path)
            case "garbage":
                for request in collect(self.world.store.collections):
                    self.world.store.handle(request, self.world.now)


def furnished(seed, preset):
    """Return a world in which something runs."""
    world = World(seed, preset)
    for name in ("p", "q"):
        world.make_pool(name, nodes=2, kind="b200-8x", nodeTaints=[])
    exists = [{"operator": "Exists"}]
    for name in ("a", "b", "c"):
        world.make_pod(name, "p", "Always", tolerations=exists)
    world.until(lambda: len(world.alive) == 3, limit_s=24 * 3600)
    return world


def check_survives(actions, seed, preset):
    """Let a user do all that; then have the kind go and come again, and a pool boot as if nothing had been."""
    world = furnished(seed, preset)
    user = User(world)
    for action in actions:
        user.act(action)
    world.cloud.react()
    check_truth(world)
    world.cloud.heal()
    user.ask("DELETE", DEFINED)
    world.run(3 * 3600)
    assert world.cloud.pools.by_name == {}
    assert world.cloud.nodes.machines == {}
    check_truth(world)
    assert world.alive == {}
    assert user.define().code == 201
    world.make_pool("again", nodes=2)
    world.run(4 * 3600)
    assert world.cloud.is_whole("again")


@given(actions=st.lists(REQUEST, max_size=30), seed=st.integers(0, 3))
@examples(20)
def test_no_request_makes_a_controller_raise(actions, seed):
    """Valid or not, understood or not."""
    check_survives(actions, seed, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("preset", [QUICK, FAITHFUL], ids=["quick", "faithful"])
@given(actions=st.lists(REQUEST, min_size=10, max_size=80), seed=st.integers(0, 1000))
@examples(60)
def test_no_long_history_of_requests_makes_a_controller_raise(preset, actions, seed):
    """The same, for longer, and at either speed."""
    check_survives(actions, seed, preset)
