"""Paths that cannot be used: whatever option or variable names one, the command says so, and calls it no bug of ours.

The options are found in the tree of commands, so that a new one is tried, too.
"""

import contextlib
import errno
import logging
import os
from pathlib import Path

import anyio
import click
import pytest

from iriscw.cli import serve
from iriscw.cli.app import app
from iriscw.cli.outcome import BUG, REFUSED, UNWELL, USAGE, report
from iriscw.cli.tier_options import KEY_OPTIONS

CONFIG = """\
name: research
platform: { coreweave: { region: LGA1 } }
controller: { coreweave: { instance_type: cd-gp-i64-erapids } }
scale_groups:
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    slice_template: { coreweave: { instance_type: cd-gp-a192-genoa } }
"""
LOCAL = """\
platform: { local: {} }
scale_groups: { cpu: { resources: { cpu: 1, ram: 1GiB } } }
"""
NOBODY = str(2**22 + 1)
"""A process that there cannot be: Linux has at most 2^22."""

BESIDE = {
    ("agent", "serve"): {"--socket": "{tmp}/agent/sock", "--state-dir": "{tmp}/state"},
    ("agent", "serve", "token_file"): {"--controller": "127.0.0.1:1"},
    ("agent", "serve", "ca_file"): {"--controller": "https://127.0.0.1:1", "--token-file": "{tmp}/token"},
    ("checkpoint",): {"--pid": NOBODY},
    ("checkpoints", "token_file"): {"--cluster": None},
    ("controller", "serve"): {"--config": "{tmp}/local.yaml"},
    ("doctor", "kubeconfig"): {"--kube": "{tmp}/cluster.yaml"},
    ("down", "config"): {"--keep-pools": None, "--yes": None},
    ("down", "kubeconfig"): {"{tmp}/cluster.yaml": None, "--keep-pools": None, "--yes": None},
    ("manifests", "kubeconfig"): {"--diff": None},
    ("manifests", "secrets_from"): {"--apply": None},
    ("move", "token_file"): {"--cluster": None},
    ("verify", "token_file"): {"--cluster": None},
    ("restore", "token_file"): {"--cluster": None},
    ("sim", "run"): {"--seeds": "1"},
    ("sim", "serve", "tls_cert"): {"--tls-key": "{tmp}/token"},
    ("sim", "serve", "tls_key"): {"--tls-cert": "{tmp}/token"},
}
"""What has to stand beside an option, or all options of a command, so that the path is looked at."""


def walk(command, names=()):
    """Yield each command with its names."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*names, name))
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield names, command


PLACES = [
    (names, command, each)
    for names, command in walk(app)
    for each in command.params
    if isinstance(each.type, click.Path | click.File)
]


def kinds(parameter):
    """Yield the kinds of path that no option of this type can do anything with."""
    taken = parameter.type
    yield "below a file"
    if not taken.dir_okay:
        yield from ("folder", "full device")
    if not taken.file_okay:
        yield from ("file", "below a device")
    if taken.exists:
        yield "missing"
    if taken.exists and not taken.dir_okay:
        yield from ("empty", "binary")


TRIED = [
    pytest.param(names, command, each, kind, id=f"{' '.join(names)} {each.name} {kind}".replace(" ", "-"))
    for names, command, each in PLACES
    for kind in kinds(each)
]


@pytest.fixture
def bad(tmp_path):
    """Return a path of each kind."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe\x01" * 9)
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").symlink_to("/dev/full")  # a link: what is renamed over it leaves the machine its device
    return {
        "below a file": tmp_path / "file" / "x",
        "folder": tmp_path / "folder",
        "file": tmp_path / "file",
        "missing": tmp_path / "none" / "x",
        "empty": tmp_path / "empty",
        "binary": tmp_path / "binary",
        "full device": tmp_path / "full",
        "below a device": tmp_path / "full" / "x",
    }


@contextlib.contextmanager
def told_to_stop(*signals):
    """Have whatever serves end as soon as it is up: it was not refused, which its test says then."""

    async def come():
        yield signals[0]

    yield come()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Yield a home with what is good, and leave the process's logging as it was."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "IRISCW_STATE_DIR", "KUBECONFIG", "IRIS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    (tmp_path / "local.yaml").write_text(LOCAL)
    (tmp_path / "token").write_text("t" * 40)
    monkeypatch.setattr(anyio, "open_signal_receiver", told_to_stop)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)


def told(code, out, err, *words):
    """See that a command ended as one does whose user has to change something, and that it says what."""
    assert code in (UNWELL, USAGE, REFUSED), (code, err)
    said = err if code != UNWELL else out + err
    assert "report it" not in said
    assert "Traceback" not in said
    assert all(word in said for word in words), (words, said)
    if code != UNWELL:
        assert err.startswith("iriscw: ")
        assert err.count("\n") == 1, err


@pytest.mark.sampled(3, by="kind")
@pytest.mark.parametrize(("names", "command", "parameter", "kind"), TRIED)
def test_a_bad_path_is_told(iriscw, bad, place, names, command, parameter, kind):
    """In one line that names it, with the code of a mistake or of the world."""
    path = bad[kind]
    beside = {**BESIDE.get(names, {}), **BESIDE.get((*names, parameter.name), {})}
    beside.pop(parameter.opts[0], None)
    if parameter.name in KEY_OPTIONS:
        beside["--repository"] = f"file://{place}/kept"
    if parameter.name == "token_file" and "address" in {
        each.name for each in command.params
    }:  # its cluster is asked nothing
        beside["--address"] = "127.0.0.1:1"
        if names == ("checkpoint",):
            del beside["--pid"]
            beside["job"] = None
    arguments = [text.format(tmp=place) for pair in beside.items() for text in pair if text is not None]
    arguments += [
        str(place / "cluster.yaml") if isinstance(each.type, click.Path) else "x"
        for each in command.params
        if isinstance(each, click.Argument) and each.required and each is not parameter
    ]
    given = [str(path)] if isinstance(parameter, click.Argument) else [parameter.opts[0], str(path)]
    code, out, err = iriscw(*names, *given, *arguments)
    told(code, out, err)
    assert str(path.parent) in out + err, err


def test_options_are_found():
    """The tree of commands has them."""
    assert len({(*names, each.name) for names, _, each in PLACES}) > 30


@pytest.mark.parametrize("option", ["--root", "--runtime-root"])
def test_a_folder_that_the_agent_may_not_look_into_is_told(iriscw, bad, monkeypatch, option):
    """Nothing would ever be found below it. A superuser may look into all of them, so the system's answer is given."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK and access(path, mode))
    code, out, err = iriscw("agent", "serve", "--state-dir", str(bad["folder"]), option, str(bad["folder"]))
    told(code, out, err, f"'{option}'", str(bad["folder"]), "is not executable")


@pytest.mark.parametrize("kind", ["below a file", "folder", "binary", "empty", "missing", "full device"])
@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("IRIS_TOKEN_FILE", ("jobs",)),
        ("IRIS_CA_FILE", ("jobs",)),
        ("KUBECONFIG", ("connect",)),
    ],
)
def test_a_bad_path_of_the_environment_is_told(iriscw, bad, monkeypatch, variable, arguments, kind):
    """As one of an option is."""
    monkeypatch.setenv("IRIS_CONTROLLER_ADDRESS", "https://127.0.0.1:1")
    monkeypatch.setenv(variable, str(bad[kind]))
    told(*iriscw(*arguments), str(bad[kind]))


HOMELESS = [
    ("up",),
    ("checkpoints",),
    ("restore", "x"),
    ("agent", "serve"),
    ("sim", "serve"),
    ("checkpoint", "--pid", NOBODY),
]


@pytest.mark.parametrize("home", ["file", "below a file", "below a device"])
@pytest.mark.parametrize("arguments", HOMELESS)
def test_a_home_that_cannot_be_written_is_told(iriscw, bad, monkeypatch, arguments, home):
    """With what names another place; nothing is started before."""
    monkeypatch.setenv("HOME", str(bad[home]))
    monkeypatch.delenv("IRISCW_CONTEXT")
    monkeypatch.setattr(serve, "run_async", lambda *_: pytest.fail("a cluster was started"))
    code, out, err = iriscw(*arguments)
    told(code, out, err, str(bad[home]))
    assert any(way in err for way in ("IRISCW_CONTEXT", "--state-dir", "--kubeconfig")), err


def test_a_read_only_home_is_told(iriscw, place, monkeypatch):
    """Its folder is there, and nothing can be written to it."""
    monkeypatch.delenv("IRISCW_CONTEXT")
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path).is_relative_to(place) and mode & os.W_OK))
    code, out, err = iriscw("up")
    told(code, out, err, str(place), "IRISCW_CONTEXT")
    assert (code, "ermission denied" in err) == (USAGE, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("manifests", "{tmp}/cluster.yaml", "--secrets-to", "{tmp}/secrets"),
        ("sim", "serve", "--quick"),
        ("up",),
        ("checkpoints", "--state-dir", "{tmp}/state"),
        ("agent", "serve", "--state-dir", "{tmp}/state", "--socket", "{tmp}/agent/sock"),
    ],
)
def test_a_full_disk_is_told(iriscw, place, monkeypatch, arguments):
    """Wherever a command writes: the system says so as a file or a folder is to be made."""
    opened = os.open

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))

    def open_unless_new(path, flags, *args, **more):
        return full() if flags & os.O_CREAT else opened(path, flags, *args, **more)

    monkeypatch.setattr(os, "mkdir", full)
    monkeypatch.setattr(os, "open", open_unless_new)
    code, out, err = iriscw(*(each.format(tmp=place) for each in arguments))
    assert code in (USAGE, REFUSED)
    told(code, out, err[err.index("iriscw: ") :])
    assert "No space left" in err or "is full" in err


def test_a_store_without_keys_is_told(iriscw, place, monkeypatch):
    """With the variables that would name some; the controller does not begin."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    served = ("controller", "serve", "--config", str(place / "local.yaml"), "--state-dir", str(place / "state"))
    code, out, err = iriscw(*served, "--bundle-prefix", "s3://bucket/prefix")
    told(code, out, err, "NoStoreCredentials", "AWS_ACCESS_KEY_ID")
    assert (code, err.count("Error")) == (REFUSED, 0)


NOT_OURS = [
    (OSError(errno.EROFS, "Read-only file system", "/home/x"), REFUSED, "/home/x: Read-only file system; choose"),
    (PermissionError(errno.EACCES, "Permission denied", "/x"), REFUSED, "/x: Permission denied; choose"),
    (OSError(errno.ENOSPC, "No space left on device"), REFUSED, "No space left on device; make room"),
    (OSError(errno.EMFILE, "Too many open files"), REFUSED, "ulimit"),
    (OSError(errno.EIO, "Input/output error", b"/x"), REFUSED, "/x: Input/output error; --verbose"),
    (OSError(errno.EBADF, "Bad file descriptor"), BUG, "report it"),
    (OSError("a library's own"), BUG, "report it"),
]


@pytest.mark.parametrize(("error", "code", "says"), NOT_OURS, ids=[str(each[0]) for each in NOT_OURS])
def test_what_the_operating_system_refuses_is_no_bug(capsys, error, code, says):
    """Whoever met it, and did not expect it: the path, its words and a way out. A wrong call of ours is one."""
    assert report(error, verbose=False) == code
    err = capsys.readouterr().err
    assert says in err
    assert "Errno" not in err or code == BUG
