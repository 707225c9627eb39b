"""The words of what a machine can run short of."""

from iriscw_sims.coreweave.pressures import DISK, MEMORY, PRESSURES


def test_words_are_told_apart():
    """Each has its own condition, taint, reasons and sentences."""
    for field in ("kind", "resource", "taint", "fine", "short", "words"):
        assert len({getattr(each, field) for each in PRESSURES}) == len(PRESSURES)


def test_an_eviction_names_the_resource():
    """As a kubelet does, by the name under which pods ask for it."""
    assert MEMORY.evicts == "The node was low on resource: memory."
    assert DISK.evicts == "The node was low on resource: ephemeral-storage."
