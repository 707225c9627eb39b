"""The attributes of workers that the documentation names for constraints are those that workers have."""

import re
from pathlib import Path

from iriscw.client.submission import parse_constraints
from iriscw.config.load import build_config
from iriscw.controller.settings import fleet_config
from iriscw.fleet.messages import WorkerDialled
from iriscw.fleet.model import FREEZABLE, TASK_RUNTIME, PodState
from iriscw.fleet.registration import judge_dial
from iriscw.resources import Resources
from iriscw.worker.__main__ import ATTRIBUTES_VARIABLE, _attributes

DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.search(r"\n## What it is like\n(.*?)\n## ", (DOCS / "worker.md").read_text(encoding="utf-8"), re.DOTALL)[1]
CONFIG = {
    "platform": {"coreweave": {"region": "LGA1"}},
    "scale_groups": {
        "h100": {
            "accelerator_type": "gpu",
            "accelerator_variant": "H100",
            "resources": {"cpu": 1, "ram": "1GiB", "gpu_count": 8},
            "slice_template": {"coreweave": {"instance_type": "gd-8xh100ib-i128"}},
            "attributes": {"rack": "7"},
        }
    },
}


def registered(config=CONFIG, said="{}"):
    """Return what the controller has of a worker that dials; ``said`` is what its variable adds."""
    (group,) = fleet_config(build_config(config)).groups
    own = _attributes("w", {ATTRIBUTES_VARIABLE: said})
    dial = WorkerDialled("w", "i", group.per_worker, own, "10.0.0.1")
    return judge_dial(
        dial, config=group, slice_id="s", state=PodState.STARTING, incarnation="i", briefed=True
    ).attributes


def documented():
    """Return the names in the first column of the table."""
    cells = [line.split(" | ")[0] for line in SECTION.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]


def test_the_table_has_what_every_worker_has():
    """Each of them, and none that there is not; a group's own come on top, and so do those that some workers have."""
    assert sorted([*documented(), "rack"]) == [name for name, _ in registered().pairs]
    pods = {**CONFIG["scale_groups"]["h100"], "task_runtime": "pod"}
    more = registered({**CONFIG, "scale_groups": {"h100": pods}}, f'{{"{FREEZABLE}": "true"}}')
    assert {name for name, _ in more.pairs} - {*documented(), "rack"} == {FREEZABLE, TASK_RUNTIME}
    assert {FREEZABLE, TASK_RUNTIME} <= {*re.findall(r"`([\w-]+)`", SECTION.partition("\n\nThose")[2])}


def test_constraints_on_the_page_for_users_of_iris_can_hold():
    """They are on attributes of every worker, or such as a group may name; an amount of CPUs or GPUs is none."""
    page = (DOCS / "from-iris.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `constraints` |")]
    (given,) = re.findall(r"constraints=\{\"([\w-]+)\": \"(\S+?)\"\}", row)
    assert registered().get(given[0]) == given[1]
    (text,) = re.findall(r"such as `([^`]+)`", row)
    (constraint,) = parse_constraints([text])
    assert constraint.satisfied(registered())
    assert constraint.key not in {f"{name}{end}" for name in Resources.__slots__ for end in ("", "s")}
