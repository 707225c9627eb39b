"""The tree of commands: help, wrong names, verbosity, and what is loaded."""

import os
import subprocess
import sys

import click
import pytest

from iriscw.cli.app import COMMANDS, app
from iriscw.cli.groups import summary


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(iriscw, name):
    """Each command exists and says what it does."""
    if name == "worker":  # its only command becomes another process
        return
    code, out, _ = iriscw(name, "--help")
    assert (code, out.startswith(f"Usage: iriscw {name}")) == (0, True)


def test_help_lists_all_commands(iriscw):
    """The help of the whole shows every command with a text."""
    code, out, _ = iriscw("--help")
    assert code == 0
    listed = [line for line in out.partition("Commands:\n")[2].splitlines() if line[2] != " "]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(len(line.split()) > 2 for line in listed)


def walk(command, *names):
    """Yield each command with its names."""
    yield names, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from walk(command.get_command(click.Context(command), name), *names, name)


@pytest.mark.parametrize("columns", ["80", "100"])
def test_no_help_is_cut(iriscw, monkeypatch, columns):
    """Whatever the width, the help of a group has the first sentence of each of its commands, as its own help has."""
    monkeypatch.setenv("COLUMNS", columns)
    seen = 0
    for names, command in walk(app):
        if not isinstance(command, click.Group):
            continue
        code, out, _ = iriscw(*names, "--help")
        assert code == 0
        listed = "".join(out.partition("Commands:\n")[2].split())  # lines may end behind a hyphen
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            text = summary(below)
            assert " ".join(below.help.split()).startswith(text)
            assert "".join(f"{name}{text}".split()) in listed
            seen += 1
        assert max(map(len, out.splitlines())) <= int(columns)
    assert seen > len(COMMANDS)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Do it: `x --bundle . -- y`.\n\nMore.", "Do it: `x --bundle . -- y`"),
        ("List them; version 1.2 too. And more.", "List them; version 1.2 too"),
        ("No dot", "No dot"),
        ("", ""),
    ],
)
def test_a_summary_is_the_first_sentence(text, first):
    """A folder's dot ends none."""
    assert summary(click.Command("x", help=text)) == first


def test_a_wrong_name_is_told_the_nearest(iriscw):
    """One line with the way out, and the code for misuse."""
    pairs = {
        "jbos": "jobs",
        "freeze": "checkpoint",
        "thaw": "restore",
        "status": "job",
        "statsu": "job",
        "cancel": "stop",
        "wiat": "wait",
    }
    for wrong, right in pairs.items():
        code, out, err = iriscw(wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"did you mean '{right}'" in err


def test_a_wrong_name_in_a_group_is_told_the_nearest(iriscw):
    """Or which there are."""
    for wrong, says in (("rnu", "did you mean 'run'"), ("xyzzy", "there are plan, replay, run, serve")):
        code, out, err = iriscw("sim", wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err
    assert "did you mean" not in iriscw("xyzzy")[2]


def test_a_missing_argument_is_one_line(iriscw):
    """A usage error names where help is."""
    code, _, err = iriscw("job")
    assert (code, err.count("\n")) == (2, 1)
    assert "iriscw job --help" in err


def test_the_help_that_an_error_names_is_the_commands_own(iriscw):
    """For an option without its value, an option that is none, and what a command itself refuses."""
    seen = 0
    for names, command in walk(app):
        if isinstance(command, click.Group) or names == ("worker", "serve"):  # that one's words are another's
            continue
        valued = next((each.opts[0] for each in command.params if isinstance(each, click.Option) and takes(each)), None)
        for wrong in filter(None, (valued, "--no-such-option")):
            code, out, err = iriscw(*names, wrong)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"see `iriscw {' '.join(names)} --help`" in err
            seen += 1
    assert seen > len(COMMANDS)
    assert "see `iriscw agent serve --help`" in iriscw("agent", "serve", "--token-file", "x")[2]
    for names in ((), ("agent",)):
        assert f"see `{' '.join(('iriscw', *names))} --help`" in iriscw(*names, "--no-such-option")[2]


def takes(option):
    """Tell whether an option needs a value behind it."""
    return not option.is_flag and not option.count


def test_no_controller_is_one_line(iriscw):
    """Without a cluster the error says how to get one."""
    code, _, err = iriscw("jobs")
    assert (code, err.count("\n")) == (2, 1)
    assert "iriscw up" in err


def test_verbose_adds_the_rest(iriscw):
    """--verbose shows the traceback, wherever it stands."""
    for arguments in (("--verbose", "jobs"), ("jobs", "--verbose")):
        code, _, err = iriscw(*arguments)
        assert code == 2
        assert "Traceback" in err


def test_verbose_after_the_dashes_belongs_to_the_job(iriscw):
    """What stands behind -- is the job's own."""
    code, _, err = iriscw("submit", "--", "prog", "--verbose")
    assert code == 2
    assert "Traceback" not in err


def test_a_full_disk_is_named():
    """What cannot be written is an error of the world, told once, for results as for help."""
    for arguments in (["doctor", "-o", "json"], ["jobs", "--help"]):
        done = run_with("/dev/full", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert "OutputLost: standard output cannot be written: No space left on device" in done.stderr


def test_closed_outputs_are_no_bugs():
    """Without standard output nothing is begun; without standard error commands still work."""
    done = run_with(None, "doctor")
    assert (done.returncode, done.stderr) == (3, "iriscw: OutputLost: standard output is closed\n")
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *PROGRAM, "doctor"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.startswith("WHAT")) == (0, True)


PROGRAM = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main(sys.argv[1:]))"]


def run_with(output, *arguments):
    """Run a command whose standard output is a file, or closed."""
    where = f">{output}" if output else ">&-"
    shell = ["sh", "-c", f'exec "$@" {where}', "sh", *PROGRAM, *arguments]
    return subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def test_version(iriscw):
    """The version is that of the package."""
    import iriscw as package

    assert iriscw("--version")[1].strip() == f"iriscw, version {package.__version__}"


def test_the_entry_point_loads_nothing():
    """Tasks import modules below the package: that must not load what terminals and connections need."""
    code = "import iriscw.cli, iriscw.cli.demo.workload, sys; print(*{n.partition('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"click", "rich", "grpclib", "betterproto2"} & {*done.stdout.split()}


def test_a_closed_pipe_is_no_error():
    """`iriscw --help | head` ends in silence."""
    code = "import sys; from iriscw.cli import main; sys.exit(main(['doctor', '-o', 'json']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_letters_that_the_terminal_does_not_know(encoding):
    """They are written otherwise, and all else as it is: on standard output and in an error's line."""
    code = "from iriscw.cli.output import emit; emit('ÜNI✓ \\udcff\\n'); raise ValueError('✓')"
    program = (
        "import sys, click; from iriscw.cli import app; "
        f"app.app = click.Command('x', callback=lambda: exec({code!r})); sys.exit(app.run([]))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=False, timeout=60
    )
    said = done.stdout.decode(encoding)
    assert said == "ÜNI✓ \\udcff\n".encode(encoding, "backslashreplace").decode(encoding)
    assert "UnicodeEncodeError" not in done.stderr.decode()
    assert b"ValueError" in done.stderr
