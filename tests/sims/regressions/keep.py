"""Look for the smallest plan that shows a bug of the past, and keep it: ``python keep.py 24 --first 0 --seeds 600``.

When the world changes, a kept plan may not lead to its bug any more; then this finds another one. It is run by hand.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE))

from bugs import BUGS  # noqa: E402
from planting import planted, run_seeds  # noqa: E402


def shrunk(folder, seed, max_runs):
    """Run a seed against sources with a bug; give the smallest plan that breaks them as it does, as a text."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'sims'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "iriscw_sims.rerun", "--seed", str(seed), "--shrink", "--max-runs", str(max_runs)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr[-2_000:]
    return done.stdout.partition("\n# ")[0].strip(), done.stderr.partition("\n")[0]


def main():
    """Find a seed that shows the bug, shrink it, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bug", type=int, choices=BUGS)
    parser.add_argument("--what", required=True, help="what it was, for whoever reads the file")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=600)
    parser.add_argument("--max-runs", type=int, default=250)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = planted(BUGS[asked.bug], Path(folder))
        found = run_seeds(sources, asked.first, asked.seeds)
        if found is not None:
            seed, _ = found
            text, violation = shrunk(sources, seed, asked.max_runs)
            about = f'"""{asked.what}\n\nFound by seed {asked.bug}. With the bug: {violation[:80]}\n"""\n\n'
            (HERE / f"seed_{asked.bug}.py").write_text(f"{about}{text}\n", encoding="utf-8")
            sys.stdout.write(f"{asked.bug}: seed {seed} of today: {violation}\n")
            return 0
    sys.stdout.write(f"{asked.bug}: no seed shows it\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
