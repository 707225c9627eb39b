"""Which of NVIDIA's libraries are loaded: by name, or the one that a variable names, if nobody else could change it."""

import os

import pytest

from iriscw.freeze.drivers.cuda.finding import CUDA, NVML, VARIABLE, cuda_library, nvml_library
from iriscw.freeze.model import CudaMissing
from raised import that


@pytest.fixture
def named(tmp_path, monkeypatch):
    """A library that the variable names."""
    path = tmp_path / "driver" / CUDA
    path.parent.mkdir(mode=0o755)
    path.write_bytes(b"")
    path.chmod(0o644)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_what_nobody_named_is_left_to_the_loader(monkeypatch):
    """Both by the names that NVIDIA gives them."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (cuda_library(), nvml_library()) == (CUDA, NVML)


def test_the_one_that_is_named_is_taken_with_what_lies_beside_it(named):
    """NVML is left to the loader where there is none beside it."""
    assert (cuda_library(), nvml_library()) == (str(named), NVML)
    beside = named.with_name(NVML)
    beside.write_bytes(b"")
    beside.chmod(0o644)
    assert nvml_library() == str(beside)


@pytest.mark.parametrize("value", ["libcuda.so", "/", "/no/x"])
def test_what_is_no_library_is_refused(monkeypatch, value):
    """By the name of the variable, for both."""
    monkeypatch.setenv(VARIABLE, value)
    for find in (cuda_library, nvml_library):
        with pytest.raises(CudaMissing, check=that(comes_from="finding._check", names=VARIABLE)):
            find()


@pytest.mark.parametrize("which", ["itself", "its folder", "what it links to"])
def test_what_others_could_change_is_refused(named, tmp_path, which):
    """It would run with our rights: the file, the folders above it, and those of what it is a link to."""
    if which == "what it links to":
        open_to_all = tmp_path / "open"
        open_to_all.mkdir()
        (open_to_all / CUDA).write_bytes(b"")
        open_to_all.chmod(0o777)
        named.unlink()
        named.symlink_to(open_to_all / CUDA)
    else:
        (named if which == "itself" else named.parent).chmod(0o777)
    with pytest.raises(CudaMissing, check=that(comes_from="finding._check")):
        cuda_library()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_refused(named):
    """Even if its mode lets nobody else write."""
    os.chown(named, 4711, 4711)
    with pytest.raises(CudaMissing, check=that(comes_from="finding._check", names="4711")):
        cuda_library()
