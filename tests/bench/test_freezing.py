"""Freezing is compared with CRIU alone: what is measured, of which rounds, and that nothing is left of it."""

import attrs
import pytest

from iriscw.bench import freezing
from iriscw.bench.freezing import GOALS, SMALL_GOALS, FreezeRound, Ours, Small, figures_of, promise_of, small_of
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, NoRoom, RightsMissing


def test_the_round_in_the_middle_counts():
    """A ratio is of one round each time; one that was disturbed changes nothing."""
    quiet = FreezeRound(freeze_s=1.2, bare_freeze_s=1.0, thaw_s=1.1, bare_thaw_s=1.0, own_cpu_s=0.02)
    slow = FreezeRound(freeze_s=13.0, bare_freeze_s=10.0, thaw_s=20.0, bare_thaw_s=10.0, own_cpu_s=0.5)
    disturbed = FreezeRound(freeze_s=9.0, bare_freeze_s=1.0, thaw_s=9.0, bare_thaw_s=10.0, own_cpu_s=0.01)
    found = figures_of(64, [quiet, disturbed, slow])
    assert found["mib"] == 64
    assert found["freeze_ratio"] == pytest.approx(1.3)
    assert found["thaw_ratio"] == pytest.approx(1.1)
    assert found["own_cpu_ms"] == pytest.approx(20)
    assert found.keys() >= GOALS.keys()
    assert "lazy_first_s" not in found


def test_lazy_thaws_are_told_where_there_are_some():
    """Where no userfaultfd is to be had, nothing is said of them: a zero would be a lie."""
    done = FreezeRound(freeze_s=1, bare_freeze_s=1, thaw_s=1, bare_thaw_s=1, own_cpu_s=1)
    found = figures_of(64, [attrs.evolve(done, lazy_first_s=0.3, bare_lazy_first_s=0.1)])
    assert (found["lazy_first_s"], found["bare_lazy_first_s"]) == (0.3, 0.1)


def test_a_promise_is_told_beside_what_was_measured():
    """The middle of each figure, whichever round it is of, and what the tier's thaw may take."""
    rounds = [Ours(1, 9, 0.02), Ours(3, 7, 0.04), Ours(2, 8, 0.03)]
    expected = {"mib": 1024, "freeze_s": 2, "thaw_s": 8, "promised_thaw_s": 5, "own_cpu_ms": pytest.approx(30)}
    assert promise_of(1024, "disk", rounds) == expected


def test_a_small_process_is_told_beside_criu_alone():
    """Ratios are of one round each; the least CPU time counts, because others can only add to it."""
    round_ = Small(
        bare_freeze_s=0.1,
        bare_thaw_s=0.1,
        command_freeze_s=0.3,
        command_thaw_s=0.4,
        command_cpu_s=0.25,
        agent_freeze_s=0.15,
        agent_thaw_s=0.2,
    )
    slow = attrs.evolve(round_, bare_freeze_s=1.0, command_freeze_s=2.0, command_cpu_s=0.9, agent_freeze_s=1.1)
    disturbed = attrs.evolve(round_, command_freeze_s=9.0, command_cpu_s=0.3, agent_freeze_s=9.0)
    found = small_of(3, [round_, slow, disturbed])
    assert found["command_freeze_ratio"] == pytest.approx(3.0)
    assert found["agent_freeze_ratio"] == pytest.approx(1.5)
    assert (found["command_thaw_ratio"], found["agent_thaw_ratio"]) == (pytest.approx(4.0), pytest.approx(2.0))
    assert found["command_cpu_ms"] == pytest.approx(250)
    assert found.keys() >= SMALL_GOALS.keys()


async def test_without_memory_nothing_is_measured(monkeypatch, tmp_path):
    """Sizes that do not fit are left out, and said; if none does, that is an error, and nothing is left."""
    said = []
    monkeypatch.setattr(freezing, "BESIDE_BYTES", 1 << 60)
    monkeypatch.setattr(freezing, "MEMORY", tmp_path)
    monkeypatch.setattr(freezing, "DISK_PLACE", tmp_path)
    with pytest.raises(NoRoom):
        await freezing.run(said.append, (16, 32), 1)
    assert said == [f"{mib} MiB: left out, there is too little memory" for mib in (16, 32)]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
async def test_a_freeze_is_measured():
    """A round of a small process from each tier: every figure is there, and own CPU time is less than its time."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    said = []
    report = await freezing.run(said.append, (16,), 1, 16, 3)
    assert said == [
        "16 MiB: round 1 of 1",
        "3 MiB, by command and agent: round 1 of 1",
        *(f"16 MiB in tier {tier}: 1 rounds" for tier in ("ram", "disk")),
    ]
    assert [*report["figures"]] == ["to and from RAM", "by command and agent", "tier ram", "tier disk"]
    for name, [found] in report["figures"].items():
        assert all(value > 0 for value in found.values())
        if name != "by command and agent":
            assert found["own_cpu_ms"] < 1000 * found["freeze_s"]
    (small,) = report["figures"]["by command and agent"]
    assert small["agent_freeze_s"] < small["command_freeze_s"]
    assert report["goals"] == {**GOALS, **SMALL_GOALS}
