"""Laws of the driver on a service that fails in every way that the simulation knows, over HTTP and in real time."""

import attrs
import pytest
from hypothesis import strategies as st
from s3_stage import COREWEAVE_SMALL, staged
from store_laws import (
    IMPATIENT,
    a_claim_has_one_winner,
    a_log_loses_and_doubles_nothing,
    a_reader_sees_one_version,
    certain_refusals_are_true,
    under_faults,
    what_was_acknowledged_is_there,
)

from iriscw_sims.objects.fault_points import FAULT_POINTS
from iriscw_sims.objects.rules import Etags

pytestmark = pytest.mark.usefixtures("credentials")

swarms = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**32), "etags": st.sampled_from([Etags.CONTENT, Etags.WRITE])},
    optional={name: st.integers(1, most) for name, most in FAULT_POINTS},
)


def drawn(rates):
    """Make a stage of a swarm."""
    rules = attrs.evolve(COREWEAVE_SMALL, etags=rates.pop("etags"))
    return staged(rules, rates, rates.pop("seed"), IMPATIENT)


test_a_claim_has_one_winner = under_faults(a_claim_has_one_winner, swarms, drawn)
test_certain_refusals_are_true = under_faults(certain_refusals_are_true, swarms, drawn)
test_what_was_acknowledged_is_there = under_faults(what_was_acknowledged_is_there, swarms, drawn)
test_a_log_loses_and_doubles_nothing = under_faults(a_log_loses_and_doubles_nothing, swarms, drawn)
test_a_reader_sees_one_version = under_faults(a_reader_sees_one_version, swarms, drawn)
