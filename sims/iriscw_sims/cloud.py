"""The simulated cloud: the Kubernetes store, CoreWeave behind it, the API server in front, and the truth for checks.

Theory of operation. Whatever writes to the store (the controller's requests as they land, CoreWeave's own controllers,
a fault) is followed by CoreWeave's look at what is new and by telling the open watches. So nothing polls, and an
instant in which nothing changed costs nothing.

The checks read the store itself, never what a driver made of it: a mistake in reading conditions must not hide itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_GROUP, LABEL_ROLE, ROLE_CONTROLLER, Pod
from iriscw.testing.simulation import EPOCH, SimOperation
from iriscw_sims.apiserver import CONTROLLER, ApiServer
from iriscw_sims.coreweave.coreweave import CoreWeave
from iriscw_sims.coreweave.crd import GROUP, POOLS, install
from iriscw_sims.driver import KubeDriver
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.kube.store import Store
from iriscw_sims.pace import CLUSTER, NAMESPACE
from iriscw_sims.strangers import Strangers

if TYPE_CHECKING:
    from iriscw_sims.world import World

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ROLES = "/apis/rbac.authorization.k8s.io/v1"

PERMISSIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (GROUP, "nodepools", ("get", "list", "watch", "create", "delete")),
    ("", "nodes", ("get", "list", "watch")),
    ("", "pods", ("get", "list", "watch", "create", "delete")),
)
"""All that the controller may do: API group, resource, verbs. What it does beyond that is refused, and seen."""


@attrs.frozen
class Thing:
    """What checks need to know of an object."""

    name: str
    uid: str
    labels: Mapping[str, str]
    over: bool = False
    """Whether it is a pod that has ended, by its own word."""


class Table:
    """The objects of one kind, read off the store when they have changed."""

    def __init__(self, store: Store, group: str, plural: str) -> None:
        self._collection = store.named_collection(group, plural)
        self._revision = -1
        self._things: dict[str, Thing] = {}

    @property
    def revision(self) -> int:
        """That of the last change."""
        return self._collection.revision

    @property
    def raw(self) -> list[Mapping[str, Any]]:
        """The objects themselves, in the order of their keys."""
        return [self._collection.objects[key] for key in self._collection.keys]

    @property
    def things(self) -> dict[str, Thing]:
        """All of them, by name."""
        if self._collection.revision != self._revision:
            self._revision = self._collection.revision
            self._things = {each["metadata"]["name"]: _thing(each) for each in self.raw}
        return self._things


class Cloud:
    """The API and what is behind it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.simulation = world.simulation
        self.noted: Callable[..., None] | None = None
        """Shown each of CoreWeave's notes."""
        self.store = Store(rng=world.stream("store"), now=EPOCH)
        self.server = ApiServer(world, self.store)
        install(self.store, EPOCH, NAMESPACE)
        self._allow()
        self.driver = KubeDriver(world, self.server, world.pace.driver)
        self.coreweave = CoreWeave(self.store, self, self, world.pace.cloud, observer=self)
        self._pools = Table(self.store, GROUP, "nodepools")
        self._nodes = Table(self.store, "", "nodes")
        self._pods = Table(self.store, "", "pods")
        self._running: dict[str, str] = {}
        """Names of the pods whose containers run, by uid."""
        self.strangers = Strangers(self, PODS)
        self._nodes_seen = 0
        """The version of the nodes at the last look."""

    def _allow(self) -> None:
        subject = {"kind": "User", "name": CONTROLLER, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": "iris-controller", "apiGroup": "rbac.authorization.k8s.io"}
        metadata = {"name": "iris-controller"}
        self.must(Request("POST", f"{ROLES}/clusterroles", body={"metadata": metadata, "rules": _rules(PERMISSIONS)}))
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        self.must(Request("POST", f"{ROLES}/clusterrolebindings", body=binding))

    def grant(self) -> None:
        """Give the controller's role those rights that are not revoked at present."""
        rules = _rules(self.server.outages.left_of(PERMISSIONS))
        body = {"metadata": {"name": "iris-controller"}, "rules": rules}
        self.must(Request("PUT", f"{ROLES}/clusterroles/iris-controller", body=body))

    def must(self, request: Request) -> Response:
        """Write something that the API server takes for certain; give its answer."""
        response = self.store.handle(request, self.now)
        if response.code >= 300:
            raise AssertionError(f"{request.method} {request.path}: {response.body.get('message')}")
        return response

    # What the controller asks for

    def request(self, operation: SimOperation) -> None:
        """Carry out a call."""
        self.world.fleet_checks.requested(operation.effect)
        self.driver.request(operation)

    def watch(self, operation: SimOperation) -> None:
        """Carry out a watch."""
        self.driver.watch(operation)

    def controller_down(self) -> None:
        """The controller is down: nobody watches, and nobody waits for an answer."""
        self.driver.restart()
        self.server.hang_up()

    def refuses(self, request: ApiRequest) -> Response | None:
        """Refuse some requests that the API server would take: a webhook's denial, and a quota's; or be too late."""
        self.strangers.is_quicker(request)
        if request.method != "POST" or request.path != POOLS:
            return None
        name = request.body["metadata"]["name"]
        webhook = 'admission webhook "nodepools.coreweave.com" denied the request'
        if self.world.chance("pool quota refused"):
            self.refused(name, "quota")
            return _denied(f"{webhook}: quota exceeded")
        if self.world.chance("pool refused as invalid"):
            self.refused(name, "invalid")
            return _denied(f"{webhook}: no such instance type")
        return None

    @property
    def in_flight(self) -> int:
        """Requests that have not landed and still may."""
        return self.server.in_flight

    def changed(self) -> None:
        """Something was written: let CoreWeave see it, and tell the watches."""
        self.coreweave.react()
        self._look()

    def _look(self) -> None:
        self.strangers.look()
        if self._nodes.revision != self._nodes_seen:
            self._nodes_seen = self._nodes.revision
            checks = self.world.fleet_checks
            for slice_id in [each for each in checks.promised if each not in checks.whole]:
                if self._is_fit(slice_id):
                    checks.booted(slice_id)
        self.server.tell()

    def _is_fit(self, slice_id: str) -> bool:
        """Whether all nodes that a slice's pool wants are ready, and open to pods."""
        pool = self.coreweave.pools.by_name.get(slice_id)
        if pool is None or pool.uid in self.strangers.uids:
            return False
        return sum(each.usable for each in pool.members.values()) >= pool.target

    # The truth

    @property
    def pools(self) -> dict[str, Thing]:
        """All pools, by name."""
        return self._pools.things

    @property
    def pods(self) -> dict[str, Thing]:
        """All worker pods, by name."""
        return self._pods.things

    @property
    def nodes(self) -> dict[str, Thing]:
        """All nodes, by name."""
        return self._nodes.things

    # What CoreWeave needs of its surroundings

    @property
    def now(self) -> int:
        """The server's clock, ns since 1970."""
        return EPOCH + self.simulation.now

    def rng(self, name: str) -> Random:
        """Return a stream of random numbers of its own."""
        return self.world.stream(name)

    def after(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> None:
        """Call a function later, and tell the watches what it changed."""
        self.simulation.call_after(delay_ns, self._fire, function, args)

    def _fire(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        function(*args)
        self._look()

    def chance(self, name: str, about: str = "") -> bool:
        """Let a fault happen, or not."""
        return self.world.chance(name, about)

    def note(self, *what: object) -> None:
        """Write a line of the trace, and show it to who wants to see it."""
        self.simulation.note(*what)
        if self.noted is not None:
            self.noted(*what)

    def booted(self, pool_name: str) -> None:
        """A node became ready: :meth:`_look` sees more than that, nodes that come back among it."""

    def refused(self, pool_name: str, why: str) -> None:
        """The API is about to show that a pool gets no nodes."""
        self.world.fleet_checks.refused(pool_name, why)

    # What runs in pods

    def started(self, pod: Mapping[str, Any], node: str) -> None:
        """The container of a pod runs: its worker begins."""
        metadata = pod["metadata"]
        name, labels = metadata["name"], metadata.get("labels", {})
        if labels.get(LABEL_CLUSTER) == CLUSTER:
            self._running[metadata["uid"]] = name
            capacity = self.world.group(labels[LABEL_GROUP]).per_worker
            self.world.workers.start(Pod(name, metadata["uid"], metadata["resourceVersion"], labels), capacity)

    def ending(self, pod_uid: str, grace_ns: int) -> None:
        """Simulated workers end when their kubelet has them end."""

    def killed(self, pod_uid: str, why: str) -> None:
        """No process of a pod runs any more."""
        name = self._running.pop(pod_uid, None)
        if name is not None:
            self.world.workers.kill(name, why)

    def end_pod(self, name: str, reason: str) -> None:
        """The worker's process has ended, and with it the pod's."""
        pod = self.pods.get(name)
        if pod is not None and self._running.pop(pod.uid, None) is not None:
            self.coreweave.exited(pod.uid, 1, reason)
            self._look()

    # Losses behind the controller's back

    def furnish(self, name: str, labels: Mapping[str, str]) -> None:
        """Put a pool there that the controller did not ask for."""
        spec = {"instanceType": "cd-gp-i64", "targetNodes": 1, "nodeLabels": dict(labels)}
        body = {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "NodePool",
            "metadata": {"name": name, "labels": dict(labels)},
        }
        self.must(Request("POST", POOLS, body={**body, "spec": spec}))
        self.changed()

    def struck(self, hit: bool, span: int = 0) -> bool:
        """Tell the watches what a fault has done, which lasts ``span`` ns; give whether it did anything."""
        self._look()
        if hit:
            self.world.disturbed(span)
        return hit

    def kill_node(self, name: str) -> bool:
        """A machine dies with all that runs on it; another one comes after a while."""
        return self.struck(self.coreweave.kill_node(name))

    def delete_pool_from_outside(self, name: str) -> None:
        """Begin the deletion of a pool, whoever asked for it."""
        self.must(Request("DELETE", f"{POOLS}/{name}"))
        self.changed()

    def delete_pod_from_outside(self, name: str) -> None:
        """Begin the deletion of a pod, whoever asked for it."""
        self.must(Request("DELETE", f"{PODS}/{name}"))
        self.changed()

    def lose_everything(self) -> None:
        """Have all pools of the cluster gone, with all that ran there and without a trace."""
        self.coreweave.lose_everything(_ours)
        self._look()

    def lose_pods(self) -> None:
        """Have all pods of the cluster gone at once; their pools stay."""
        self.coreweave.lose_pods(_ours)
        self._look()

    def lose_machines(self) -> None:
        """Have all machines die; others come after a while. What ran there is shown for a while as if it did still."""
        self.coreweave.lose_machines(_ours)
        self._look()

    # The end of faults

    def heal(self) -> None:
        """Repair what waits for a repair; machines come."""
        self.coreweave.heal()
        self.server.heal()
        self._look()


def _thing(item: Mapping[str, Any]) -> Thing:
    metadata, status = item["metadata"], item.get("status") or {}
    over = status.get("phase") in ("Succeeded", "Failed")
    return Thing(metadata["name"], metadata["uid"], metadata.get("labels", {}), over)


def _rules(permissions: Iterable[tuple[str, str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [{"apiGroups": [group], "resources": [plural], "verbs": list(verbs)} for group, plural, verbs in permissions]


def _denied(message: str) -> Response:
    return Response(403, status_failure(403, "Forbidden", message, {}))


def _ours(item: Mapping[str, Any]) -> bool:
    """Choose what belongs to the simulated cluster, the controller's own apart."""
    labels = item["metadata"].get("labels", {})
    return bool(labels.get(LABEL_CLUSTER) == CLUSTER and labels.get(LABEL_ROLE) != ROLE_CONTROLLER)
