"""Who may talk to whom, and who may read the figures."""

from deploy_world import EVERYTHING, bodies, installed

from iriscw.cloud.labels import our_labels

MONITOR = "ServiceMonitor/iris-controller"


def policy(installation, name):
    """Return a policy's specification."""
    return bodies(installation)[f"NetworkPolicy/{name}"]["spec"]


def ports(rules):
    """Return all ports of some rules."""
    return [each["port"] for rule in rules for each in rule.get("ports", ())]


def test_the_controllers_door_is_open_and_nothing_else():
    """To everybody: worker pods are on their nodes' network, where no selector finds them."""
    spec = policy(installed({"port": 4321}), "iris-controller")
    assert spec["ingress"] == [{"ports": [{"port": 4321, "protocol": "TCP"}]}]
    labels = bodies(installed())["Deployment/iris-controller"]["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert spec["policyTypes"] == ["Ingress", "Egress"]


def test_the_controller_reaches_what_it_needs():
    """Names, the API server, and an object store; the port without TLS only where there is a cache that speaks so."""
    assert ports(policy(installed(), "iris-controller")["egress"]) == [53, 53, 443, 6443]
    found = policy(installed(bundle_prefix="s3://bucket/x"), "iris-controller")
    assert ports(found["egress"]) == [53, 53, 443, 80, 6443]
    found = installed(platform={"object_storage_endpoint": "http://minio.internal:9000"}, bundle_prefix="s3://bucket/x")
    assert ports(policy(found, "iris-controller")["egress"]) == [53, 53, 443, 80, 9000, 6443]
    assert 9000 in ports(policy(found, "iris-worker")["egress"])
    plain = installed(platform={"object_storage_endpoint": "http://cwlota.com"}, bundle_prefix="gs://bucket/x")
    assert 80 in ports(policy(plain, "iris-worker")["egress"]), "tasks may use it, whatever keeps the bundles"


def test_workers_reach_the_controller_and_each_other():
    """By labels that worker pods have; not the API server's own port."""
    spec = policy(installed({"port": 4321}), "iris-worker")
    assert spec["podSelector"]["matchLabels"].items() <= our_labels("research", {}).items()
    to_controller, to_workers, *_ = spec["egress"]
    assert to_controller["ports"] == [{"port": 4321, "protocol": "TCP"}]
    assert "ports" not in to_workers
    assert 6443 not in ports(spec["egress"])
    from_workers, from_controller = spec["ingress"]
    assert from_workers == {"from": [{"podSelector": spec["podSelector"]}]}
    assert ports([from_controller]) == [10001]


def test_figures_are_read_with_a_token():
    """Over TLS, by the name in the certificate; the monitor's selector finds the Service."""
    found = bodies(installed(EVERYTHING))
    (endpoint,) = found[MONITOR]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    assert endpoint["tlsConfig"]["serverName"] in installed().host_names
    assert endpoint["authorization"]["credentials"] == {"name": "iris-metrics", "key": "token"}
    service = found["Service/iris-controller-svc"]
    assert found[MONITOR]["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]


def test_figures_without_tls():
    """Where the controller listens without, so does the monitor."""
    (endpoint,) = bodies(installed({**EVERYTHING, "insecure_plaintext": True}))[MONITOR]["spec"]["endpoints"]
    assert endpoint["scheme"] == "http"
    assert "tlsConfig" not in endpoint
