"""doctor: what is here."""

import json


def test_doctor_reports(iriscw):
    """It names Python, the machine's size and whether a cluster is up, and breaks nothing."""
    code, out, _ = iriscw("doctor", "-o", "json")
    found = {each["what"]: each for each in json.loads(out)}
    assert code == 0
    assert {"iriscw", "python", "cpu", "memory", "gpus", "cluster"} <= {*found}
    assert found["cluster"]["found"].startswith("none is up")
