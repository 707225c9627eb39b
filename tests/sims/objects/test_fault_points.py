"""The list of fault points is what the front asks for."""

import re
from pathlib import Path

from iriscw_sims.objects import fault_points, front


def test_every_name_is_asked_for_and_every_chance_has_a_name():
    """Neither side of the seam has a name that the other does not know."""
    asked = {*re.findall(r"chance\(\"([^\"]+)\"\)", Path(front.__file__).read_text(encoding="utf-8"))}
    assert asked == {*fault_points.NAMES}


def test_rates_are_thousandths():
    """And leave most requests alone."""
    assert all(0 < rate <= 250 for _, rate in fault_points.FAULT_POINTS)
    assert len({*fault_points.NAMES}) == len(fault_points.FAULT_POINTS)
