"""From a container's id to its process, and what of a runtime's state is believed."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.agent.containers import (
    check_id,
    checked_root,
    container_of,
    has_own_numbers,
    process_of,
    read_state,
)
from iriscw.agent.errors import ContainerAmbiguous, ContainerRefused, ContainerUnknown
from iriscw.processes.identity import ProcessGone, ProcessIdentity
from raised import that

ME = ProcessIdentity(4711, 99, "boot-1")


def identify(pid):
    """Stand in for the kernel: one process lives."""
    if pid != ME.pid:
        raise ProcessGone(f"process {pid} has ended")
    return ME


def state(folder, name="box", mode=0o600, **changes):
    """Write a container's state as runc does, as far as it is needed."""
    content = {"id": name, "init_process_pid": 4711, "init_process_start": 99, "created": "2026", "config": {}}
    place = folder / name
    place.mkdir(parents=True)
    place.chmod(0o700)  # whatever the umask
    path = place / "state.json"
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("below", [".", "k8s.io"])
def test_the_process_of_a_container(tmp_path, below):
    """It is found in the runtime's own folder, or in that of a namespace."""
    state(tmp_path / below)
    found = process_of("box", [tmp_path / "none", tmp_path], identify)
    assert (found.pid, found.start_ticks, found.boot_id) == (4711, 99, "boot-1")


def test_a_real_process(tmp_path):
    """The kernel's own answer is what the state is compared with."""
    from iriscw.processes.identity import identify as really

    me = really(os.getpid())
    state(tmp_path, init_process_pid=me.pid, init_process_start=me.start_ticks)
    assert process_of("box", [tmp_path]).pid == os.getpid()
    state(tmp_path, "other", init_process_pid=me.pid, init_process_start=me.start_ticks + 1)
    with pytest.raises(ContainerUnknown, check=that(comes_from="containers.container_of")):
        process_of("other", [tmp_path])


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"init_process_start": 98}, ContainerUnknown, that(comes_from="containers.container_of")),
        ({"init_process_pid": 4712}, ContainerUnknown, that(comes_from="containers.container_of")),
        ({"init_process_pid": 0}, ContainerUnknown, that(comes_from="containers.read_state")),
        ({"init_process_pid": -1}, ContainerUnknown, that(comes_from="containers.read_state")),
        ({"init_process_pid": 1}, ContainerRefused, that(comes_from="containers.read_state")),
        ({"init_process_pid": 1 << 40}, ContainerRefused, that(comes_from="containers.read_state")),
        ({"init_process_pid": "4711"}, ContainerRefused, that(comes_from="containers.read_state")),
        ({"init_process_start": None}, ContainerRefused, that(comes_from="containers.read_state")),
        ({"init_process_start": 0}, ContainerRefused, that(comes_from="containers.read_state")),
        ({"id": "another"}, ContainerRefused, that(comes_from="containers.read_state")),
    ],
)
def test_states_that_name_nobody(tmp_path, changes, error, why):
    """A number that another process has by now, or that is none, is never used."""
    state(tmp_path, **changes)
    with pytest.raises(error, check=why):
        process_of("box", [tmp_path], identify)


def test_no_container_and_two(tmp_path):
    """Neither is guessed at."""
    with pytest.raises(ContainerUnknown, check=that(comes_from="containers.container_of", names="box")):
        process_of("box", [tmp_path, tmp_path / "none"], identify)
    state(tmp_path / "k8s.io")
    state(tmp_path / "moby")
    with pytest.raises(ContainerAmbiguous, check=that(comes_from="containers.container_of", names="2")):
        process_of("box", [tmp_path], identify)


def test_whose_state_it_is(tmp_path):
    """A state that others may write to, a link to one, and one of any length are not believed."""
    path = state(tmp_path, mode=0o666)
    with pytest.raises(ContainerRefused, check=that(comes_from="containers._read")):
        process_of("box", [tmp_path], identify)
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ContainerRefused, check=that(comes_from="containers._read")):
        process_of("box", [tmp_path], identify)
    path.unlink()
    path.write_bytes(b" " * ((4 << 20) + 1))
    path.chmod(0o600)
    with pytest.raises(ContainerRefused, check=that(comes_from="files.read_bounded")):
        process_of("box", [tmp_path], identify)


@pytest.mark.parametrize("name", ["", ".", "..", "../box", "a/b", "a\0", "a b", "é", "x" * 256])
def test_ids_that_are_none(name, tmp_path):
    """They never become part of a path."""
    with pytest.raises(InvalidArgument):
        process_of(name, [tmp_path], identify)


def test_the_longest_id(tmp_path):
    """It is as long as the name of a folder may be."""
    state(tmp_path, "x" * 255)
    assert process_of("x" * 255, [tmp_path], identify).pid == 4711


def refusing(name, error):
    """Return a call of the file system that fails for what has this name."""
    really = getattr(os, name)

    def call(path, *args, **words):
        if str(path).endswith(("box", "box/state.json", "shut")):
            raise OSError(error, os.strerror(error))
        return really(path, *args, **words)

    return call


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("scandir", errno.EACCES, ContainerRefused),
        ("stat", errno.EACCES, ContainerRefused),
        ("lstat", errno.EACCES, ContainerRefused),
        ("lstat", errno.ENOENT, ContainerUnknown),
        ("lstat", errno.ENOTDIR, ContainerRefused),
        ("open", errno.EACCES, ContainerRefused),
        ("open", errno.ENOENT, ContainerUnknown),
    ],
)
def test_a_state_that_cannot_be_looked_at(tmp_path, monkeypatch, call, number, error):
    """It is refused by name, as is one that goes while it is looked at."""
    root = tmp_path / "shut"
    state(root)
    monkeypatch.setattr(os, call, refusing(call, number))
    with pytest.raises(error):
        process_of("box", [root], identify)


@given(st.text(max_size=40))
def test_an_id_is_one_name(text):
    """Whatever is taken for an id is one name of a folder."""
    try:
        check_id(text)
    except InvalidArgument:
        return
    assert text not in ("", ".", "..")
    assert "/" not in text
    assert text.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "init_process_pid", "init_process_start"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON.map(lambda content: json.dumps(content).encode()) | st.binary(max_size=60))
def test_no_state_does_harm(data):
    """Whatever lies there is a process, or refused by name."""
    try:
        found = read_state(data, "box")
    except (ContainerRefused, ContainerUnknown):
        return
    assert found.container_id == "box"
    assert 1 < found.pid <= 1 << 22
    assert found.start_ticks > 0


def test_a_container_in_one_namespace(tmp_path):
    """A caller that knows the folder means the container in it, though another one has the same name."""
    for each in ("k8s.io", "moby"):
        state(tmp_path / each)
    with pytest.raises(ContainerAmbiguous):
        container_of("box", [tmp_path], identify)
    found = container_of("box", [tmp_path], identify, within=tmp_path / "moby")
    assert (found.root, found.task.pid) == (tmp_path / "moby", ME.pid)
    assert container_of("box", [tmp_path, tmp_path / "moby"], identify, within=tmp_path / "moby") == found
    with pytest.raises(ContainerUnknown, check=that(names="other")):
        container_of("box", [tmp_path], identify, within=tmp_path / "other")


@pytest.mark.parametrize(
    ("root", "known"),
    [
        ("/run/runc", True),
        ("/run/containerd/runc/k8s.io", True),
        ("/run/containerd/runc/k8s.io/deeper", False),
        ("/run", False),
        ("/run/containerd/runc/../../etc", False),
        ("/run/runc/", True),
        ("run/runc", False),
        ("", False),
        ("/run/runc\0", False),
    ],
)
def test_a_runtimes_folder_that_a_caller_names(root, known):
    """It is one of the agent's, or a namespace's in one; anything else is refused."""
    if known:
        assert checked_root(root) == Path(root)
    else:
        with pytest.raises(ContainerRefused, check=that(comes_from="containers.checked_root")):
            checked_root(root)


def test_numbers_of_ones_own():
    """We are in our own namespace, and who is not there is in none."""
    from iriscw.freeze.model import TaskIdentity

    assert not has_own_numbers(TaskIdentity(os.getpid(), 1, "boot"))
    assert not has_own_numbers(TaskIdentity((1 << 22) + 1, 1, "boot"))
