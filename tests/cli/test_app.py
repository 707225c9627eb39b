"""The tree of commands: help, wrong names, verbosity, and what is loaded."""

import subprocess
import sys

import pytest

from iriscw.cli.app import COMMANDS


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
    listed = out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(len(line.split()) > 2 for line in listed)


def test_a_wrong_name_is_told_the_nearest(iriscw):
    """One line with the way out, and the code for misuse."""
    code, out, err = iriscw("jbos")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "did you mean 'jobs'" in err


def test_a_missing_argument_is_one_line(iriscw):
    """A usage error names where help is."""
    code, _, err = iriscw("job")
    assert (code, err.count("\n")) == (2, 1)
    assert "iriscw job --help" in err


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
    for arguments in (["doctor"], ["--help"], ["jobs", "--help"], ["doctor", "-o", "json"]):
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
