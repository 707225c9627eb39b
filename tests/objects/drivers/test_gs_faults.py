"""Laws of the driver on a Google that fails in every way that the simulation knows, over HTTP and in real time."""

from gs_stage import staged
from hypothesis import strategies as st
from store_laws import (
    IMPATIENT,
    a_claim_has_one_winner,
    a_log_loses_and_doubles_nothing,
    a_reader_sees_one_version,
    certain_refusals_are_true,
    under_faults,
    what_was_acknowledged_is_there,
)

from iriscw_sims.objects.rules import GOOGLE
from iriscw_sims.objects.serve.google import GOOGLES_FAULT_POINTS

swarms = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**32)},
    optional={name: st.integers(1, most) for name, most in GOOGLES_FAULT_POINTS},
)


def drawn(rates):
    """Make a stage of a swarm."""
    return staged(GOOGLE, rates, rates.pop("seed"), IMPATIENT)


test_a_claim_has_one_winner = under_faults(a_claim_has_one_winner, swarms, drawn)
test_certain_refusals_are_true = under_faults(certain_refusals_are_true, swarms, drawn)
test_what_was_acknowledged_is_there = under_faults(what_was_acknowledged_is_there, swarms, drawn)
test_a_log_loses_and_doubles_nothing = under_faults(a_log_loses_and_doubles_nothing, swarms, drawn)
test_a_reader_sees_one_version = under_faults(a_reader_sees_one_version, swarms, drawn)
