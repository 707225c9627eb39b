"""The recipes of the page on embedding, as they stand there, each in its host.

aiohttp, pytest and anyio's plugin are the real ones. FastAPI and pytest-asyncio are where they are installed; elsewhere
what they do with a recipe is done for them: the lifespan is entered and left by one task and used by others, and a
fixture is begun and ended by two tasks of one loop.
"""

import ast
import asyncio
import importlib.util
import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "embedding.md").read_text()


def recipes(title):
    """Return the code below a heading."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert found, title
    return found


def run(*argv, cwd):
    """Run Python; give what it printed, and nothing may have gone wrong."""
    done = subprocess.run([sys.executable, *argv], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def load(code, folder, **modules):
    """Import a recipe as a module of its own, with stand-ins for what is not installed."""
    path = folder / "recipe.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("recipe", path)
    made = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in {"recipe": made, **modules}.items():
            patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "printed"),
    [
        ("A script", "[42]\n"),
        ("A script without an event loop", "[42]\n"),
        ("Several blocks that end together", "[[], []]\n"),
    ],
)
def test_scripts(title, printed, tmp_path):
    """Pasted into a file and run."""
    [code] = recipes(title)
    (tmp_path / "recipe.py").write_text(code)
    assert run("-W", "error", "recipe.py", cwd=tmp_path) == printed


@pytest.mark.slow
def test_a_client_in_another_process(tmp_path):
    """The program that holds the cluster starts the other one, which has the job run there."""
    holder, client = recipes("A client in another process")
    (tmp_path / "holder.py").write_text(holder)
    (tmp_path / "client.py").write_text(client)
    assert run("-W", "error", "holder.py", cwd=tmp_path) == "[42]\n"


@pytest.mark.slow
async def test_aiohttp(tmp_path):
    """The application is started, asked and cleaned up by aiohttp's own runner."""
    from aiohttp.test_utils import TestClient, TestServer

    [code] = recipes("A service on aiohttp")
    recipe = load(code, tmp_path)
    async with TestClient(TestServer(recipe.app)) as client:
        assert await (await client.get("/double")).json() == [42]


@pytest.mark.slow
async def test_fastapi(tmp_path):
    """The lifespan lives in a task of its own, as servers have it, and requests are other tasks."""

    class FastAPI:
        def __init__(self, lifespan):
            self.lifespan, self.state, self.routes = lifespan, types.SimpleNamespace(), {}

        def get(self, path):
            return lambda function: self.routes.setdefault(path, function)

    [code] = recipes("A service on FastAPI")
    recipe = load(code, tmp_path, fastapi=types.SimpleNamespace(FastAPI=FastAPI))
    started, shut = asyncio.Event(), asyncio.Event()

    async def live():
        async with recipe.app.lifespan(recipe.app):
            started.set()
            await shut.wait()

    life = asyncio.create_task(live())
    await asyncio.wait((life, asyncio.create_task(started.wait())), return_when=asyncio.FIRST_COMPLETED)
    assert await asyncio.create_task(recipe.app.routes["/double"]()) == [42]
    shut.set()
    await life


@pytest.mark.slow
def test_anyios_plugin(tmp_path):
    """Run by pytest itself."""
    [code] = recipes("Tests with anyio's plugin for pytest")
    (tmp_path / "test_recipe.py").write_text(code)
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_recipe.py", cwd=tmp_path)


@pytest.mark.slow
def test_pytest_asyncio(tmp_path):
    """A fixture is begun, used and ended by three tasks."""
    [code] = recipes("Tests with pytest-asyncio")
    (tmp_path / "test_recipe.py").write_text(code)
    if importlib.util.find_spec("pytest_asyncio") is not None:
        assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_recipe.py", cwd=tmp_path)
        return
    marks = types.SimpleNamespace(mark=types.SimpleNamespace(asyncio=lambda **_: lambda function: function))
    plugin = types.SimpleNamespace(fixture=lambda **_: lambda function: function)
    recipe = load(code, tmp_path, pytest=marks, pytest_asyncio=plugin)
    with asyncio.Runner() as runner:
        fixture = recipe.cluster()
        runner.run(recipe.test_double(runner.run(fixture.__anext__())))
        with pytest.raises(StopAsyncIteration):
            runner.run(fixture.__anext__())


@pytest.mark.slow
def test_a_notebook(capsys):
    """Each cell is compiled as IPython does it, and is a task of its own."""
    space = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for cell in recipes("A notebook"):
            code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            made = eval(code, space)
            if inspect.isawaitable(made):
                runner.run(made)
    assert capsys.readouterr().out == "[42]\n"
