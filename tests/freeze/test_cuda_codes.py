"""NVIDIA's numbers and words, as our errors and states."""

import pytest

from iriscw.freeze.cuda_codes import code_said, refusal, state_of, state_said, uuid_bytes
from iriscw.freeze.model import CudaNoMemory, CudaRefused, CudaState, RightsMissing
from raised import that


def test_states_by_number_and_by_word() -> None:
    """Four of each; any other one has a name of its own, and is not guessed; what is no state is refused."""
    assert [state_of(number) for number in range(5)] == [state_said(each.value + "\n") for each in CudaState]
    assert {state_of(4), state_of(5), state_of(99), state_said("restoring")} == {CudaState.UNKNOWN}
    with pytest.raises(CudaRefused):
        state_of(-1)
    for said in ("", "Error: 3", "running\nlocked"):
        with pytest.raises(CudaRefused):
            state_said(said)


@pytest.mark.parametrize(
    ("code", "root", "error"),
    [
        (2, True, CudaNoMemory),
        (304, True, CudaRefused),
        (304, False, RightsMissing),
        (800, True, RightsMissing),
        (12345, True, CudaRefused),
    ],
)
def test_results_are_errors(code, root, error) -> None:
    """The same number means missing rights to who has none, and a broken state to root."""
    found = refusal("lock", 7, code, root=root)
    assert type(found) is error
    assert f"{code}" in str(found)


def test_what_the_program_says_is_a_number() -> None:
    """``not supported`` in the words of 304 is not 801."""
    said = ["OS call failed or operation not supported on this OS", "operation not supported", "Out of memory", "?"]
    assert [code_said(each) for each in said] == [304, 801, 2, 999]
    assert code_said("Error getting process state: initialization error") == 3


def test_uuids_are_bytes() -> None:
    """With and without the prefix; anything else is none."""
    assert uuid_bytes("GPU-00000000-0000-0000-0000-0000000000ff") == bytes(15) + b"\xff"
    assert uuid_bytes("00000000-0000-0000-0000-0000000000FF") == bytes(15) + b"\xff"
    for wrong in ("", "0", "GPU-0", "MIG-00000000-0000-0000-0000-0000000000ff"):
        with pytest.raises(ValueError, check=that(comes_from="cuda_codes.uuid_bytes")):
            uuid_bytes(wrong)
