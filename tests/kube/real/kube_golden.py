"""The golden answers: what a real server said to the catalogue, kept for machines that have none.

``python kube_golden.py`` asks a real server and writes the file anew (needs what ``build-apiserver`` needs). The file
has one line for each step, so a change of behaviour is a change of lines. Nothing in it is of one run: answers are in
normal form (``kube_normal``), without uids, times and addresses.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from kube_catalogue import SCENARIOS
from kube_crds import CRDS
from kube_normal import normal_form
from kube_program import Program, Step, complete
from kube_real_world import RealWorld
from kube_server import find_binaries, running_server
from kube_worlds import World, run_program

FILE = Path(__file__).parent / "golden.jsonl"

Answers = Mapping[str, Sequence[dict[str, Any]]]
"""For each scenario, the normal form of the answer to each step."""


def step_as_json(step: Step) -> dict[str, Any]:
    """Return a step as it is kept beside its answer: what differs from the default."""
    shown = attrs.asdict(step, filter=lambda attribute, value: value != attribute.default)
    return json.loads(json.dumps({"step": type(step).__name__, **shown}))  # type: ignore[no-any-return]


def record(world: World, scenarios: Mapping[str, Program] = SCENARIOS) -> dict[str, list[dict[str, Any]]]:
    """Run all scenarios in ``world``."""
    return {name: normal_form(run_program(program, world)) for name, program in scenarios.items()}


def save(answers: Answers) -> None:
    """Write the golden file."""
    with FILE.open("w", encoding="utf-8") as file:
        for name, program in SCENARIOS.items():
            for step, answer in zip(complete(program), answers[name], strict=True):
                json.dump({"scenario": name, "request": step_as_json(step), "answer": answer}, file, sort_keys=True)
                file.write("\n")


def load() -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Read the golden file: for each scenario, its steps and their answers."""
    result: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        result.setdefault(entry["scenario"], []).append((entry["request"], entry["answer"]))
    return result


def main() -> None:
    """Ask a real server and write the file."""
    with tempfile.TemporaryDirectory() as folder, running_server(find_binaries(), Path(folder) / "server") as server:
        world = RealWorld(server, CRDS)
        try:
            save(record(world))
        finally:
            world.close()


if __name__ == "__main__":
    main()
