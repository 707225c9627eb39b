"""A repository is compared with peers: which rounds count, what is fetched is compared, and a failure is said."""

import importlib.util

import pytest

from iriscw.bench import repositories
from iriscw.bench.plane import MeasurementFailed
from iriscw.bench.repositories import GOALS, PEERS, contend, figures_of, write_images

MIB = 1 << 20


def steps(up_s, fetch_s):
    """Return what a contender says that took so long, and half of it CPU time."""
    seconds = {"up": up_s, "fetch": fetch_s, "second": 1.0}
    sizes = {"size_bytes": 100.0, "added_bytes": 2.0}
    return {step: {"wall_s": s, "cpu_s": s / 2, "memory_bytes": 8.0 * MIB, **sizes} for step, s in seconds.items()}


def test_the_round_in_the_middle_counts():
    """A ratio is the peer's time by ours, of one round; one round that was disturbed changes nothing."""
    rounds = [
        {"iriscw": steps(2, 4), "s3transfer": steps(3, 4)},
        {"iriscw": steps(20, 40), "s3transfer": steps(30, 40)},
        {"iriscw": steps(90, 4), "s3transfer": steps(3, 400)},
    ]
    found = figures_of(rounds)
    assert (found["up_beside_s3transfer"], found["fetch_beside_s3transfer"]) == (1.5, 1.0)
    assert (found["up_cpu_beside_s3transfer"], found["up_memory_mib"]) == (1.5, 8)
    assert (found["up_s"], found["second_share"]) == (20, 0.02)
    assert not [name for name in found if "obstore" in name]


def test_without_memory_nothing_is_measured(monkeypatch):
    """A machine that would swap measures its disk."""
    monkeypatch.setattr(repositories, "free_bytes", lambda: 3 * 64 * MIB)
    with pytest.raises(MeasurementFailed):
        repositories.run(lambda line: None, 64, 1)


@pytest.mark.slow
def test_a_contender_that_fails_is_said(tmp_path):
    """Without a figure of it: there is no folder of images."""
    with pytest.raises(MeasurementFailed):
        contend("iriscw", tmp_path / "none", tmp_path)


def test_kinds_of_memory_are_what_they_say(tmp_path):
    """Zeros in seven pages of eight, and as many bytes of each kind."""
    for kind in repositories.KINDS:
        write_images(tmp_path / kind, kind, 1)
        data = (tmp_path / kind / "pages-1.img").read_bytes()
        zeros = sum(not any(data[at : at + 4096]) for at in range(0, len(data), 4096))
        assert (len(data), zeros) == (MIB, 224 if kind == "sparse" else 0)


@pytest.mark.slow
def test_a_repository_is_measured():
    """A round of each contender: every figure is there, and what was fetched is what was written."""
    said = []
    report = repositories.run(said.append, 8, 1, ("sparse",))
    assert said == ["sparse, 8 MiB: round 1 of 1"]
    (found,) = report["figures"]["sparse memory"]
    assert report["peers"] == [peer for peer, package in PEERS.items() if importlib.util.find_spec(package)]
    assert found.keys() >= {name for name in GOALS if not name.endswith(tuple(PEERS))}
    assert found.keys() >= {name for name in GOALS if name.endswith(tuple(report["peers"] or ["-"]))}
    assert found["stored_share"] < 0.14
    assert found["second_share"] < GOALS["second_share"]
