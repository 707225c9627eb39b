"""How a program ended: each end has one word and one sentence."""

from hypothesis import given, strategies as st

from iriscw.processes.ends import UNKNOWN_END, EndKind, ProcessEnd


@given(
    st.builds(
        ProcessEnd,
        code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        stopped=st.booleans(),
        killed=st.booleans(),
        out_of_memory=st.booleans(),
        lease_over=st.booleans(),
    )
)
def test_every_ending_has_a_word_and_a_sentence(end: ProcessEnd) -> None:
    """Only an unasked exit with code 0 is a success."""
    assert end.reason
    assert end.succeeded is (end.code == 0 and not end.stopped and not end.lease_over)


def test_a_stop_says_what_ended_it() -> None:
    """The sentence begins with the one word that people look for."""
    assert ProcessEnd(None, 9, stopped=True, killed=True, lease_over=True).reason == (
        "stopped: its worker could not reach the controller until its lease was over"
    )
    assert ProcessEnd(0, None, stopped=True).reason == "stopped: it ended when it was told to"
    assert ProcessEnd(None, 9, stopped=True, killed=True).reason == "stopped: it was killed after its grace"


def test_the_kernels_kill_for_memory_has_its_own_word() -> None:
    """It is the user's limit, not a stranger's signal."""
    assert ProcessEnd(None, 9, out_of_memory=True, max_rss_bytes=5).kind is EndKind.OUT_OF_MEMORY
    assert ProcessEnd(None, 9).kind is EndKind.SIGNALLED
    neighbours = ProcessEnd(None, 9, perhaps_out_of_memory=True, max_rss_bytes=5)
    assert neighbours.kind is EndKind.SIGNALLED
    assert neighbours.reason.startswith("killed by SIGKILL, perhaps by the kernel: ")


def test_someone_else_may_have_other_words_for_it() -> None:
    """A pod's runtime has seen the container, which a supervisor has not."""
    end = ProcessEnd(signal=9, out_of_memory=True, text="its container was killed")
    assert (end.kind, end.reason) == (EndKind.OUT_OF_MEMORY, "its container was killed")


def test_an_end_that_nobody_saw() -> None:
    """Neither a code nor a signal: its supervisor is gone too."""
    assert UNKNOWN_END.kind is EndKind.LOST
    assert not UNKNOWN_END.succeeded
