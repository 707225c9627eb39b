"""The table of protobuf is Kubernetes' own: by it each kind is read as its own JSON has it, with every field set."""

import json
import shutil

import pytest
from kube_protobuf import KINDS, TABLE, modules, table

from iriscw_sims.serve.protobuf import decode


@pytest.fixture(scope="module")
def sources():
    """Kubernetes' Go modules, and their version; the test is skipped where they were never loaded."""
    if shutil.which("go") is None:
        pytest.skip("there is no Go")
    cache, version = modules()
    for module in ("api", "apimachinery", "apiextensions-apiserver"):
        if not (cache / f"k8s.io/{module}@v0.{version}").is_dir():
            pytest.skip(f"the module k8s.io/{module} v0.{version} is not there: build-apiserver loads it")
    return cache, version


def test_the_table_is_what_the_sources_say(sources):
    """With another version of Kubernetes ``kube_protobuf.py`` writes another one."""
    assert TABLE.read_text(encoding="utf-8") == table(*sources)


@pytest.mark.parametrize("name", [each for each in KINDS if each != "meta/v1/DeleteOptions"])
def test_a_kind_with_every_field_set_is_read(sources, name):
    """As Kubernetes' own tests of compatibility have it: the same object as protobuf and as JSON."""
    cache, version = sources
    place = cache / f"k8s.io/api@v0.{version}" / "testdata" / "HEAD"
    if name.startswith("apiextensions"):
        place = cache / f"k8s.io/apiextensions-apiserver@v0.{version}" / "pkg" / "apis" / "testdata" / "HEAD"
    file = name.replace("/", ".") if "/" in name.removeprefix("v1/") else f"core.{name.replace('/', '.')}"
    wanted = json.loads((place / f"{file}.json").read_text(encoding="utf-8"))
    assert decode((place / f"{file}.pb").read_bytes()) == wanted
