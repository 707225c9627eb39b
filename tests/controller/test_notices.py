"""What of the fleet is told on node pools, and that ``kubectl`` shows it."""

import os
import re
import subprocess
from pathlib import Path

import anyio
import pytest
from controller_world import World, get
from coreweave_world import PODS, POOLS, GpuWorker, Handed, configuration, serving
from prometheus_client import CollectorRegistry, generate_latest

from iriscw.cloud.kube.notices import Notice, NoticeStatistics
from iriscw.controller.features.fleet import notice_figures
from iriscw.controller.platforms.notices import DRAINING, NOT_READY, READY, TROUBLES, PoolNotices, notices_of
from iriscw.fleet.messages import PolicyFailed, SliceChanged
from iriscw.fleet.model import SliceRow, SliceState, Trouble

S, T = SliceState, Trouble
ROOT = Path(__file__).parents[2]
EVENTS = "/api/v1/namespaces/default/events"


def changed(state, trouble=T.NONE, *, was=None, trouble_was=T.NONE, reason="why", nodes=2):
    """Return a change of a slice."""
    row = SliceRow("iris-h100-a", "h100", state, trouble, reason, 1, 2, num_vms=nodes)
    return SliceChanged(row, "u1", was, trouble_was, 3)


def told(*changes):
    """Return reason, text and whether it is a warning, of all that is told of some changes."""
    return [(each.reason, each.text, each.warning) for change in changes for each in notices_of(change)]


def test_a_slices_life_in_order():
    """Its turns, and what it waits for, each when it begins."""
    assert told(
        changed(S.CREATING),
        changed(S.BOOTING, was=S.CREATING),
        changed(S.BOOTING, T.CAPACITY, was=S.BOOTING, reason="the zone has no free machines now"),
        changed(S.BOOTING, was=S.BOOTING, trouble_was=T.CAPACITY),
        changed(S.BOOTING, T.SLOW_BOOT, was=S.BOOTING, reason="0 of 2 nodes are ready"),
        changed(S.INITIALIZING, was=S.BOOTING, trouble_was=T.SLOW_BOOT),
        changed(S.READY, was=S.INITIALIZING, reason=""),
        changed(S.INITIALIZING, was=S.READY, reason="1 of 2 workers are registered"),
        changed(S.READY, was=S.INITIALIZING, nodes=1),
        changed(S.DRAINING, was=S.READY, reason="idle for 300 s"),
        changed(S.DELETING, was=S.DRAINING, reason="idle for 300 s"),
        changed(S.DELETING, T.STUCK_DELETION, was=S.DELETING, reason="more than 15 minutes"),
        changed(S.GONE, T.STUCK_DELETION, was=S.DELETING, trouble_was=T.STUCK_DELETION),
    ) == [
        ("NoCapacity", "the zone has no free machines now", True),
        ("SlowBoot", "it takes longer than usual: 0 of 2 nodes are ready", True),
        ("SliceReady", "all 2 workers are registered: work may be placed", False),
        ("SliceNotReady", "1 of 2 workers are registered", True),
        ("SliceReady", "its worker is registered: work may be placed", False),
        ("Draining", "the slice is being removed: idle for 300 s", False),
        ("DeletionStuck", "more than 15 minutes", True),
    ]


def test_a_failure_is_told_once():
    """As its trouble when it begins; that the slice goes because of it is another thing."""
    assert told(
        changed(S.FAILED, T.QUOTA, was=S.BOOTING, reason="over quota"),
        changed(S.DRAINING, T.QUOTA, was=S.FAILED, trouble_was=T.QUOTA, reason="over quota"),
        changed(S.DELETING, T.QUOTA, was=S.DRAINING, trouble_was=T.QUOTA),
    ) == [("QuotaExceeded", "over quota", True), ("Draining", "the slice is being removed: over quota", False)]
    assert told(
        changed(S.FAILED, T.SLOW_BOOT, was=S.BOOTING, trouble_was=T.SLOW_BOOT, reason="not within 3600 s"),
        changed(S.DELETING, T.SLOW_BOOT, was=S.FAILED, trouble_was=T.SLOW_BOOT, reason="not within 3600 s"),
    ) == [("Draining", "the slice is being removed: not within 3600 s", False)]


def test_a_worker_that_fails_says_why_and_no_more():
    """That the slice is not whole is said by the trouble, where there is one."""
    lost = changed(S.INITIALIZING, T.WORKERS, was=S.READY, reason="1 of 2 workers are registered; no contact")
    assert told(lost) == [("WorkersFailing", "1 of 2 workers are registered; no contact", True)]


@pytest.mark.parametrize("trouble", [each for each in T if each is not T.NONE])
def test_each_trouble_has_a_reason_of_its_own(trouble):
    """One word that Kubernetes takes."""
    ((reason, text, warning),) = told(changed(S.BOOTING, trouble, was=S.BOOTING))
    assert re.fullmatch("[A-Z][a-z]+([A-Z][a-z]+)*", reason)
    assert len(set(TROUBLES.values())) == len(T) - 1
    assert warning
    assert text.endswith("why")


def test_it_is_about_the_pool():
    """By name and uid, at the time of the change; what is no change of a slice is nobody's."""
    heard = []

    class Noticing:
        def tell(self, notice):
            heard.append(notice)

        def statistics(self):
            return NoticeStatistics(told=7)

    notices = PoolNotices(Noticing())
    notices.notice(PolicyFailed("h100", "no"))
    notices.notice(changed(S.DRAINING, was=S.READY, reason=""))
    assert heard == [Notice("iris-h100-a", "u1", "Draining", "the slice is being removed: ", warning=False, at=3)]
    assert notices.statistics().told == 7


def test_the_page_has_every_reason():
    """docs/failures.md says of each what it means and what to do."""
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    table = page.partition("## What `kubectl describe nodepool` shows")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| `")]
    assert [row[0].removeprefix("| ") for row in rows] == [
        f"`{each}`" for each in (READY, NOT_READY, DRAINING, *TROUBLES.values())
    ]
    assert all(len(row) == 3 for row in rows)


def test_metrics():
    """What became of them, as a counter."""

    class Shown:
        def collect(self):
            return notice_figures(NoticeStatistics(told=5, dropped=2, lost=1, waiting=3))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown())
    text = generate_latest(registry).decode()
    for outcome, count in (("told", 5), ("dropped", 2), ("lost", 1)):
        assert f'\niriscw_pool_notices_total{{outcome="{outcome}"}} {count}.0\n' in text
    assert "\niriscw_pool_notices_waiting 3.0\n" in text


async def test_a_platform_without_pools_of_kubernetes_tells_nothing(world: World) -> None:
    """And has no figures of it."""
    _, body = await get(world, "/metrics", world.controller.admin_token.reveal())
    assert b"iriscw_pool_notices" not in body


@pytest.fixture(scope="session")
def kubectl_program() -> str:
    """The path of a current kubectl; the test is skipped where there is none."""
    finder = ROOT / "tests" / "kube" / "real" / "build-kubectl"
    found = subprocess.run([finder, "--only-find"], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip(f"no kubectl: {found.stderr.strip()}")
    return found.stdout.strip()


async def all_told(cluster, pool, *reasons):
    """Wait until Events of a pool have these reasons, and give them by reason."""
    with anyio.fail_after(60):
        while True:
            events = [each for each in await cluster.objects.list(EVENTS) if each["involvedObject"]["name"] == pool]
            found = {each["reason"]: each for each in events if each["source"]["component"] == "iriscw-controller"}
            if set(reasons) <= set(found):
                return found
            await anyio.sleep(0.05)


@pytest.mark.slow
async def test_kubectl_shows_what_becomes_of_a_slice(tmp_path: Path, kubectl_program: str) -> None:
    """It gets ready, its worker is lost, and it goes: with our reasons, on its pool, beside the cloud's own."""
    async with serving(tmp_path) as cluster:
        config = configuration(cluster.kubeconfig, min_slices=1, max_slices=1)
        async with cluster.controller(config) as controller:
            pool = (await cluster.one(POOLS))["metadata"]["name"]
            pod = await cluster.one(PODS)
            place = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
            token = await cluster.token_of(pod["metadata"]["name"])
            async with GpuWorker(Handed(controller, token), place["IRIS_WORKER_ID"], place["IRIS_INCARNATION"]):
                await all_told(cluster, pool, "SliceReady")
                await cluster.objects.delete(f"{PODS}/{pod['metadata']['name']}")
                await all_told(cluster, pool, "SliceReady", "WorkersFailing")
            environment = {"HOME": str(tmp_path), "PATH": os.defpath, "KUBECONFIG": str(cluster.kubeconfig)}
            shown = await anyio.run_process([kubectl_program, "describe", "nodepool", pool], env=environment)
            described = shown.stdout.decode()
            assert f"iris-slice-id={pool}" in described
            table = described.partition("Events:")[2]
            ours = [line.split() for line in table.splitlines() if "iriscw-controller" in line]
            assert ["Normal", "SliceReady"] in [words[:2] for words in ours]
            (failing,) = [line for line in table.splitlines() if "WorkersFailing" in line]
            assert failing.split()[0] == "Warning"
            assert "0 of 1 workers are registered" in failing
            assert re.search(r"coreweave\s+CWNodeRegistered|CWNodeRegistered.*coreweave", table), table
            await cluster.objects.delete(f"{POOLS}/{pool}")
            found = await all_told(cluster, pool, "Draining")
            assert "deleted from outside" in found["Draining"]["message"]
            assert controller.statistics().notices.told >= 3
