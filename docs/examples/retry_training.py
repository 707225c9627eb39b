"""A training that is tried again when it fails, and goes on from what it saved itself.

`python retry_training.py` runs it on a cluster on this machine. The first attempt dies in the middle; the second one
begins where the last file says, not at the start. An attempt's own folder goes with it, so the files are elsewhere: on
a shared file system, or in an object store.

A program that saves nothing can be helped where workers have CRIU: `checkpoint_every=600, retry_from_checkpoint=True`
in `submit` has its whole process saved every ten minutes, and a retry go on from that.
"""

import json
import os
import tempfile
from pathlib import Path

import iriscw
from iriscw import Resources, blocking

STEPS = 40
SAVE_EVERY = 10


def train(folder):
    """Go down the slope of x * x; give where that ends, and where this attempt began."""
    saved = Path(folder) / "saved.json"
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "position": 10.0}
    began = state["step"]
    while state["step"] < STEPS:
        state = {"step": state["step"] + 1, "position": state["position"] * 0.9}
        iriscw.progress(state["step"], STEPS, f"at {state['position']:.3f}")
        if state["step"] % SAVE_EVERY == 0:
            # As a whole or not at all: whoever dies while it writes leaves the file of before.
            Path(folder, "next.json").write_text(json.dumps(state))
            Path(folder, "next.json").replace(saved)
        if state["step"] == 25 and iriscw.context().attempt == 0:
            os.abort()  # as a bug in a C extension does
    return state["position"], began


def main(client):
    with tempfile.TemporaryDirectory() as folder:
        each = Resources(cpu=0.25, memory="64MiB")
        job = client.submit(train, folder, name="training", resources=each, max_retries_failure=3)
        ((position, began),) = job.result()
        for attempt in reversed(job.tasks()[0].attempts):
            print(f"attempt {attempt.number}: {attempt.state}")
        print(f"it went on from step {began} and ended at {position:.3f}")


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
