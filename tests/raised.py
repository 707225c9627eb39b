"""What a test may ask of an error beside its class: where it was raised, which values it names, what it holds.

Never its prose: ``texts.txt`` has that, and a person reviews it there. Read it as a sentence::

    with pytest.raises(NoSuchNode, check=that(names="n9")): ...
    with pytest.raises(InvalidTokenFile, check=that(comes_from="tokens.read_token", nth=2)): ...
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)): ...
"""

import ast
import functools
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

Check = Callable[[BaseException], bool]

OURS = ("iriscw", "iriscw_sims")
UNNAMED = re.compile(r"\.?<\w+>")


@functools.cache
def _raises_in(path: str, line: int) -> list[ast.Raise]:
    """Return what the function around a line raises itself, in the order in which it is written."""
    if not Path(path).is_file():  # it was compiled
        return []
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    around: list[ast.AST] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    found, left = [], [*ast.iter_child_nodes(around[-1] if around else tree)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Raise):
            found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left += ast.iter_child_nodes(node)
    return sorted(found, key=lambda each: each.lineno)


def place_of(error: BaseException) -> tuple[str, int]:
    """Return which function raised an error, as ``module.Class.function``, and by which ``raise`` of it; 0 is none.

    It is the innermost function of iriscw on the way of the error, or the innermost one of all if that way has none.
    """
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if not frames:  # it was never raised, but is what another error names as its cause
        return "", 0
    ours = [each for each in frames if {*OURS} & {*Path(each[0].co_filename).parts}]
    code, line = (ours or frames)[-1]
    path = Path(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    lines = [each.lineno <= line <= (each.end_lineno or 0) for each in _raises_in(code.co_filename, line)]
    return f"{module}.{UNNAMED.sub('', code.co_qualname)}", lines.index(True) + 1 if any(lines) else 0


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and not any(error is each for each in seen):  # a context may lead back to where it began
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def that(*, comes_from: str = "", nth: int = 0, names: object = (), cause: type | None = None, **has: object) -> Check:
    """Return a check for ``pytest.raises``, which says what differs if one does.

    Args:
        comes_from: The function that raised it, or what it was raised from, with its module: ``"tokens.read_token"``.
        nth: By which ``raise`` of that function, from 1, where it has several for one class.
        names: A value, or several in a tuple, that its text has to have: a name, a number, an option, a path.
        cause: The class of what it was raised from.
        has: Its attributes.
    """

    def check(error: BaseException) -> bool:
        if comes_from:
            places = [place_of(each) for each in _chain(error)]
            found = any(place == comes_from and nth in (0, number) for place, number in places)
            assert found, f"it comes from {' from '.join(f'{place}, raise {n}' for place, n in places)}: {error}"
        for name in names if isinstance(names, tuple) else (names,):
            assert str(name), "an empty name is in every text"
            whole = rf"(?<!\w){re.escape(str(name))}(?!\w)" if str(name).isalnum() else re.escape(str(name))
            assert re.search(whole, str(error)), f"it does not name {name}: {error}"
        assert cause is None or isinstance(error.__cause__, cause), f"it has the cause {error.__cause__!r}"
        held = {name: getattr(error, name) for name in has}
        assert held == has, str(error)
        return True

    return check
