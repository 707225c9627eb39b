"""A shell around the calls of the driver, for tests: a simulated API server, and a fate for each request."""

from random import Random

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable, Pause
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_SLICE,
    Capacity,
    NodePoolSpec,
    PodSpec,
)
from iriscw_sims.coreweave.crd import install
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import status_failure
from iriscw_sims.kube.store import Store

SECOND = 1_000_000_000
GIB = 1 << 30
OK, LOST, SILENT = "ok", "lost", "silent"
"""What becomes of a request: answered; never lands; lands, and the answer is lost."""

POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/iris/pods"
SETTINGS = KubeSettings(cluster="test", image="registry.test/worker:1")
OURS = {LABEL_MANAGED: "true", LABEL_CLUSTER: "test"}


def refusal(code, reason="", text="no", retry_after=None, **details):
    """Return an answer that says no."""
    return ApiResponse(code, status_failure(code, reason, text, details), retry_after)


def pool_spec(name="slice-1", nodes=1, **labels):
    """Return the specification of a pool of ours."""
    return NodePoolSpec(name, "gd-8xh100ib-i128", nodes, {**OURS, LABEL_SLICE: name, **labels})


def pod_spec(name="slice-1-0", pool="slice-1", incarnation="1", **more):
    """Return the specification of a pod of ours."""
    labels = {**OURS, LABEL_SLICE: pool, LABEL_INCARNATION: incarnation}
    return PodSpec(name, pool, labels, Capacity(8000, 64 * GIB, 100 * GIB, 8), **more)


def node_body(name, slice_id, *, ready="True", **more):
    """Return the body of a node of ours."""
    labels = {**OURS, LABEL_SLICE: slice_id, **more.pop("labels", {})}
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status, **more}


class Server:
    """A store, its clock, and what happened to each request."""

    def __init__(self):
        self.now = 1_800_000_000 * SECOND
        self.store = Store(rng=Random(7), now=self.now)
        install(self.store, self.now)
        self.rng = Random(11)
        self.requests: list[ApiRequest] = []
        self.pauses: list[int] = []
        self.before = None
        """Called with each request before it lands: what others do meanwhile."""

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Let a request land."""
        if self.before is not None:
            self.before(request)
        response = self.store.handle(
            Request(request.method, request.path, request.query, request.body, request.content_type), self.now
        )
        return ApiResponse(response.code, response.body)

    def do(self, method, path, body=None, **query):
        """Return the body of the answer to somebody else's request, which must succeed."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        pairs = tuple((name, str(value)) for name, value in query.items())
        response = self.store.handle(Request(method, path, pairs, body, content_type), self.now)
        assert response.code in (200, 201, 202), response
        return response.body

    def run(self, call, fates=()):
        """Run a call to its end. ``fates``: one per request, an answer instead of the server's or one of the words."""
        fates = iter(fates)
        step = next(call)
        try:
            while True:
                if isinstance(step, Pause):
                    assert step.span >= 0
                    self.pauses.append(step.span)
                    self.now += step.span
                    step = call.send(None)
                    continue
                self.requests.append(step)
                fate = next(fates, OK)
                answer = fate if isinstance(fate, ApiResponse) else None
                if fate in (OK, SILENT):
                    answer = self.handle(step)
                self.now += SECOND
                step = call.throw(ApiUnreachable("broke")) if fate in (LOST, SILENT) else call.send(answer)
        except StopIteration as done:
            return done.value

    def said(self):
        """Return method and path of each request that was made."""
        return [(request.method, request.path) for request in self.requests]

    def objects(self, path):
        """Return the truth about a collection."""
        return self.do("GET", path)["items"]
