"""The variables of a task are those of the documented list, and the context file holds the rest."""

import re
from pathlib import Path, PurePath

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.processes.environment import CARRIED
from iriscw.task.environment import (
    CA_VARIABLE,
    AttemptFacts,
    GangFacts,
    InvalidPortName,
    decode_facts,
    encode_facts,
    gang_environment,
    is_reserved,
    port_variable,
    task_environment,
)

FACTS = AttemptFacts(
    job_id="/ada/count",
    task_id="/ada/count/3",
    attempt_uid="a-1",
    index=3,
    num_tasks=8,
    attempt=2,
    worker_id="w-0",
    namespace="/ada",
    parent_job_id="/ada",
    controller_address="http://c:10000",
    ports={"http": 30001},
    gpus=("GPU-2", "GPU-1"),
    gpu_indices=(2, 1),
)


def test_the_list_of_variables_is_complete_and_exact() -> None:
    """Programs in other languages lean on these names."""
    assert task_environment(FACTS, PurePath("/w")) == {
        "IRIS_CONTROLLER_ADDRESS": "http://c:10000",
        "IRIS_JOB_ID": "/ada/count",
        "IRIS_TASK_ID": "/ada/count/3",
        "IRIS_TASK_INDEX": "3",
        "IRIS_NUM_TASKS": "8",
        "IRIS_ATTEMPT_UID": "a-1",
        "IRIS_WORKER_ID": "w-0",
        "IRIS_PORT_HTTP": "30001",
        "IRIS_BIND_HOST": "127.0.0.1",
        "IRIS_ADVERTISE_HOST": "127.0.0.1",
        "IRIS_WORKDIR": "/w",
        "IRIS_TOKEN_FILE": "/w/.iris/token",
        "CUDA_VISIBLE_DEVICES": "GPU-2,GPU-1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-1",
        "IRIS_GPU_INDICES": "2,1",
    }


def test_a_task_without_gpus_is_shown_none() -> None:
    """It is told so, because without a word CUDA shows all. Where nobody here divides them, nothing is said."""
    none = task_environment(attrs.evolve(FACTS, gpus=(), gpu_indices=()), PurePath("/w"))
    said = {name: none[name] for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "IRIS_GPU_INDICES")}
    assert said == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "IRIS_GPU_INDICES": ""}
    assert not [name for name in task_environment(attrs.evolve(FACTS, gpus=None), PurePath("/w")) if name in said]


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "a=b", "é", "_a", "a\0"])
def test_a_port_needs_a_name_that_a_variable_can_have(name: str) -> None:
    """Anything else is refused instead of giving a variable that no shell can read."""
    with pytest.raises(InvalidPortName):
        port_variable(name)


@given(
    st.builds(
        AttemptFacts,
        job_id=st.text(),
        task_id=st.text(),
        attempt_uid=st.text(),
        index=st.integers(),
        num_tasks=st.integers(),
        ports=st.dictionaries(st.text(), st.integers()),
        gpus=st.none() | st.lists(st.text()),
        gpu_indices=st.lists(st.integers()),
    )
)
def test_facts_survive_the_file(facts: AttemptFacts) -> None:
    """What is written is what is read."""
    assert decode_facts(encode_facts(facts)) == facts


def test_fields_of_later_versions_are_left_out() -> None:
    """An older task reads the context of a newer worker."""
    newer = encode_facts(FACTS).replace(b"{", b'{"later": 1,', 1)
    assert decode_facts(newer) == FACTS


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"1"])
def test_other_files_are_refused(data: bytes) -> None:
    """A file that is none gives an error, not empty facts."""
    with pytest.raises(ValueError):
        decode_facts(data)


def test_what_is_set_for_a_task_is_reserved() -> None:
    """All of it, whatever the ports are called, and nothing else of the same prefix."""
    assert all(is_reserved(name) for name in task_environment(FACTS, PurePath("/w")))
    assert is_reserved(port_variable("anything"))
    assert not any(is_reserved(name) for name in ("IRIS", "IRIS_", "IRIS_MINE", "iris_job_id", "PATH", *CARRIED))


def test_the_page_of_tasks_names_every_variable() -> None:
    """docs/tasks.md has a row for each variable, and the list of those that a worker hands on."""
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:<NAME>)?` \|", page, re.MULTILINE)
    fixed = {name for name in task_environment(FACTS, PurePath("/w")) if not name.startswith("IRIS_PORT_")}
    assert set(rows) == {*fixed, CA_VARIABLE, "IRIS_PORT_"}  # the authority's is the worker's to hand on
    carried = page.partition("1. of the worker's own: ")[2].partition("where it has them")[0]
    assert tuple(re.findall(r"`(\w+)`", carried)) == CARRIED


def test_members_of_a_gang_are_told_where_they_stand() -> None:
    """By the names that torchrun's programs and JAX look for; without an address where nobody knows one."""
    place = GangFacts(1, 2, 3, 4, leader_host="10.0.0.1", leader_port=20_000)
    alone = task_environment(FACTS, PurePath("/w"))
    told = task_environment(attrs.evolve(FACTS, gang=place), PurePath("/w"))
    assert {name: text for name, text in told.items() if name not in alone} == {
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "3",
        "IRIS_NUM_NODES": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20000",
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:20000",
        "JAX_PROCESS_ID": "3",
        "JAX_NUM_PROCESSES": "8",
    }
    six = gang_environment(attrs.evolve(FACTS, gang=attrs.evolve(place, leader_host="fd00::1")))
    assert six["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:20000"
    unknown = gang_environment(attrs.evolve(FACTS, gang=attrs.evolve(place, leader_host="")))
    assert not {"MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS"} & unknown.keys()
    for name in gang_environment(attrs.evolve(FACTS, gang=place)):
        assert (is_reserved(name), is_reserved(name, gang=True)) == (False, True)
    assert decode_facts(encode_facts(attrs.evolve(FACTS, gang=place))) == FACTS  # its variables say it, and only they
