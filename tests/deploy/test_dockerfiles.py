"""The Dockerfiles, read: what they copy exists, what they run exists, and what they install is what is locked."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from deploy_world import installed, with_agent

from iriscw.cli.app import COMMANDS
from iriscw.deploy import agent
from iriscw.deploy.controller import command
from iriscw.deploy.names import CONTROLLER_USER

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "iriscw" / "deploy"
NAMES = ("controller", "worker", "task", "agent")
LAST_OF = {"FROM", "USER", "ENTRYPOINT", "CMD", "WORKDIR", "EXPOSE"}


def instructions(name):
    """Return a Dockerfile's instructions as (word, rest), stage by stage.

    The first stage has what stands before FROM.
    """
    text = (FOLDER / f"Dockerfile.{name}").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    stages = [[]]
    for line in filter(None, (each.strip() for each in lines.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, " ".join(rest.split())))
    return stages


def only(stage, word):
    """Return what the last instruction of a kind says; None if there is none."""
    found = [rest for each, rest in stage if each == word]
    return found[-1] if found else None


@pytest.fixture(params=NAMES)
def name(request):
    """Each of them."""
    return request.param


def test_what_is_copied_exists(name):
    """From the root of a checkout, and the ignore file lets it through; in the end from the stage before."""
    _, build, final = instructions(name)
    allowed = (FOLDER / f"Dockerfile.{name}.dockerignore").read_text().splitlines()
    assert "*" in allowed
    for word, rest in build:
        if word == "COPY":
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in allowed
    copied = [rest.split() for word, rest in final if word == "COPY"]
    assert copied == [["--from=build", "/opt/iriscw", "/opt/iriscw"]]
    assert build[0] == ("FROM", "${BASE} AS build")


def test_only_what_is_needed_is_sent(name):
    """Nothing else of a checkout gets into the context: no environment, no repository."""
    allowed = (FOLDER / f"Dockerfile.{name}.dockerignore").read_text().splitlines()
    _, build, _ = instructions(name)
    copied = {source for word, rest in build if word == "COPY" for source in rest.split()[:-1]}
    assert {each[1:] for each in allowed if each.startswith("!")} == copied


def test_what_the_build_needs_is_copied(name):
    """The packages and files that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    _, build, _ = instructions(name)
    copied = {source for word, rest in build if word == "COPY" for source in rest.split()[:-1]}
    packages = {each.partition("/")[0] for each in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    named = {project["project"]["readme"], *project["project"]["license-files"]}
    assert copied == packages | named | {"pyproject.toml", "requirements.lock"}


def test_libraries_are_the_locked_ones(name):
    """Each that iriscw needs stands in the lock file, pinned and with its hashes; then iriscw alone is installed."""
    _, build, _ = instructions(name)
    installs = [shlex.split(rest) for word, rest in build if word == "RUN" and "uv pip install" in rest]
    locked, alone = installs
    assert locked[locked.index("--constraint") + 1] == "requirements.lock"
    assert locked[locked.index("--requirement") + 1] == "pyproject.toml"
    assert "--no-deps" in alone
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+).*\\\n    --hash=sha256:", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["project"]["dependencies"]:
        library = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace(".", "-").replace("_", "-")
        assert library in pinned, requirement


def test_uv_is_the_makefiles(name):
    """One version of it makes all environments."""
    (version,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    _, build, _ = instructions(name)
    assert f"uv=={version}" in only(build, "RUN") or any(f"uv=={version}" in rest for _, rest in build)


def test_the_base_is_named_once_and_never_latest(name):
    """Both stages begin with it, so the environment's Python is there; how to pin it by digest is said."""
    before, _, final = instructions(name)
    assert before == [("ARG", "BASE=python:3.11-slim-bookworm")]
    assert only(final, "FROM") == "${BASE}"
    text = (FOLDER / f"Dockerfile.{name}").read_text(encoding="utf-8")
    assert "digest" in text
    assert ":latest" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["requires-python"] == ">=3.11,<3.14"


def test_the_entry_point_exists(name):
    """It is a command or module of ours, or Python itself."""
    _, _, final = instructions(name)
    words = json.loads(only(final, "ENTRYPOINT") or only(final, "CMD"))
    if words[0] == "iriscw":
        assert words[1] in COMMANDS
    elif words[1:2] == ["-m"]:
        assert importlib.util.find_spec(words[2]) is not None
    else:
        assert words == ["python"]
    assert "/opt/iriscw/bin:" in only(final, "ENV")


def test_the_controllers_is_what_the_deployment_runs():
    """With the same words, as the same user, on the port that is the default."""
    _, _, final = instructions("controller")
    assert json.loads(only(final, "ENTRYPOINT")) + json.loads(only(final, "CMD")) == command(installed())
    assert only(final, "USER") == f"{CONTROLLER_USER}:{CONTROLLER_USER}"
    assert only(final, "EXPOSE") == str(installed().controller.port)


def test_the_workers_is_what_its_pods_run():
    """The module that they name."""
    from iriscw.controller.platforms.coreweave import WORKER_COMMAND

    _, _, final = instructions("worker")
    assert tuple(json.loads(only(final, "ENTRYPOINT"))) == WORKER_COMMAND
    assert only(final, "EXPOSE") == str(installed().config.defaults.bootstrap.worker_port)


def test_the_agents_is_what_its_pods_run():
    """The same command, with the CRIU that it finds on its path."""
    _, build, final = instructions("agent")
    words = json.loads(only(final, "ENTRYPOINT"))
    assert agent.command(with_agent())[: len(words)] == words
    (made,) = [rest for word, rest in build if word == "RUN" and "install-criu" in rest]
    script, *steps = [shlex.split(each) for each in made.split(" && ")]
    assert (ROOT / script[0]).stat().st_mode & 0o111
    assert script[1:] == ["--from", "source", "/opt/iriscw/criu"]
    assert steps[-1] == ["ln", "-s", "../criu/criu", "/opt/iriscw/bin/criu"]
    needed = re.search(r"for tool in ([^;]+);", (ROOT / script[0]).read_text())[1].split()
    assert [each for each in needed if each not in build[1][1] and each not in ("tar", "xz", "sha256sum")] == []
    assert "xz-utils" in build[1][1]


def test_nobody_is_root_without_a_reason(name):
    """The worker is, and the agent, and the lines above say why."""
    _, _, final = instructions(name)
    if only(final, "USER") == "0:0":
        text = (FOLDER / f"Dockerfile.{name}").read_text(encoding="utf-8")
        assert name in ("worker", "agent")
        assert re.search(r"^# Root, .*\n(#.*\n)*USER 0:0$", text, re.MULTILINE)
    else:
        assert only(final, "USER") == "65532:65532"


def test_the_agents_image_asks_for_nvidias_libraries():
    """As its pod does: NVIDIA's runtime puts in what these variables name."""
    *_, final = instructions("agent")
    said = dict(pair.split("=", 1) for word, rest in final if word == "ENV" for pair in rest.split())
    assert {name: said[name] for name in agent.DRIVER} == agent.DRIVER
