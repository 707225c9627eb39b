"""Files of projects that say what is to be installed."""

from pathlib import Path

import pytest

from iriscw.packages.reading import dependencies_of
from iriscw.packages.requirements import InvalidDependency
from raised import that

HASH = "0" * 64


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_lists_and_files_say_the_same(tmp_path: Path) -> None:
    """A list, a pyproject.toml and a requirements file; comments and continued lines are the latter's."""
    project = written(tmp_path, "pyproject.toml", '[project]\nname = "p"\ndependencies = ["numpy>=2", "attrs"]\n')
    lines = written(tmp_path, "requirements.txt", "# all\nnumpy>=2  # fast\n\nattrs \\\n")
    assert dependencies_of(["numpy>=2", "attrs"]) == dependencies_of(project) == dependencies_of(str(lines))
    pinned = written(tmp_path, "pinned.txt", f"attrs==1.0 \\\n    --hash=sha256:{HASH}\n")
    assert dependencies_of(pinned) == (f"attrs==1.0 --hash=sha256:{HASH}",)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("requirements.txt", "numpy\n--index-url https://elsewhere.example\n", "line 2"),
        ("requirements.txt", "-r ../../secrets.txt\n", "line 1"),
        ("requirements.txt", "numpy @ file:///etc/x.whl\n", "where it comes from"),
        ("requirements.txt", "../escapes\n", "not a requirement"),
        ("pyproject.toml", "not TOML", "TOML"),
        ("pyproject.toml", "[tool.x]\n", "depends on"),
        ("pyproject.toml", '[project]\nname = "p"\ndynamic = ["dependencies"]\n', "depends on"),
        ("pyproject.toml", '[project]\nname = "p"\ndependencies = ["x @ file:///etc/x"]\n', "where it comes from"),
        ("pyproject.toml", '[project]\nname = "p"\ndependencies = "x"\n', "list"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, name: str, text: str, word: str) -> None:
    """Options, paths and addresses are refused, with the file's name; nothing that it names is opened."""
    path = written(tmp_path, name, text)
    with pytest.raises(InvalidDependency, check=that(names=word)) as refused:
        dependencies_of(path)
    assert str(path) in str(refused.value)


def test_one_text_is_the_name_of_a_file() -> None:
    """A requirement that is given alone, and not as a list, is told how it is meant."""
    with pytest.raises(InvalidDependency, check=that(names="numpy>=2")):
        dependencies_of("numpy>=2")


LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "p"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [{{ name = "tiny" }}]
[package.metadata]
requires-dist = [{{ name = "tiny" }}]

[[package]]
name = "tiny"
version = "1.0"
source = {source}
{files}
"""
PROJECT = '[project]\nname = "p"\nversion = "0.1.0"\nrequires-python = ">=3.11"\ndependencies = ["tiny"]\n'


def test_a_lock_file_gives_versions_and_hashes(tmp_path: Path) -> None:
    """Of a pyproject.toml with a uv.lock beside it; a lock that leads to a folder of its machine is refused."""
    project = written(tmp_path, "pyproject.toml", PROJECT)
    listed = f'sdist = {{ url = "https://e.example/tiny-1.0.tar.gz", hash = "sha256:{HASH}", size = 1 }}'
    lock = written(tmp_path, "uv.lock", LOCK.format(source='{ registry = "https://e.example/simple" }', files=listed))
    assert dependencies_of(project) == dependencies_of(lock) == (f"tiny==1.0 --hash=sha256:{HASH}",)
    lock.write_text(LOCK.format(source='{ directory = "../../escapes" }', files=""))
    with pytest.raises(InvalidDependency, check=that(names="dependencies")):
        dependencies_of(project)
