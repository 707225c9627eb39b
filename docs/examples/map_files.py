"""A map over files: each task counts the words of some of them.

`python map_files.py [FOLDER]` runs it on a cluster on this machine. The tasks are given the names of files, not what is
in them: they read that from where it lies, which on a fleet of machines is a shared file system or an object store.
"""

import sys
from collections import Counter
from pathlib import Path

from iriscw import Resources, blocking

FILES_PER_TASK = 4
"""A task is a process that has to start: give it work for a second at least."""


def count_words(paths):
    """Return how often each word occurs in some files."""
    counts = Counter()
    for path in paths:
        counts.update(Path(path).read_text(errors="replace").lower().split())
    print(f"{len(paths)} files, {counts.total()} words")  # in the job's log
    return counts


def main(client, folder=None):
    paths = sorted(str(path) for path in Path(folder or Path(__file__).parent).glob("*.py"))
    parts = [paths[at : at + FILES_PER_TASK] for at in range(0, len(paths), FILES_PER_TASK)]
    job = client.map(count_words, parts, name="words", resources=Resources(cpu=0.25, memory="64MiB"))
    total = sum(job.result(), Counter())
    print(f"{len(paths)} files, {len(parts)} tasks, {total.total()} words")
    print("most frequent:", ", ".join(word for word, _ in total.most_common(3)))


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client, *sys.argv[1:])
