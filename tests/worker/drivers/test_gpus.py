"""Which GPUs of a machine are a worker's: no two offer one, alive or just killed."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from iriscw.task.environment import CONTEXT_FILE, PRIVATE_FOLDER, AttemptFacts, encode_facts
from iriscw.worker.drivers import gpus as module
from iriscw.worker.drivers.gpus import GpuClaims, GpusTaken, claim, claimed, used_by_attempts
from iriscw.worker.gpus import Gpu, GpuOffer
from raised import that


@pytest.fixture
def offer() -> GpuOffer:
    """Four GPUs that no other test knows."""
    name = uuid.uuid4().hex[:8]
    return GpuOffer(tuple(Gpu("NVIDIA L4", f"GPU-{name}-{number}", 1, number) for number in range(4)))


@pytest.fixture
def claims() -> Iterator[GpuClaims]:
    with GpuClaims() as held:
        yield held


def uuids(offer: GpuOffer, *numbers: int) -> tuple[str, ...]:
    return tuple(offer.gpus[number].uuid for number in numbers)


def indices(offer: GpuOffer) -> list[int]:
    return [gpu.index for gpu in offer.gpus]


def test_two_workers_never_have_one_gpu(offer: GpuOffer, claims: GpuClaims) -> None:
    """Each gets as many as it promised; who would get fewer is told who has them; what is given back is free."""
    other, third = GpuClaims(), GpuClaims()
    with other, third:
        assert indices(claim(claims, offer, 2, {})) == [0, 1]
        assert indices(claim(other, offer, 1, {})) == [2]
        with pytest.raises(GpusTaken, check=that(comes_from="gpus.claim", names=uuids(offer, 1)[0])):
            claim(third, offer, 2, {})
        assert third.uuids == ()
        assert indices(claim(third, offer, 2, {}, fewer=True)) == [3]
        claims.close()
        assert indices(claim(claims, offer, 2, {})) == [0, 1]
    assert sorted(each for each in claimed() if each in uuids(offer, 0, 1, 2, 3)) == list(uuids(offer, 0, 1))


def test_who_was_slower_chooses_again(offer: GpuOffer, claims: GpuClaims, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker takes what was free a moment ago; nothing of the first choice is kept."""
    other = GpuClaims()
    looks = []

    def late() -> tuple[str, ...]:
        looks.append(1)
        seen = claimed()
        if len(looks) == 1:
            other.take(uuids(offer, 1))
        return seen

    monkeypatch.setattr(module, "claimed", late)
    with other:
        assert indices(claim(claims, offer, 2, {})) == [0, 2]
    assert len(looks) == 2
    assert claims.uuids == uuids(offer, 0, 2)


@pytest.fixture
def attempt(tmp_path: Path, offer: GpuOffer) -> Iterator[subprocess.Popen]:
    """A process of an attempt with the third GPU, whose worker was killed."""
    private = tmp_path / "work" / PRIVATE_FOLDER
    private.mkdir(parents=True)
    (private / CONTEXT_FILE).write_bytes(encode_facts(AttemptFacts("j", "j/0", "a1", 0, 1, gpus=uuids(offer, 2))))
    variables = {
        "IRIS_ATTEMPT_UID": "a1",
        "IRIS_WORKDIR": str(tmp_path / "work"),
        "CUDA_VISIBLE_DEVICES": uuids(offer, 3)[0],  # as it was started, before it was brought back with another one
    }
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    argv = (sys.executable, "-I", "-S", "-c", code)
    with subprocess.Popen(argv, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_an_attempt_keeps_its_gpu_from_other_workers(
    offer: GpuOffer, claims: GpuClaims, attempt: subprocess.Popen
) -> None:
    """It has outlived its worker, and uses the GPU that it has now until its lease is over."""
    assert used_by_attempts(())[uuids(offer, 2)[0]] == "the attempt 'a1'"
    with pytest.raises(GpusTaken, check=that(comes_from="gpus.claim", names="a1")):
        claim(claims, offer, 4, {})
    assert indices(claim(claims, offer, 3, {})) == [0, 1, 3]
    attempt.kill()
    attempt.wait()
    claims.close()
    assert indices(claim(claims, offer, 4, {})) == [0, 1, 2, 3]


def test_a_worker_keeps_those_of_its_own_attempts(
    tmp_path: Path, offer: GpuOffer, claims: GpuClaims, attempt: subprocess.Popen
) -> None:
    """A worker that is started again has the GPUs that its attempts have, before any others."""
    assert indices(claim(claims, offer, 1, {"a1": tmp_path / "work"})) == [2]


def test_a_context_that_was_spoilt_is_no_way_out(
    tmp_path: Path, offer: GpuOffer, claims: GpuClaims, attempt: subprocess.Popen
) -> None:
    """Then what the process was started with counts."""
    (tmp_path / "work" / PRIVATE_FOLDER / CONTEXT_FILE).write_text("spoilt")
    assert indices(claim(claims, offer, 3, {})) == [0, 1, 2]


def test_a_claim_goes_with_its_process(offer: GpuOffer, claims: GpuClaims) -> None:
    """Also if that is killed: nothing is left to be cleaned up."""
    code = "import sys; from iriscw.worker.drivers.gpus import GpuClaims; held = GpuClaims(); held.take(sys.argv[1:])"
    argv = (sys.executable, "-c", f"{code}; print('up', flush=True); sys.stdin.read()")
    with subprocess.Popen(
        (*argv, *uuids(offer, 0)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout.readline() == b"up\n"
        assert indices(claim(claims, offer, 2, {})) == [1, 2]
        claims.close()
        process.kill()
        process.wait()
    assert indices(claim(claims, offer, 2, {})) == [0, 1]
