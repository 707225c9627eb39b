"""What a failed job's last words mean here."""

import sys

import pytest

from iriscw.client.advice import advice, files_named


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the user's own, in which it works."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("train.py", "run.sh", "data.csv", "neighbour.py"):
        (folder / name).touch()
    (folder / "mypackage").mkdir()
    (folder / "mypackage" / "__init__.py").touch()
    return folder


def test_a_module_of_ones_own(here):
    """Its folder has to be sent along; a package's is the one above it; nothing is imported to find out."""
    for name in ("neighbour", "mypackage.part"):
        said = advice(f"Traceback ...\nModuleNotFoundError: No module named '{name}'\n")
        assert f"bundle={str(here)!r}" in said
        assert name.partition(".")[0] not in sys.modules


def test_a_module_in_the_path(here, monkeypatch, tmp_path):
    """A script's folder is found wherever its user works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(here)
    assert f"bundle={str(here)!r}" in advice("ModuleNotFoundError: No module named 'neighbour'")


@pytest.mark.parametrize(("name", "said"), [("pytest", "is installed here, and not"), ("no_such", "neither here nor")])
def test_a_package(here, name, said):
    """Installed packages are the workers' affair."""
    assert said in advice(f"ModuleNotFoundError: No module named '{name}'")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python: can't open file '/tmp/iriscw-x/a/attempt-1/work/train.py': [Errno 2] No such file or di", "train.py"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "data.csv"),
        ("bash: run.sh: No such file or directory", "run.sh"),
        ("bash: line 1: ./run.sh: No such file or directory", "run.sh"),
        ("ProgramMissing: MissingBinary: there is no program './run.sh', or none where its first li", "./run.sh"),
    ],
)
def test_a_file_of_this_folder(here, words, name):
    """However its absence is said; the last line that says so counts."""
    assert advice(f"cat: data.csv: something\n{words}\nexit code 2").startswith(f"{name!r} is a file of this folder")


@pytest.mark.parametrize(
    "words",
    [
        "",
        "ValueError: too small",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.py'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'elsewhere.csv'",
        f"cat: {'x' * 5000}: No such file or directory",
    ],
)
def test_nothing_is_made_up(here, words):
    """What is not here either, and what is somewhere else on purpose, gets no hint."""
    assert advice(words) == ""


def test_files_of_a_command(here):
    """Words that are files here; not folders, options, or what lies elsewhere."""
    argv = ("python", "train.py", "mypackage", "--data", "data.csv", "/etc/hosts", "-", "")
    assert files_named(argv) == ("train.py", "data.csv")
