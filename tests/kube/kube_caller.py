"""A caller of a simulated store: short words for requests, and a clock that the test turns."""

from random import Random

from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store

SECOND = 1_000_000_000
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
WIDGETS = "/apis/test.dev/v1/namespaces/default/widgets"


class Caller:
    """Sends requests to one store; ``now`` is in ns since 1970."""

    def __init__(self, **options):
        self.now = 1_800_000_000 * SECOND
        self.store = Store(rng=Random(7), now=self.now, **options)

    def ask(self, method, path, body=None, *, content_type="application/json", user="admin", accept="", **query):
        """Return the response to one request; keyword arguments are its query."""
        pairs = tuple((name, str(value)) for name, value in query.items())
        request = Request(method, path, pairs, body, content_type, user, accept or "application/json")
        return self.store.handle(request, self.now)

    def done(self, method, path, body=None, **more):
        """Return the body of the answer to a request that must succeed."""
        response = self.ask(method, path, body, **more)
        assert response.code in (200, 201, 202), response
        return response.body

    def refused(self, method, path, body=None, **more):
        """Return code, reason and message of the answer to a request that must be refused."""
        response = self.ask(method, path, body, **more)
        assert response.body["status"] == "Failure", response
        assert response.code == response.body["code"]
        return response.code, response.body.get("reason", ""), response.body["message"]

    def causes(self, method, path, body=None, **more):
        """Return reasons and fields of a refusal's causes."""
        response = self.ask(method, path, body, **more)
        return [(cause["reason"], cause["field"]) for cause in response.body["details"]["causes"]]

    def patch(self, path, body, content_type=MERGE, **more):
        """Return the object that a patch leads to."""
        return self.done("PATCH", path, body, content_type=content_type, **more)

    def apply(self, path, body, manager, **more):
        """Return the object that a server-side apply leads to."""
        return self.done("PATCH", path, body, content_type=APPLY, fieldManager=manager, **more)

    def watch(self, path, **query):
        """Open a watch."""
        pairs = (("watch", "1"), *((name, str(value)) for name, value in query.items()))
        return self.store.watch(Request("GET", path, pairs), self.now)

    def told(self, watch):
        """Return type and name of the events that a watch has now."""
        return [(event["type"], event["object"]["metadata"]["name"]) for event in watch.take(self.now)]


def config_map(name, data=None, **metadata):
    """Return the body of a config map."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        **({} if data is None else {"data": data}),
    }


def pod(name="a", node="", grace=None, **metadata):
    """Return the body of a pod of one container."""
    spec = {"containers": [{"name": "main", "image": "registry.test/image:1"}]}
    if node:
        spec["nodeName"] = node
    if grace is not None:
        spec["terminationGracePeriodSeconds"] = grace
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def definition(schema, *, group="test.dev", kind="Widget", scope="Namespaced", **version):
    """Return the body of a definition with one version, v1."""
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


def widget(called="w", /, **spec):
    """Return the body of a widget."""
    return {"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": called}, "spec": spec}


def spec_schema(**fields):
    """Return the schema of an object whose spec has these fields."""
    spec = {"type": "object", "properties": fields}
    return {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
