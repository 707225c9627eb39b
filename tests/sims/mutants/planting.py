"""Plant a bug in a copy of the sources, and look for a seed that shows it.

Nearly all that such a search takes are seeds that do not show the bug. So `found_at.txt` beside this has the seed that
showed each bug last, and a search begins with that one. It is no more than a place to begin: where decisions have
changed, a seed may lead elsewhere, and the search goes on through all seeds of the bug. When many have to,
``python tests/sims/mutants/planting.py`` searches for each and writes the file anew; with ``--stale``, only for those
whose seed does not show them any more. A soak searches without it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is a program, too

from anchors import plant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOUND_AT = HERE / "found_at.txt"


def planted(mutant, folder):
    """Copy the sources to ``folder``, with the bug in them; what is compiled comes along, and counts where it fits."""
    package = folder / "iriscw"
    # A process that writes bytecode just now does so under a name that ends otherwise.
    left_out = shutil.ignore_patterns("proto", "*.pyc.*")
    shutil.copytree(ROOT / "src" / "iriscw", package, ignore=left_out)
    plant(mutant, package)
    return folder


def found_at(path=FOUND_AT):
    """Return the seed that showed each bug last: name to seed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: int(seed) for name, seed in (line.split() for line in lines if not line.startswith("#"))}


def run_seeds(folder, first, seeds, *, nodes=False, fails_with=""):
    """Run seeds on the sources in ``folder`` until one breaks something; give its number and what it broke, or None.

    A run that fails outright is an error, unless it says ``fails_with``: then that is what was broken.
    """
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'sims'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "iriscw_sims.run", *["--nodes"] * nodes, "--first", str(first)]
    command += ["--seeds", str(seeds), "--until-broken", "-o", "json"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1_200, check=False, cwd=folder
    )
    if fails_with and fails_with in done.stderr:
        return first, fails_with
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    last = json.loads(done.stdout)["runs"][-1]
    return (last["seed"], last["violations"][0]) if last["violations"] else None


def hunt(mutant, folder, *, begins_with=None, nodes=False, run=run_seeds):
    """Look for a seed that shows the bug in ``folder``: the one to begin with, then all of its range.

    Give its number and what it breaks, or None.
    """
    settings = {"nodes": nodes, "fails_with": mutant.fails_with}
    found = None if begins_with is None else run(folder, begins_with, 1, **settings)
    return found or run(folder, mutant.first, mutant.seeds, **settings)


def find(mutant, folder, *, from_the_start=False, nodes=False):
    """Plant the bug, and find it; ``from_the_start``, as if no seed were known to show it."""
    begins_with = None if from_the_start else found_at().get(mutant.name)
    found = hunt(mutant, planted(mutant, folder), begins_with=begins_with, nodes=nodes)
    assert found is not None, f"{mutant.seeds} seeds did not notice {mutant.name}"
    seed, broken = found
    sys.stdout.write(f"{mutant.name}: seed {seed}, found_at.txt has {begins_with}: {broken[:120]}\n")


def fails(bug, catcher, folder):
    """Run the one test that has to fail against sources with the bug."""
    environment = {**os.environ, "PYTHONPATH": f"{planted(bug, folder)}{os.pathsep}{ROOT / 'sims'}"}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "", "--hypothesis-profile=ci"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, catcher],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert "1 failed" in done.stdout, done.stdout[-2_000:]


def all_bugs():
    """Return all that seeds find, each with whether it is one of nodes."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "nodes")]
    import node_bugs
    from api_bugs import API_BUGS
    from driver_bugs import DRIVER_BUGS
    from lessons import LESSONS
    from planted import MUTANTS

    by_seeds = [lesson for lesson in LESSONS if lesson.found_by_seeds or not lesson.catcher]
    fleet = [(bug, False) for bug in (*MUTANTS, *by_seeds, *DRIVER_BUGS, *API_BUGS)]
    return [*fleet, *((bug, True) for bug in node_bugs.MUTANTS)]


def main():
    """Search for all bugs, or those that are named; write the file; 1 if one of them is not found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--stale", action="store_true", help="keep a seed that still shows its bug")
    asked = parser.parse_args()
    known = {bug.name: (bug, nodes) for bug, nodes in all_bugs()}
    seeds, missed = found_at(), 0
    for name in asked.names or known:
        bug, nodes = known[name]
        with tempfile.TemporaryDirectory() as folder:
            sources = planted(bug, Path(folder))
            found = hunt(bug, sources, begins_with=seeds.get(name) if asked.stale else None, nodes=nodes)
        seeds.pop(name, None)
        if found is not None:
            seeds[name] = found[0]
        missed += found is None
        sys.stdout.write(f"{name}: {found}\n")
        sys.stdout.flush()
        write(seeds, known)
    return 1 if missed else 0


def write(seeds, names, path=FOUND_AT):
    """Write the file in the order of ``names``, without those that are not among them."""
    head = "# The seed that showed each planted bug last: see planting.py.\n"
    path.write_text(head + "".join(f"{name} {seeds[name]}\n" for name in names if name in seeds), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
