"""The current kubectl against a served simulation: what people type, and what they see."""

import asyncio
import json
import os
from contextlib import asynccontextmanager

import aiohttp
import pytest
import trustme

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing

SPEED = 100
"""A simulated minute takes 0.6 s: quick machines are there within half a second."""

POOL = """
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: h100}
spec: {instanceType: gd-8xh100ib-i128, targetNodes: 2}
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: iris
  annotations: {sim.iriscw.dev/log: "step 1\\nstep 2"}
spec:
  restartPolicy: Never
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  containers:
  - name: main
    image: registry.example/train:1
    command: [sleep, "COMMAND"]
    resources: {limits: {nvidia.com/gpu: "8"}}
"""
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}


class Kubectl:
    """Runs kubectl with the server's kubeconfig and nothing else of the machine's."""

    def __init__(self, program, kubeconfig, home):
        self._program = program
        self._environment = {"HOME": str(home), "PATH": os.defpath, "KUBECONFIG": str(kubeconfig)}

    async def _start(self, *arguments):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self._program, *arguments, env=self._environment, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, *arguments, typed=""):
        """Return exit code, output and error output."""
        process = await self._start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(typed.encode())
        return process.returncode, out.decode(), err.decode()

    async def __call__(self, *arguments, typed=""):
        """Return the output of a command that must succeed."""
        code, out, err = await self.run(*arguments, typed=typed)
        assert code == 0, (arguments, out, err)
        return out

    async def table(self, *arguments):
        """Return the rows of a table as lists of words, its head first."""
        return [line.split() for line in (await self(*arguments)).splitlines()]

    @asynccontextmanager
    async def following(self, *arguments):
        """Yield a function that waits for the next line of a command that goes on."""
        process = await self._start(*arguments)

        async def line():
            async with asyncio.timeout(20):
                return (await process.stdout.readline()).decode().rstrip()

        try:
            yield line
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


@pytest.fixture
async def kubectl(kubectl_program, tmp_path):
    """A kubectl with a cluster in which machines are quick and nothing goes wrong."""
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", speed=SPEED, timing=Timing.QUICK)
    async with SimServer(settings) as server:
        yield Kubectl(kubectl_program, tmp_path / "kubeconfig", tmp_path)
        assert server.statistics().failures == 0


@pytest.fixture
async def trained(kubectl):
    """The same, with a pod that runs."""
    await kubectl("apply", "-f", "-", typed=f"{POOL}---{POD.replace('COMMAND', '1h')}")
    await kubectl("wait", "-n", "iris", "--for=condition=Ready", "pod/train", "--timeout=30s")
    return kubectl


async def test_a_fleet_boots_before_ones_eyes(kubectl):
    """A pool is applied, nodes appear one after the other, and a pod that waited for them runs and ends."""
    async with kubectl.following("get", "nodes", "--watch", "--no-headers") as line:
        out = await kubectl("apply", "-f", "-", typed=f"{POOL}---{POD.replace('COMMAND', '300')}")
        assert out.splitlines() == ["nodepool.compute.coreweave.com/h100 created", "pod/train created"]
        ready = []
        while len(ready) < 2:
            name, state, *_ = (await line()).split()
            if state == "Ready" and name not in ready:
                ready.append(name)
    await kubectl("wait", "-n", "iris", "--for=condition=Ready", "pod/train", "--timeout=30s")
    head, row = await kubectl.table("get", "pods", "-n", "iris")
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["train", "1/1", "Running", "0"]
    head, row = await kubectl.table("get", "nodepools")
    assert head[:5] == ["NAME", "INSTANCE", "TYPE", "TARGET", "QUEUED"]
    assert row[:6] == ["h100", "gd-8xh100ib-i128", "2", "0", "0", "2"]
    await kubectl("wait", "-n", "iris", "--for=jsonpath={.status.phase}=Succeeded", "pod/train", "--timeout=30s")
    wide = await kubectl.table("get", "pods", "-A", "-o", "wide", "--no-headers")
    assert wide[0][:4] == ["iris", "train", "0/1", "Completed"]
    assert wide[0][-1] in ready


async def test_get_in_its_ways(kubectl):
    """A table, a name, JSON, a path, a selection, nothing, an error."""
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    await kubectl("label", "configmap", "c", "team=red")
    assert (await kubectl.table("get", "cm"))[1][:2] == ["c", "1"]
    assert await kubectl("get", "cm", "-l", "team=red", "-o", "name") == "configmap/c\n"
    assert json.loads(await kubectl("get", "cm", "c", "-o", "json"))["data"] == {"a": "1"}
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}") == "1"
    code, out, err = await kubectl.run("get", "cm", "-l", "team=blue")
    assert (code, out, err) == (0, "", "No resources found in default namespace.\n")
    code, _, err = await kubectl.run("get", "cm", "nothing")
    assert (code, err) == (1, 'Error from server (NotFound): configmaps "nothing" not found\n')


@pytest.mark.slow
async def test_a_watch_tells_what_changes(kubectl):
    """Row by row, as it happens."""
    async with kubectl.following("get", "configmaps", "--watch", "--no-headers") as line:
        await kubectl("create", "configmap", "c", "--from-literal=a=1")
        assert (await line()).split()[:2] == ["c", "1"]
        await kubectl("patch", "configmap", "c", "--type=merge", "-p", '{"data":{"b":"2"}}')
        assert (await line()).split()[:2] == ["c", "2"]


@pytest.mark.slow
async def test_apply_from_the_client(kubectl):
    """Created, unchanged, configured; a field that does not exist is an error of the server's."""
    said = [await kubectl("apply", "-f", "-", typed=json.dumps(CONFIG_MAP)) for _ in range(2)]
    assert said == ["configmap/c created\n", "configmap/c unchanged\n"]
    changed = json.dumps(CONFIG_MAP | {"data": {"b": "2"}})
    assert await kubectl("diff", "--help")
    assert await kubectl("apply", "-f", "-", typed=changed) == "configmap/c configured\n"
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data}") == '{"b":"2"}'
    code, _, err = await kubectl.run("apply", "-f", "-", typed=json.dumps(CONFIG_MAP | {"dta": {}}))
    assert code == 1
    assert 'strict decoding error: unknown field "dta"' in err


@pytest.mark.slow
async def test_apply_from_the_server(kubectl):
    """With managers that own fields, and a conflict that names them."""
    apply = ("apply", "--server-side", "-f", "-")
    assert await kubectl(*apply, typed=json.dumps(CONFIG_MAP)) == "configmap/c serverside-applied\n"
    other = json.dumps(CONFIG_MAP | {"data": {"a": "9"}})
    code, _, err = await kubectl.run(*apply, "--field-manager=other", typed=other)
    assert code == 1
    assert 'conflict with "kubectl": .data.a' in err
    await kubectl(*apply, "--field-manager=other", "--force-conflicts", typed=other)
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}") == "9"


@pytest.mark.slow
async def test_patch_label_scale(kubectl):
    """Patches of each kind; the scale of what can be scaled, and of what cannot."""
    await kubectl("apply", "-f", "-", typed=POOL)
    await kubectl("patch", "nodepool", "h100", "--type=merge", "-p", '{"spec":{"targetNodes":1}}')
    await kubectl("patch", "ns", "iris", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    addition = '[{"op":"add","path":"/metadata/labels/b","value":"2"}]'
    await kubectl("patch", "ns", "iris", "--type=json", "-p", addition)
    await kubectl("annotate", "ns", "iris", "note=x")
    assert (await kubectl.table("get", "ns", "iris", "--show-labels"))[1][-1].startswith("a=1,b=2,")
    assert await kubectl("get", "nodepool", "h100", "-o", "jsonpath={.spec.targetNodes}") == "1"
    template = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"x": "y"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    await kubectl("apply", "-f", "-", typed=json.dumps(deployment))
    await kubectl("create", "deployment", "e", "--image=x", "--port=80", "--replicas=2", "--", "serve", "all")
    made = json.loads(await kubectl("get", "deployment", "e", "-o", "json"))["spec"]
    assert (made["replicas"], made["template"]["spec"]["containers"][0]["command"]) == (2, ["serve", "all"])
    assert await kubectl("scale", "deployment", "d", "--replicas=3") == "deployment.apps/d scaled\n"
    assert await kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}") == "3"
    assert (await kubectl.run("scale", "nodepool", "h100", "--replicas=3"))[0] == 1


@pytest.mark.slow
async def test_logs(trained):
    """All of them, the last, with times, and while they are written."""
    lines = (await trained("logs", "-n", "iris", "train")).splitlines()
    first = "iriscw: this container is simulated: image registry.example/train:1, command sleep 1h"
    assert lines[:3] == [first, "step 1", "step 2"]
    assert (await trained("logs", "-n", "iris", "train", "--tail=1")).count("\n") == 1
    assert "Z iriscw: " in await trained("logs", "-n", "iris", "train", "--timestamps", "--limit-bytes=60")
    async with trained.following("logs", "-n", "iris", "-f", "train", "--tail=0") as line:
        ages = [int((await line()).split()[-2]) for _ in range(3)]
        assert ages == [ages[0], ages[0] + 10, ages[0] + 20]
    code, _, err = await trained.run("logs", "-n", "iris", "train", "-c", "side")
    assert code == 1
    assert "container side is not valid for pod train" in err


async def test_exec(trained):
    """Output, input, exit codes."""
    run = ("exec", "-n", "iris", "train", "--")
    assert await trained(*run, "echo", "hi there") == "hi there\n"
    assert await trained(*run, "hostname") == "train\n"
    assert await trained("exec", "-i", *run[1:], "cat", typed="some\ntext") == "some\ntext"
    code, out, err = await trained.run(*run, "sh", "-c", "exit 3")
    assert (code, out) == (3, "")
    assert "command terminated with exit code 3" in err
    code, _, err = await trained.run(*run, "nvidia-smi")
    assert code == 127
    assert "nvidia-smi: not found: this container is simulated" in err
    code, _, err = await trained.run("exec", "-n", "iris", "nobody", "--", "true")
    assert (code, err) == (1, 'Error from server (NotFound): pods "nobody" not found\n')


async def fetched(port, path="/health"):
    """Return status and body of what a port of this machine answers."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.json()


async def test_port_forward(trained):
    """A port of this machine leads to the worker's, for any number of connections, one after the other and at once."""
    async with trained.following("port-forward", "-n", "iris", "train", ":8080", "--address", "127.0.0.1") as line:
        port = int((await line()).partition(" -> ")[0].rpartition(":")[2])
        for _ in range(3):
            status, body = await fetched(port)
            assert (status, body["status"], body["worker_id"]) == (200, "ok", "train")
        answers = await asyncio.gather(*(fetched(port, "/elsewhere") for _ in range(8)))
        assert [status for status, _ in answers] == [404] * 8
    code, _, err = await trained.run("port-forward", "-n", "iris", "nobody", ":80")
    assert (code, err) == (1, 'Error from server (NotFound): pods "nobody" not found\n')


@pytest.mark.slow
async def test_describe_and_events(trained):
    """What happened to a pod, a pool and a node."""
    said = await trained("describe", "pod", "-n", "iris", "train")
    assert ["Status:", "Running"] in [line.split() for line in said.splitlines()]
    assert "Successfully assigned iris/train to" in said
    assert "Reason:                TargetMet" in await trained("describe", "nodepool", "h100")
    node = await trained("get", "pod", "-n", "iris", "train", "-o", "jsonpath={.spec.nodeName}")
    assert "nvidia.com/gpu     8         8" in await trained("describe", "node", node)
    events = await trained.table("events", "-n", "iris", "--for", "pod/train")
    assert events[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {"Scheduled", "Pulling", "Started"} <= {word for row in events for word in row}


@pytest.mark.slow
async def test_delete_waits(trained):
    """Until the pod is gone, and until a pool's machines are."""
    said = await trained("delete", "pod", "-n", "iris", "train", "--timeout=30s")
    assert said.startswith('pod "train" deleted')
    assert (await trained.run("get", "pod", "-n", "iris", "train"))[0] == 1
    await trained("delete", "nodepool", "h100", "--timeout=30s")
    assert await trained("get", "nodes", "-o", "name") == ""
    await trained("create", "namespace", "team")
    await trained("create", "serviceaccount", "robot", "-n", "team")
    await trained("delete", "namespace", "team", "--timeout=30s")
    assert (await trained.run("get", "namespace", "team"))[0] == 1


@pytest.mark.slow
async def test_drain(trained):
    """The node is closed, its pod evicted, and it takes pods again."""
    node = await trained("get", "pod", "-n", "iris", "train", "-o", "jsonpath={.spec.nodeName}")
    said = await trained("drain", node, "--force", "--ignore-daemonsets", "--timeout=30s")
    assert said.splitlines()[-1] == f"node/{node} drained"
    assert await trained("get", "pods", "-n", "iris", "-o", "name") == ""
    assert await trained("uncordon", node) == f"node/{node} uncordoned\n"


@pytest.mark.slow
async def test_finding_ones_way(kubectl):
    """What is served, what its fields are, who one is, and what one may."""
    resources = await kubectl.table("api-resources", "--no-headers")
    assert ["nodepools", "compute.coreweave.com/v1alpha1", "false", "NodePool"] in resources
    assert ["pods", "po", "v1", "true", "Pod"] in resources
    assert "compute.coreweave.com/v1alpha1" in (await kubectl("api-versions")).split()
    said = await kubectl("explain", "nodepool.spec.targetNodes")
    assert "KIND:       NodePool" in said
    assert "FIELD: targetNodes <integer>" in said
    assert "FIELD: image <string>" in await kubectl("explain", "pod.spec.containers.image")
    assert "containers\t<[]Container> -required-" in await kubectl("explain", "pod.spec")
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert (await kubectl.run("auth", "can-i", "create", "pods", "--as=bob"))[1] == "no\n"
    assert "Server Version: v1.36" in await kubectl("version")


@pytest.mark.slow
async def test_roles_can_be_tried_out(kubectl):
    """As somebody who may read pods in one namespace, and nothing else."""
    await kubectl("create", "role", "reader", "-n", "iris", "--verb=get,list", "--resource=pods")
    await kubectl("create", "rolebinding", "bob", "-n", "iris", "--role=reader", "--user=bob")
    assert (await kubectl.run("get", "pods", "-n", "iris", "--as=bob"))[0] == 0
    code, _, err = await kubectl.run("get", "nodes", "--as=bob")
    assert code == 1
    assert 'User "bob" cannot list resource "nodes"' in err


@pytest.mark.slow
async def test_pools_to_begin_with(kubectl_program, tmp_path):
    """Are there when the server is."""
    pools = (PoolToBegin("a"), PoolToBegin("b", "b200-8x", 3))
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", pools=pools)
    async with SimServer(settings):
        rows = await Kubectl(kubectl_program, tmp_path / "kubeconfig", tmp_path).table("get", "nodepools")
    assert [row[:3] for row in rows[1:]] == [["a", "gd-8xh100ib-i128", "1"], ["b", "b200-8x", "3"]]


async def test_with_tls_the_token_goes_in_the_header(kubectl_program, tmp_path):
    """The kubeconfig trusts the server's own certificate, and its address is clean."""
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    path = tmp_path / "kubeconfig"
    settings = ServeSettings(kubeconfig=path, tls_cert=tmp_path / "cert", tls_key=tmp_path / "key", controllers=False)
    async with SimServer(settings) as server:
        kubectl = Kubectl(kubectl_program, path, tmp_path)
        assert (await kubectl.table("get", "namespaces", "--no-headers"))[0][:2] == ["default", "Active"]
        assert await kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}") == server.url
