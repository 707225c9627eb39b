"""The programs in docs/examples that have a `main(client)`: each does what it says, all of them on one cluster."""

import re
import runpy
from pathlib import Path

import pytest

from iriscw import blocking

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SAYS = {
    "sweep": "best of 6: {'rate': 0.4, 'steps': 20} with loss 1.1e-26\n",
    "map_files": r"\d+ files, \d+ tasks, \d+ words\nmost frequent: .+\n",
    "parent_children": r"78 primes, the last of them \[383, 389, 397\]\nchildren: \[1, 4\] tasks\n",
    "replicas": r"each of 4 replicas has: \[9, 9, 9, 9\]\n",
    "retry_training": r"attempt 0: FAILED\nattempt 1: SUCCEEDED\nit went on from step 20 and ended at 0.148\n",
    "batch_inference": r"13 batches, 200 predictions, the last is 398\n",
    "service": r"{'replica': 0, 'length': 6} {'replica': 1, 'length': 12}\nKILLED\n",
}
MAX_LINES = 60


@pytest.mark.slow
def test_they_do_what_they_say(capsys):
    """One after the other, as a user would call them from a program of his own."""
    with blocking.Cluster.local(nodes=2, boot_delay=0.0) as cluster:
        for name, said in SAYS.items():
            program = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)
            capsys.readouterr()
            program["main"](cluster.client)
            assert re.search(rf"(?:\A|\n){said}\Z", out := capsys.readouterr().out), (name, out)


def test_they_are_short_and_need_no_more_than_what_is_public():
    """Each is listed here, fits on a screen, and can be run by itself."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    mine = {name: text for name, text in texts.items() if "\ndef main(client" in text}
    assert set(SAYS) == set(mine)
    for name, text in mine.items():
        assert len(text.splitlines()) <= MAX_LINES, name
        assert f"`python {name}.py" in text.partition("\n\n")[2], name
        assert "with blocking.Cluster.local(nodes=2) as cluster:\n        main(cluster.client" in text, name
        assert set(re.findall(r"^from (iriscw[\w.]*)", text, re.MULTILINE)) <= {"iriscw", "iriscw.errors"}, name
