"""Random fault plans on a real API server with the simulated CoreWeave behind it, and the controller in the middle.

Each plan is drawn from its number (``fault_plans.py``); while it lasts jobs are submitted, processes and servers are
killed, nodes and disks are lost, and the world is in a mood. Then everything is repaired, and all must come to its
right end within a bound: each job that was acknowledged, and then the fleet, of which nothing may be left. What must
hold all the while is judged from the outside (``promises.py``).

Plans follow each other on one cluster, which is made when it is needed and when a plan has failed on it.
"""

import asyncio
import itertools
import logging
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from iriscw._errors import OperationError
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.resources import Resources
from iriscw_sims.coreweave.crd import POOLS

sys.path.insert(0, str(Path(__file__).parent))

from coreweave_cluster import (
    CLAIM,
    MAX_SLICES,
    NODES,
    OURS,
    PODS,
    SECRETS,
    WORKERS_PER_SLICE,
    CoreweaveCluster,
    is_controller,
    is_slice,
)
from fault_plans import DISK_LOST, WINDOW_S, draw_plan
from kube_server import NoBinariesError
from promises import Evidence, judge, read_audit, read_marks

log = logging.getLogger(__name__)

CONVERGE_S = 90
"""Until all is well again after the last fault: some 10 s on a machine with nothing else to do."""

SMALL = Resources(cpu="1", memory="64MiB")
WHOLE = Resources(cpu="2", memory="64MiB")
CALM_S = 3.5
"""What the last job takes: longer than an idle slice stays."""

TASK = """
exec 9>"$0/$IRIS_JOB_ID.$IRIS_TASK_INDEX.lock" || exit 9
flock -w 5 9 || { echo "$IRIS_ATTEMPT_UID of $IRIS_TASK_ID" >> "$0/overlaps"; exit 8; }
mark() { echo "$1 $IRIS_JOB_ID $IRIS_TASK_INDEX $IRIS_ATTEMPT_UID $IRIS_WORKER_ID $(date +%s.%N)" >> "$0/marks"; }
mark begin
sleep "$1"
mark end
exit "$2"
"""
"""Holds a lock of its task while it runs. What was killed needs a moment to be gone, and so is waited for."""

CODES = {JobState.SUCCEEDED: "0", JobState.FAILED: "7", JobState.KILLED: "0"}


class Clusters:
    """The cluster of now: another one after a failure."""

    def __init__(self, folder):
        self.folder, self.numbers = folder, itertools.count()
        self.cluster = None

    def get(self):
        """Return a cluster that serves."""
        if self.cluster is not None and self.cluster.spent:
            self.close()
        if self.cluster is None:
            self.cluster = CoreweaveCluster(self.folder / f"cluster-{next(self.numbers)}").__enter__()
        return self.cluster

    def close(self):
        """End it; no process may be left."""
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            try:
                cluster.__exit__()
            except Exception:
                if not cluster.spent:
                    raise
                log.exception("what broke a plan broke the cluster's end, too")
            assert cluster.leftovers() == []
            if not cluster.spent:
                shutil.rmtree(cluster.folder)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """The clusters of this module; tests are skipped where there is no real API server."""
    made = Clusters(tmp_path_factory.mktemp("coreweave"))
    try:
        made.get()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    yield made
    made.close()


class Run:
    """One plan on one cluster."""

    def __init__(self, cluster, plan):
        self.cluster, self.plan = cluster, plan
        self.folder = cluster.folder / f"plan-{plan.seed}"
        self.folder.mkdir()
        self.acknowledged = {}
        self.said = []

    async def by_hand(self, function, *args):
        """Do something that waits, in the one thread for that."""
        return await asyncio.wrap_future(self.cluster.hands.submit(function, *args))

    async def carry_out(self):
        """All of it."""
        async with self.cluster.client() as client:
            await client.status()  # it serves
            await self.by_hand(self.cluster.mood, self.plan.moods, self.plan.seed)
            async with anyio.create_task_group() as tasks:
                for number, job in enumerate(self.plan.jobs):
                    tasks.start_soon(self.submit, client, number, job)
                await self.strike()
                await self.by_hand(self.cluster.heal)
            await self.converge(client)
        self.judge()

    async def strike(self):
        """Do to the cluster what the plan says."""
        begun = anyio.current_time()
        for each in self.plan.strikes:
            await anyio.sleep_until(begun + each.at_s)
            hit = await self.by_hand(self.cluster.strike, each.kind, each.pick)
            self.said.append(f"{anyio.current_time() - begun:5.2f} s  {each.kind}: {hit or 'nothing to hit'}")
        await anyio.sleep_until(begun + WINDOW_S)

    async def submit(self, client, number, job):
        """Submit a job; the client repeats that until somebody answers."""
        await anyio.sleep(job.at_s)
        endless = job.ends is JobState.KILLED
        seconds = "1000" if endless else str(job.seconds)
        command = Command(["sh", "-c", TASK, str(self.folder), seconds, CODES[job.ends]])
        try:
            made = await client.submit(
                command,
                name=f"plan{self.plan.seed}-{number}",
                replicas=job.replicas,
                resources=SMALL,
                constraints={"pool": job.group},
                max_retries_failure=1 if job.ends is JobState.FAILED else 0,
            )
        except OperationError as error:
            self.said.append(f"job {number} was not acknowledged: {error!r}")
            return
        self.acknowledged[made.id] = job.ends
        if endless:
            await anyio.sleep(job.seconds)
            await made.terminate()

    async def converge(self, client):
        """Wait until each job has ended as it must, one more has run, and nothing is left."""
        with anyio.fail_after(CONVERGE_S):
            for job_id, ends in self.acknowledged.items():
                job = await client.job(job_id)
                status = await job.wait()
                assert status.state is ends, (status, await job.tasks())
            command = Command(["sh", "-c", TASK, str(self.folder), str(CALM_S), "0"])
            last = await client.submit(command, name=f"plan{self.plan.seed}-calm", resources=WHOLE)
            self.calm_job = last.id
            assert (await last.wait()).state is JobState.SUCCEEDED
            names = [job.name for job in await client.jobs(prefix=f"plan{self.plan.seed}-")]
            assert len(names) == len(set(names)), "a submission that was repeated made two jobs"
        await self.nothing_is_left()

    async def nothing_is_left(self):
        """Slices go when they are idle, with all that was theirs; what is somebody else's stays as it was."""
        cluster = self.cluster
        for path, holds in (
            (POOLS, lambda items: not [each for each in items if is_slice(each)]),
            (PODS, lambda items: not [each for each in items if is_worker(each)]),
            (SECRETS, lambda items: not [each for each in items if is_worker(each)]),
            (NODES, lambda items: all(each["metadata"]["labels"].get("iris-role") == "controller" for each in items)),
            (PODS, lambda items: any(is_controller(each) for each in items)),
        ):
            found, held = await self.by_hand(cluster.until, path, holds, CONVERGE_S)
            assert held, f"left of {path}: {[each['metadata']['name'] for each in found]}"
        for (path, name), uid in cluster.strangers.items():
            found = await self.by_hand(cluster.get, f"{path}/{name}")
            assert found is not None, f"{name} is gone"
            assert found["metadata"]["uid"] == uid
            assert not found["metadata"].get("deletionTimestamp")

    def judge(self):
        """Judge by what was written down, from the cluster's beginning on: who leads has led before."""
        marks = read_marks(self.read("marks"))
        with self.cluster.audit_log.open(encoding="utf-8") as file:
            asked = read_audit(line for line in file.read().splitlines() if line.endswith("}"))
        evidence = Evidence(
            asked,
            marks,
            self.read("overlaps").splitlines(),
            self.cluster.uid,
            {group: (MAX_SLICES[group], WORKERS_PER_SLICE[group]) for group in MAX_SLICES},
            frozenset(mark.attempt for mark in marks if mark.job_id == self.calm_job),
        )
        assert evidence.calm, "the last job has left no mark"
        wrong = judge(evidence)
        assert wrong == []

    def read(self, name):
        """Return what tasks wrote to a file."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def report(self):
        """Say what was done, and how everything is."""
        done = "\n".join(self.said)
        return f"{self.plan.text}\n-- done\n{done}\n{self.cluster.report()}"


def is_worker(item):
    """Tell whether something belongs to a worker's pod."""
    return (item["metadata"].get("labels") or {}).get(OURS) == "true"


@pytest.mark.slow
async def test_a_value_outlives_the_controllers_node_and_disk(clusters):
    """Who has seen a job succeed can read what it returned when nothing of that controller is left (INV-J1)."""
    cluster = clusters.get()
    whole = b"value" * 200_000
    try:
        async with cluster.client() as client:
            with anyio.fail_after(CONVERGE_S):
                small = await client.submit(len, "four", name="small-value", resources=SMALL)
                large = await client.submit(bytes, whole, name="large-value", resources=SMALL)
                assert (await small.result(), await large.result()) == ([4], [whole])
            hit = ""
            with anyio.fail_after(CONVERGE_S):
                while not hit.endswith(f"and {CLAIM}"):  # it may be on no node at the moment
                    hit = await asyncio.wrap_future(cluster.hands.submit(cluster.strike, DISK_LOST, 0))
                    await anyio.sleep(0.2)
            await asyncio.wrap_future(cluster.hands.submit(cluster.heal))
            with anyio.fail_after(2 * CONVERGE_S):
                for job, value in ((small, 4), (large, whole)):
                    assert await (await client.job(job.id)).result() == [value]
    except BaseException as error:
        cluster.spent = True
        error.add_note(cluster.report())
        raise


async def holds(clusters, seed):
    """Carry a plan out; a failure says all that there is to say."""
    cluster = clusters.get()
    run = Run(cluster, draw_plan(seed))
    try:
        await run.carry_out()
    except BaseException as error:
        cluster.spent = True
        error.add_note(run.report())
        raise


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(20), ids=lambda seed: f"plan{seed}_")
async def test_a_plan(clusters, seed):
    """Whatever goes wrong, nothing acknowledged is lost, nothing is done twice, and nothing is left."""
    await holds(clusters, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20, 220), ids=lambda seed: f"plan{seed}_")
async def test_another_plan(clusters, seed):
    """The same, two hundred times more."""
    await holds(clusters, seed)
