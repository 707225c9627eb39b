"""What ``frozen_program.py`` says of each thing that it holds, after what it said before."""

EXPECTED = {
    "memory": lambda before: {**before, "count": before["count"] + 1},
    "ballast": lambda before: before,
    "threads": lambda before: {**before, "counts": [each + 1 for each in before["counts"]]},
    "files": lambda before: {**before, "size": before["size"] + 1, "read": before["read"] + 1},
    "unix": lambda before: {"said": f"on its way {int(before['said'].rpartition(' ')[2] or 0) + 1}"},
    "locks": lambda before: before,
    "epoll": lambda before: before,
    "memfd": lambda before: {**before, "count": before["count"] + 1},
    "zombie": lambda before: before,
    "family": lambda before: {"answers": [[number, count + 1] for number, count in before["answers"]]},
}


def after(said: dict) -> dict:
    """Return what it has to say when it is asked once more."""
    return {name: EXPECTED[name](before) for name, before in said.items()}
